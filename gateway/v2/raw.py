"""A request without JSON: the body is the only input of the model, its shape is deduced."""

from gateway.v2 import tensors
from gateway.v2.body import Body
from gateway.v2.request import BINARY_FORM, Decoded, with_request_id
from models.errors import InvalidRequestError
from models.inference import Array, InferRequest
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec, element_count


def decode_raw(version: int | None, body: Body, spec: ModelSpec) -> Decoded:
    """A request whose body is the only input of the model.

    Raises:
        InvalidRequestError: The model has several inputs, or the bytes do not make one row.
    """
    try:
        array = _read(spec, body)
    except InvalidRequestError as error:
        raise with_request_id(error, "") from None
    return Decoded(InferRequest(model=spec.name, version=version, inputs={spec.inputs[0].name: array}), BINARY_FORM)


def _read(spec: ModelSpec, body: Body) -> Array:
    if len(spec.inputs) != 1:
        raise InvalidRequestError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(spec.inputs)} inputs in "
            f"'{spec.name}' model configuration"
        )
    declared = spec.inputs[0]
    size_bytes = len(body.data) - body.tensors_start
    if declared.data_type is DataType.BYTES:
        if declared.dims != (1,):
            raise InvalidRequestError(
                f"For BYTE datatype raw input '{declared.name}', the model must have input shape [1]"
            )
        row = tensors.object_array([body.data[body.tensors_start :]])
    else:
        shape = _deduce_shape(spec.name, declared, size_bytes)
        wire = tensors.WIRES[declared.data_type.value]
        row = tensors.from_bytes(body.data, body.tensors_start, element_count(shape), wire, shape)
    return row.reshape(1, *row.shape) if spec.has_batch_dimension else row


def _deduce_shape(model: str, declared: TensorSpec, size_bytes: int) -> tuple[int, ...]:
    if declared.dims.count(-1) > 1:
        raise InvalidRequestError(
            f"The shape of the raw input '{declared.name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        )
    fixed_elements = element_count(tuple(dim for dim in declared.dims if dim != -1))
    fixed_bytes = declared.data_type.numpy.itemsize * fixed_elements
    variable = size_bytes // fixed_bytes if fixed_bytes else 0
    expected_bytes = fixed_bytes * (variable if -1 in declared.dims else 1)
    if expected_bytes != size_bytes:
        raise tensors.wrong_size("raw_input", model, expected_bytes, size_bytes)
    return tuple(variable if dim == -1 else dim for dim in declared.dims)
