"""What Triton's own clients are tried on: a repository with a model of each kind that they know something about."""

from pathlib import Path

import ml_dtypes
import numpy as np

DATATYPES: dict[str, list[object]] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [1, 65_535],
    "UINT32": [2, 2**32 - 1],
    "UINT64": [3, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-32_768, 5],
    "INT32": [-(2**31), 6],
    "INT64": [-(2**63), 2**63 - 1],
    "FP16": [0.5, -65_504.0],
    "BF16": [1.5, -3e38],
    "FP32": [0.1, -1e-38],
    "FP64": [0.1, 1e300],
    "BYTES": [b"", "é".encode()],
}
"""By each element type of the protocol a row that it can hold, with its awkward values."""

BINARY_ONLY = ("FP16", "BF16")

_ECHO = """
backend: "fake"
max_batch_size: {max_batch_size}
input [ {{ name: "x" data_type: {data_type} dims: [ {elements} ] }} ]
output [ {{ name: "y" data_type: {data_type} dims: [ {elements} ] {more} }} ]
parameters {{ key: "service_base_us" value: {{ string_value: "{base_us}" }} }}
"""
_SHOWS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        if x.any():
            error = pb_utils.TritonError("no such colour", pb_utils.TritonError.NOT_FOUND)
            return pb_utils.InferenceResponse(error=error)
        shown = {
            "id": request.request_id(),
            "sequence": [request.correlation_id(), request.flags()],
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
        }
        tensor = pb_utils.Tensor("shown", np.array([[json.dumps(shown)]] * len(x), dtype=object))
        return pb_utils.InferenceResponse([tensor])
"""
_SHOWS_CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "shown" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
LABELS = ("cat", "dog", "cow")


def add_echo(
    root: Path,
    name: str,
    data_type: str,
    *,
    max_batch_size: int = 8,
    elements: int = 2,
    more: str = "",
    base_us: int = 0,
) -> Path:
    """A model whose `y` is its `x`, after a time."""
    directory = root / name
    (directory / "1").mkdir(parents=True)
    config = _ECHO.format(
        max_batch_size=max_batch_size, data_type=data_type, elements=elements, more=more, base_us=base_us
    )
    (directory / "config.pbtxt").write_text(config)
    return directory


def write_repository(root: Path) -> Path:
    """Models `echo_fp32` and so on, `single` without batch dimension, `labelled`, `shows`, `spare`, `wide` and `slow`.

    `shows` answers what the client has said of the request, as JSON, and an error where its input is not 0.
    """
    for word in DATATYPES:
        add_echo(root, f"echo_{word.lower()}", "TYPE_STRING" if word == "BYTES" else f"TYPE_{word}")
    add_echo(root, "single", "TYPE_FP32", max_batch_size=0)
    labelled = add_echo(root, "labelled", "TYPE_FP32", elements=3, more='label_filename: "labels.txt"')
    (labelled / "labels.txt").write_text("\n".join(LABELS))
    add_echo(root, "spare", "TYPE_FP32")
    add_echo(root, "wide", "TYPE_FP32", elements=300_000)
    add_echo(root, "slow", "TYPE_FP32", base_us=500_000)
    (root / "shows" / "1").mkdir(parents=True)
    (root / "shows" / "1" / "model.py").write_text(_SHOWS)
    (root / "shows" / "config.pbtxt").write_text(_SHOWS_CONFIG)
    return root


def row(word: str) -> np.ndarray:
    """The row of `DATATYPES`, with its batch dimension, as the clients want it."""
    kinds = {"BYTES": object, "BF16": ml_dtypes.bfloat16, "BOOL": bool, "FP16": "f2", "FP32": "f4", "FP64": "f8"}
    return np.array([DATATYPES[word]], kinds.get(word) or word.lower())
