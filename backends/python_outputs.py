"""What code of any form answers: arrays of the declared type and shape, or a sentence that says what is wrong."""

from typing import Any

import numpy as np

from backends.errors import ExecutionError, WrongRowsError
from models.inference import Array
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec


def checked_output(spec: ModelSpec, output: TensorSpec, found: object, rows: int) -> Array:
    """What the code has answered as one output, with the declared element type.

    Args:
        spec: The model version.
        output: One of its outputs.
        found: What should be an array of shape (rows, *item), or without the batch dimension.
        rows: How many are expected.

    Raises:
        ExecutionError: It is not what the configuration declares; WrongRowsError for another number of rows.
    """
    if not isinstance(found, np.ndarray):
        raise ExecutionError(f"output '{output.name}' is {kind_of(found)}, expected a numpy array")
    array = _converted(output, found)
    if not spec.has_batch_dimension:
        row_shape = array.shape
    elif array.ndim and array.shape[0] == rows:
        row_shape = array.shape[1:]
    else:
        found_rows = array.shape[0] if array.ndim else 0
        raise WrongRowsError(output=output.name, expected_rows=rows, found_rows=found_rows)
    if not output.accepts(row_shape):
        of = "rows of shape" if spec.has_batch_dimension else "the shape"
        raise ExecutionError(f"output '{output.name}' has {of} {list(row_shape)}, declared {list(output.dims)}")
    return array


def _converted(output: TensorSpec, array: Array) -> Array:
    """The array with the declared element type; only conversions that lose nothing."""
    if output.data_type is DataType.BYTES:
        return _bytes(output, array)
    wanted = output.data_type.numpy
    if array.dtype == wanted:
        return array
    if array.dtype == np.object_ or not np.can_cast(array.dtype, wanted, "safe"):
        expected = f"{wanted} ({output.data_type.config_name}); convert it with .astype"
        raise ExecutionError(f"output '{output.name}' has elements of type {array.dtype}, expected {expected}")
    return array.astype(wanted)


def _bytes(output: TensorSpec, array: Array) -> Array:
    """An object array of ``bytes``; ``str`` is encoded as UTF-8."""
    elements: list[Any] = array.ravel().tolist()
    if all(type(element) is bytes for element in elements) and array.dtype == np.object_:
        return array
    encoded = np.empty(len(elements), np.object_)
    for index, element in enumerate(elements):
        if not isinstance(element, bytes | str):
            expected = "bytes, or str, of TYPE_STRING"
            raise ExecutionError(f"output '{output.name}' has an element {kind_of(element)}, expected {expected}")
        encoded[index] = _encoded(output, element)
    return encoded.reshape(array.shape)


def _encoded(output: TensorSpec, element: bytes | str) -> bytes:
    if not isinstance(element, str):
        return bytes(element)
    try:
        return element.encode()
    except UnicodeEncodeError as error:
        found = f"the half character {element[error.start]!a} at its position {error.start}"
        raise ExecutionError(f"output '{output.name}' has a str with {found}, expected text that is UTF-8") from None


def kind_of(value: object) -> str:
    """The type of a value as a message says it."""
    return "None" if value is None else f"of type {type(value).__name__}"
