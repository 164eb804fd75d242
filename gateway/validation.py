"""Does a request fit its model? Pure; the texts and the order of the checks are Triton's, which clients compare."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from models.errors import InvalidRequestError, UnknownTensorError
from models.spec import ModelSpec, Oversize
from models.tensors import DataType, TensorSpec, element_count

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class Shaped(Protocol):
    """What is checked of a tensor: an array, or one that is only claimed to be of this type and shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        ...


def validate(spec: ModelSpec, inputs: Mapping[str, Shaped], outputs: Sequence[str]) -> int:
    """Check names, count, batch dimension, batch size, data types and shapes.

    Args:
        spec: The model version that is to run the request.
        inputs: Mapping[str, Shaped] by name, batch dimension included when the model has one.
        outputs: Names of the wanted outputs; empty means all.

    Returns:
        Rows of the request, at least 1; 1 for models without batch dimension.

    Raises:
        UnknownTensorError: The model has no such input or output.
        InvalidRequestError: The first thing that does not fit.
    """
    if outputs:
        _check_outputs(spec, outputs)
    rows = _plain_rows(spec, inputs)
    return _careful_rows(spec, inputs) if rows is None else rows


def _plain_rows(spec: ModelSpec, inputs: Mapping[str, Shaped]) -> int | None:
    """Rows of a request that fits a model with fixed row shapes; None for everything else.

    A short cut for well-formed requests, which `_careful_rows` would take as well.
    """
    if len(inputs) != len(spec.inputs):
        return None
    rows = None
    for declared in spec.inputs:
        array = inputs.get(declared.name)
        if array is None or array.dtype != declared.data_type.numpy or array.shape[1:] != declared.dims:
            return None
        if not array.shape:
            return None
        if rows not in (None, array.shape[0]):
            return None
        rows = array.shape[0]
    return rows if rows is not None and 0 < rows <= spec.max_batch_rows else None


def _careful_rows(spec: ModelSpec, inputs: Mapping[str, Shaped]) -> int:
    """Rows of any request that fits; raises for one that does not."""
    # Triton walks a hash table, which for a few inputs means the last one first.
    inputs = dict(list(inputs.items())[::-1])
    _check_input_count(spec, inputs)
    declared = {tensor.name: tensor for tensor in spec.inputs}
    for name in inputs:
        if name not in declared:
            raise UnknownTensorError(f"unexpected inference input '{name}' for model '{spec.name}'")
    rows = _common_rows(spec, inputs) if spec.has_batch_dimension else 1
    for name, array in inputs.items():
        _check_data_type(spec, declared[name], array)
        _check_shape(spec, declared[name], array.shape)
    if rows < 1:
        raise _no_rows(spec, inputs)
    return rows


def _check_outputs(spec: ModelSpec, outputs: Sequence[str]) -> None:
    known = {tensor.name for tensor in spec.outputs}
    for name in sorted(outputs):  # Triton keeps them in a set
        if name not in known:
            raise UnknownTensorError(f"unexpected inference output '{name}' for model '{spec.name}'")


def _check_input_count(spec: ModelSpec, inputs: Mapping[str, object]) -> None:
    required = [tensor.name for tensor in spec.inputs if not tensor.optional]
    most, fewest, found = len(spec.inputs), len(required), len(inputs)
    missing = [name for name in required if name not in inputs]
    # With optional inputs the count can be right although a required input is missing. A wrong name is reported as
    # such further down.
    known = {tensor.name for tensor in spec.inputs}
    if fewest <= found <= most and (not missing or fewest == most or not known.issuperset(inputs)):
        return
    expected = f"{most} inputs" if fewest == most else f"number of inputs between {fewest} and {most}"
    raise InvalidRequestError(
        f"expected {expected} but got {found} inputs for model '{spec.name}'. Got input(s) {_quoted(inputs)}, but "
        f"missing required input(s) {_quoted(missing) if missing else ']'}. Please provide all required input(s)."
    )


def _common_rows(spec: ModelSpec, inputs: Mapping[str, Shaped]) -> int:
    rows: int | None = None
    for name, array in inputs.items():
        if not array.shape:
            raise InvalidRequestError(
                f"input '{name}' has no shape but model requires batch dimension for '{spec.name}'"
            )
        if rows is None:
            rows = array.shape[0]
        elif rows != array.shape[0]:
            raise InvalidRequestError(f"input '{name}' batch size does not match other inputs for '{spec.name}'")
    if rows is None:  # all inputs are optional, and none is there to tell
        raise InvalidRequestError("out of bounds index 0: request has 0 inputs")
    if rows > spec.max_batch_rows and spec.batching.oversize is Oversize.REFUSE:
        raise InvalidRequestError(f"inference request batch-size must be <= {spec.max_batch_rows} for '{spec.name}'")
    return rows


def _no_rows(spec: ModelSpec, inputs: Mapping[str, Shaped]) -> InvalidRequestError:
    """The error for a request of no rows. Triton takes it for one row whose bytes are missing."""
    for name, array in inputs.items():
        elements = element_count(array.shape[1:])
        if elements and array.dtype == np.object_:
            return InvalidRequestError(
                f"expected {elements} string elements for inference input '{name}' for model '{spec.name}', got 0"
            )
        if elements:
            return InvalidRequestError(
                f"input byte size mismatch for input '{name}' for model '{spec.name}'. Expected "
                f"{elements * array.dtype.itemsize}, got 0"
            )
    return InvalidRequestError(f"inference request batch-size must be >= 1 for '{spec.name}'")


def _check_data_type(spec: ModelSpec, declared: TensorSpec, array: Shaped) -> None:
    if array.dtype == declared.data_type.numpy:
        return
    try:
        found = DataType.from_numpy(array.dtype).value
    except KeyError:
        found = "<invalid>"
    raise InvalidRequestError(
        f"inference input '{declared.name}' data-type is '{found}', but model '{spec.name}' expects "
        f"'{declared.data_type.value}'"
    )


def _check_shape(spec: ModelSpec, declared: TensorSpec, shape: tuple[int, ...]) -> None:
    batched = spec.has_batch_dimension
    if declared.accepts(shape[1:] if batched else shape):
        return
    expected = (-1, *declared.dims) if batched else declared.dims
    raise InvalidRequestError(
        f"unexpected shape for input '{declared.name}' for model '{spec.name}'. Expected {_dims(expected)}, got "
        f"{_dims(shape)}. {_BATCH_NOTE if batched else ''}"
    )


def _quoted(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
