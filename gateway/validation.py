"""Does a request fit its model? Pure; the texts and the order of the checks are Triton's, which clients compare."""

from collections.abc import Iterable, Mapping, Sequence

from models.errors import InvalidRequestError
from models.inference import Array, Tensors
from models.spec import ModelSpec, Oversize
from models.tensors import DataType, TensorSpec

_BATCH_NOTE = (
    " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


def validate(spec: ModelSpec, inputs: Tensors, outputs: Sequence[str]) -> int:
    """Check names, count, batch dimension, batch size, data types and shapes.

    Args:
        spec: The model version that is to run the request.
        inputs: Tensors by name, batch dimension included when the model has one.
        outputs: Names of the wanted outputs; empty means all.

    Returns:
        Rows of the request, at least 1; 1 for models without batch dimension.

    Raises:
        InvalidRequestError: The first thing that does not fit.
    """
    if outputs:
        _check_outputs(spec, outputs)
    rows = _plain_rows(spec, inputs)
    return _careful_rows(spec, inputs) if rows is None else rows


def _plain_rows(spec: ModelSpec, inputs: Tensors) -> int | None:
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
        if rows not in (None, array.shape[0]):
            return None
        rows = array.shape[0]
    return rows if rows is not None and 0 < rows <= spec.max_batch_rows else None


def _careful_rows(spec: ModelSpec, inputs: Tensors) -> int:
    """Rows of any request that fits; raises for one that does not."""
    _check_input_count(spec, inputs)
    rows = _common_rows(spec, inputs) if spec.has_batch_dimension else 1
    declared = {tensor.name: tensor for tensor in spec.inputs}
    for name, array in inputs.items():
        if name not in declared:
            raise InvalidRequestError(f"unexpected inference input '{name}' for model '{spec.name}'")
        _check_data_type(spec, declared[name], array)
        _check_shape(spec, declared[name], array.shape)
    return rows


def _check_outputs(spec: ModelSpec, outputs: Sequence[str]) -> None:
    known = {tensor.name for tensor in spec.outputs}
    for name in outputs:
        if name not in known:
            raise InvalidRequestError(f"unexpected inference output '{name}' for model '{spec.name}'")


def _check_input_count(spec: ModelSpec, inputs: Mapping[str, object]) -> None:
    required = [tensor.name for tensor in spec.inputs if not tensor.optional]
    most, fewest, found = len(spec.inputs), len(required), len(inputs)
    missing = [name for name in required if name not in inputs]
    # With optional inputs the count can be right although a required input is missing. Without them, a wrong name is
    # reported as such further down.
    if fewest <= found <= most and not (missing and fewest < most):
        return
    expected = (
        f"expected {most} inputs" if fewest == most else (f"expected number of inputs between {fewest} and {most}")
    )
    unit = " inputs" if fewest == most else ""
    raise InvalidRequestError(
        f"{expected} but got {found}{unit} for model '{spec.name}'. Got input(s) {_quoted(inputs)}, but missing "
        f"required input(s) {_quoted(missing)}. Please provide all required input(s)."
    )


def _common_rows(spec: ModelSpec, inputs: Tensors) -> int:
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
    # Only a model whose inputs are all optional gets here without any; it then runs one row.
    rows = 1 if rows is None else rows
    too_many = rows > spec.max_batch_rows and spec.batching.oversize is Oversize.REFUSE
    if rows < 1 or too_many:
        limit = f"<= {spec.max_batch_rows}" if too_many else ">= 1"
        raise InvalidRequestError(f"inference request batch-size must be {limit} for '{spec.name}', found {rows}")
    return rows


def _check_data_type(spec: ModelSpec, declared: TensorSpec, array: Array) -> None:
    if array.dtype == declared.data_type.numpy:
        return
    try:
        found = DataType.from_numpy(array.dtype).value
    except KeyError:
        found = str(array.dtype)
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
        f"{_dims(shape)}.{_BATCH_NOTE if batched else ''}"
    )


def _quoted(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _dims(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
