"""The classification extension: the top classes of an output as strings ``value:index[:label]``."""

import numpy as np

from gateway.v2.tensors import datatype_name, object_array
from models.errors import MalformedRequestError
from models.inference import Array
from models.spec import ModelSpec

MAX_ELEMENTS = 1_000_000
_UNSUPPORTED = frozenset(("BOOL", "FP16", "BF16", "BYTES"))


def classify(name: str, scores: Array, classes: int, spec: ModelSpec) -> Array:
    """Replace an output by its top classes, best first.

    Args:
        name: Output name.
        scores: The output; with a batch dimension when the model has one. A row counts flattened.
        classes: How many per row at most, at least 1.
        spec: Says whether there is a batch dimension, and the labels.

    Returns:
        BYTES of shape (rows, n), or (n,) without batch dimension; n is the smaller of `classes` and the row's elements.

    Raises:
        MalformedRequestError: The type cannot be classified, or there are too many elements.
    """
    word = datatype_name(scores)
    if word in _UNSUPPORTED:
        raise MalformedRequestError(f"class result not available for output due to unsupported type '{word}'")
    if scores.size > MAX_ELEMENTS:
        raise MalformedRequestError("classification output tensor too large")
    rows = scores.shape[0] if spec.has_batch_dimension else 1
    row_elements = scores.size // rows if rows else 0
    count = min(classes, row_elements)
    labels = next((output.labels for output in spec.outputs if output.name == name), ())
    texts = [text for row in scores.reshape(rows, row_elements) for text in _top(row, count, labels)]
    return object_array(texts).reshape((rows, count) if spec.has_batch_dimension else (count,))


def _top(row: Array, count: int, labels: tuple[str, ...]) -> list[bytes]:
    # Ascending order of the reversed row, read backwards: descending, and of equals the lower index first.
    last = len(row) - 1
    order = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind == "f" else row  # NaN is last, as in Triton
    best = last - np.argsort(order[::-1], kind="stable")[::-1][:count]
    pattern = "{:.6f}:{}" if row.dtype.kind == "f" else "{}:{}"
    texts = []
    for index in best.tolist():
        text = pattern.format(row[index], index)
        label = labels[index] if index < len(labels) else ""
        texts.append((f"{text}:{label}" if label else text).encode())
    return texts
