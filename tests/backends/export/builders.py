"""A small classifier of colours, as a repository, and photos for it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image

from backends.export.parity import Scores
from models.inference import Array

CLASSES = 3
_SIDE = 16
_CONFIG = """
max_batch_size: 8
backend: "onnxruntime"
input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 16, 16 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
_SIDE_FILE = """
[preprocessing]
resize = 20
crop = 16
"""


def save_photos(directory: Path, count: int = 12) -> Path:
    """Noise, of which each has more of one colour."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(count):
        levels = random.integers(0, 100, (24, 24, 3), np.uint8)
        levels[:, :, number % CLASSES] += 100
        Image.fromarray(levels).save(directory / f"{number:03}.png")
    return directory


def save_colours(repository: Path, *, name: str = "colours", config: str = _CONFIG, side: str = _SIDE_FILE) -> Path:
    """A model of which version 1 says which colour a picture has most of; returns its directory."""
    directory = repository / name
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(config)
    (directory / "shoal.toml").write_text(side)
    kernels = np.zeros((64, 3, 3, 3), np.float32)
    kernels[np.arange(64), np.arange(64) % CLASSES] = np.random.default_rng(0).random((64, 3, 3))
    weights = np.zeros((64, CLASSES), np.float32)
    weights[np.arange(64), np.arange(64) % CLASSES] = 1
    _save(directory / "1" / "model.onnx", kernels, weights)
    return directory


def _save(file: Path, kernels: Array, weights: Array) -> None:
    nodes = [
        helper.make_node("Conv", ["image", "kernels"], ["convolved"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["convolved"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "weights"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["rows", 3, _SIDE, _SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", CLASSES])],
        initializer=[
            onnx.numpy_helper.from_array(kernels, "kernels"),
            onnx.numpy_helper.from_array(weights, "weights"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def scores(*rows: list[float]) -> Scores:
    return np.array(rows, np.float32)


def files_below(directory: Path) -> set[str]:
    """Everything there is, hidden files included."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
