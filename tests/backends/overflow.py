"""A network in half precision that overflows for some inputs, and the same in single precision."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests.backends.builders import save_onnx

LARGE = 40_000.0
"""Doubled, it is above 65 504, the largest number of half precision."""


def save_doubling(directory: Path, *, has_fp32: bool = True) -> Path:
    """Write y = 2 x in half precision, with single precision outside, as model.onnx; beside it model.fp32.onnx."""
    directory.mkdir(parents=True)
    shape = (TensorProto.FLOAT, ("N", 2))
    half = [
        helper.make_node("Cast", ["x"], ["x16"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["x16", "two"], ["doubled"]),
        # Between a computation and a Cast, the engine would skip half precision: an operator that moves data keeps it.
        helper.make_node("Gather", ["doubled", "both"], ["y16"], axis=1),
        helper.make_node("Cast", ["y16"], ["y"], to=TensorProto.FLOAT),
    ]
    if has_fp32:
        precise = [helper.make_node("Mul", ["x", "two"], ["y"])]
        two = np.array([2], np.float32)
        save_onnx(directory / "model.fp32.onnx", precise, x=shape, y=shape, constants=[("two", two)])
    constants = [("two", np.array([2], np.float16)), ("both", np.array([0, 1]))]
    return save_onnx(directory / "model.onnx", half, x=shape, y=shape, constants=constants)
