"""EfficientNet-Lite0 as an ONNX graph, built from its weights without torch.

Architecture: ``efficientnet_lite_builder.py`` of the TensorFlow TPU models: EfficientNet without squeeze-and-excite,
with ReLU6, TensorFlow's SAME padding (asymmetric) and batch-norm epsilon 1e-3. Batch norms are folded in float64.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.zoo.weights import Array, load_weights

INPUT = "image"
OUTPUT = "logits"
SIDE_PIXELS = 224
CLASSES = 1000

# Old enough for every engine in use (ONNX Runtime >= 1.14, TensorRT >= 8.6), new enough for Clip with tensor bounds.
_OPSET = 17
_IR_VERSION = 8
_EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class _Stage:
    """`repeats` inverted-bottleneck blocks; the first one strides and changes the number of channels."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


def build(path: Path) -> None:
    """Write the embedded model to `path`; a reader sees nothing or the whole file.

    Raises:
        RepositoryError: The weights are missing or damaged.
        OSError: The file cannot be written.
    """
    content = build_model(load_weights()).SerializeToString()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def build_model(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The checked graph: ``image`` float32 [batch, 3, 224, 224] to ``logits`` float32 [batch, 1000].

    Args:
        weights: Parameters by torch's names, as `load_weights` returns them.
    """
    graph = _Graph(weights)
    value = graph.convolution(INPUT, "_conv_stem", "_bn0", stride=2, relu6=True)
    block = 0
    for stage in _STAGES:
        for repeat in range(stage.repeats):
            value = graph.block(value, block, stage, stride=stage.stride if repeat == 0 else 1, skip=repeat > 0)
            block += 1
    value = graph.convolution(value, "_conv_head", "_bn1", relu6=True)
    graph.classifier(value)
    model = graph.finish()
    onnx.checker.check_model(model)
    return model


@dataclass(slots=True)
class _Graph:
    """An ONNX graph under construction; methods append nodes and return the name of the value they make."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    side: int = SIDE_PIXELS  # height and width of the value made last

    def __post_init__(self) -> None:
        self._constant("zero", np.zeros((), np.float32))
        self._constant("six", np.full((), 6, np.float32))

    def block(self, value: str, index: int, stage: _Stage, *, stride: int, skip: bool) -> str:
        """One inverted bottleneck: widen (if it does), convolve each channel, narrow, add the input."""
        prefix = f"_blocks.{index}."
        wide = value
        if stage.expand > 1:
            wide = self.convolution(wide, prefix + "_expand_conv", prefix + "_bn0", relu6=True)
        wide = self.convolution(wide, prefix + "_depthwise_conv", prefix + "_bn1", stride=stride, relu6=True)
        narrow = self.convolution(wide, prefix + "_project_conv", prefix + "_bn2")
        return self._node("Add", [narrow, value], prefix + "add") if skip else narrow

    def convolution(self, value: str, layer: str, norm: str, *, stride: int = 1, relu6: bool = False) -> str:
        """A convolution with its batch norm folded in; one input channel a filter means depthwise."""
        kernel, bias = self._folded(layer, norm)
        filters, channels, size, _ = kernel.shape
        inputs = [value, self._constant(layer + ".weight", kernel), self._constant(layer + ".bias", bias)]
        pads, self.side = _same_padding(self.side, size, stride)
        result = self._node(
            "Conv",
            inputs,
            layer,
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=pads,
            group=filters if channels == 1 else 1,
        )
        return self._node("Clip", [result, "zero", "six"], layer + ".relu6") if relu6 else result

    def classifier(self, value: str) -> None:
        """Mean over the picture and the fully connected layer."""
        pooled = self._node("GlobalAveragePool", [value], "pool")
        flat = self._node("Flatten", [pooled], "flat", axis=1)
        names = [self._constant(name, self.weights[name]) for name in ("_fc.weight", "_fc.bias")]
        self._node("Gemm", [flat, *names], OUTPUT, transB=1)

    def finish(self) -> onnx.ModelProto:
        """The model around the nodes."""
        image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, SIDE_PIXELS, SIDE_PIXELS])
        logits = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", CLASSES])
        graph = helper.make_graph(self.nodes, "efficientnet-lite0", [image], [logits], self.constants)
        return helper.make_model(
            graph,
            producer_name="shoal",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            doc_string="EfficientNet-Lite0, ImageNet-1k. Weights: (c) 2020 ML Illustrated, Apache-2.0.",
        )

    def _folded(self, layer: str, norm: str) -> tuple[Array, Array]:
        gamma, beta, mean, variance = (
            self.weights[f"{norm}.{name}"].astype(np.float64)
            for name in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gamma / np.sqrt(variance + _EPSILON)
        kernel = self.weights[f"{layer}.weight"].astype(np.float64) * scale[:, None, None, None]
        return kernel, beta - mean * scale

    def _constant(self, name: str, values: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: int | list[int]) -> str:
        node = helper.make_node(operator, inputs, [output], name=output)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.nodes.append(node)
        return output


def _same_padding(side: int, kernel: int, stride: int) -> tuple[list[int], int]:
    """TensorFlow's SAME: ONNX pads (top, left, bottom, right) and the output's side; the odd pixel goes after."""
    result = -(-side // stride)
    total = max((result - 1) * stride + kernel - side, 0)
    before, after = total // 2, total - total // 2
    return [before, before, after, after], result
