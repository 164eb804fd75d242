"""Model directories for tests: tiny ONNX files and the configurations beside them."""

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from models.errors import ConfigError
from models.repository import ModelEntry, read_model
from models.spec import ModelSpec

Dims = Sequence[int | str | None] | None

INPUTS = 'input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] }'
OUTPUTS = 'output { name: "y" data_type: TYPE_FP32 dims: [ 16 ] }'
FAKE = f'backend: "fake"\nmax_batch_size: 8\n{INPUTS}\n{OUTPUTS}\n'
"""A valid configuration of four lines, to which tests add the fifth."""


def edited(old: str, new: str) -> str:
    """FAKE with the first `old` replaced."""
    assert old in FAKE
    return FAKE.replace(old, new, 1)


def identity_model(
    dims: Dims = ("N", 16), output_dims: Dims = (), *, data_type: int = TensorProto.FLOAT, weight: int = 0
) -> onnx.ModelProto:
    """Input "x" -> Identity -> output "y"; `output_dims` is `dims` if empty, `weight` bytes are an initializer "w"."""
    inputs = [helper.make_tensor_value_info("x", data_type, dims)]
    outputs = [helper.make_tensor_value_info("y", data_type, dims if output_dims == () else output_dims)]
    initializers = []
    if weight:
        initializers.append(helper.make_tensor("w", TensorProto.UINT8, [weight], bytes(weight), raw=True))
        inputs.append(helper.make_tensor_value_info("w", TensorProto.UINT8, [weight]))
    node = helper.make_node("Identity", ["x"], ["y"])
    return helper.make_model(helper.make_graph([node], "identity", inputs, outputs, initializers))


def two_by_two_model(dims: Dims = ("N", 16)) -> onnx.ModelProto:
    """Inputs "a" and "b", outputs "sum" and "difference"."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
            "two",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("a", "b")],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("sum", "difference")],
        )
    )


def write_model(
    root: Path,
    config: str | None = None,
    side: str | None = None,
    *,
    name: str = "m",
    versions: Sequence[str] = ("1",),
    model: onnx.ModelProto | None = None,
    labels: str | None = None,
) -> Path:
    """Write a model directory; `model`, if given, becomes model.onnx of every version."""
    directory = root / name
    for version in versions:
        (directory / version).mkdir(parents=True)
        if model is not None:
            onnx.save(model, directory / version / "model.onnx")
    for file_name, text in (("config.pbtxt", config), ("shoal.toml", side), ("labels.txt", labels)):
        if text is not None:
            (directory / file_name).write_text(text, encoding="utf-8")
    return directory


def spec_of(directory: Path) -> ModelSpec:
    """The only served version of a model that must be fine."""
    entry = read_model(directory)
    assert entry.problems == ()
    (spec,) = entry.versions
    return spec


def refusal_of(entry: ModelEntry) -> ConfigError:
    """The only problem of a model that must have one, and no versions."""
    assert entry.versions == ()
    (problem,) = entry.problems
    assert isinstance(problem, ConfigError)
    return problem
