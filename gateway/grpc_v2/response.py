"""An `InferResponse` to the bytes of the answer. Pure.

Tensors are not put into a message, which would copy them twice: a message is its fields one after the other, so what
comes before them is written by protobuf, and they are joined to it.
"""

from collections.abc import Mapping
from functools import lru_cache

from tritonclient.grpc import service_pb2

from gateway.grpc_v2.parameters import Message
from gateway.grpc_v2.wire import varint
from gateway.v2 import tensors
from gateway.v2.classification import classify
from gateway.v2.request import BINARY_FORM, Decoded
from gateway.v2.shared_memory import INLINE_BYTES
from models.inference import InferResponse, Parameter
from models.spec import ModelSpec

_RAW_OUTPUT = b"\x32"  # field 6, bytes
_INFER_RESPONSE = b"\x12"  # field 2 of a ModelStreamInferResponse, a message
_FINAL: bytes = service_pb2.ModelInferResponse(
    parameters={"triton_final_response": service_pb2.InferParameter(bool_param=True)}
).SerializeToString()
_INT64 = range(-(2**63), 2**63)

_Outputs = tuple[tuple[str, str, tuple[int, ...]], ...]


def is_slow_to_render(decoded: Decoded, response: InferResponse, inline_elements: int) -> bool:
    """Whether rendering takes more than a fraction of a millisecond: much to copy or to look at one by one."""
    elements = 0
    for name, array in response.outputs.items():
        if array.nbytes > INLINE_BYTES:
            return True
        if array.dtype.hasobject or (decoded.forms and decoded.forms.get(name, decoded.default).classes):
            elements += array.size
    return elements > inline_elements


def render(decoded: Decoded, response: InferResponse, spec: ModelSpec, *, is_final: bool = False) -> bytes:
    """A `ModelInferResponse`: all outputs raw, in order; nothing for one that is in shared memory.

    Args:
        decoded: The request.
        response: What the engine answered.
        spec: The version that answered, whose labels name the classes.
        is_final: Say that it is the last one of its request, as answers on a stream do.

    Raises:
        InvalidRequestError: An output cannot be had in the wanted form.
        SharedMemoryError: An output does not fit where it shall be put.
    """
    described: list[tuple[str, str, tuple[int, ...]]] = []
    parts: list[bytes | memoryview] = []
    for name, array in response.outputs.items():
        form = decoded.forms.get(name, decoded.default) if decoded.forms else BINARY_FORM
        if form.classes:
            array = classify(name, array, form.classes, spec)  # noqa: PLW2901 - the output is replaced
        data = tensors.to_bytes(array)
        if form.region is not None:
            form.region.write(data, name)
            data = b""
        described.append((name, tensors.datatype_name(array), array.shape))
        parts += (_RAW_OUTPUT, varint(len(data)), data)
    head = _head(response.model, response.version, tuple(described))
    return b"".join((head, _own_fields(response), _FINAL if is_final else b"", *parts))


def render_streamed(answer: bytes) -> bytes:
    """A `ModelStreamInferResponse` of a `ModelInferResponse`."""
    return b"".join((_INFER_RESPONSE, varint(len(answer)), answer))


def render_error(text: str, request_id: str, model: str = "") -> bytes:
    """The `ModelStreamInferResponse` for a request that failed.

    Args:
        text: Why.
        request_id: The request's id.
        model: The request's model if it was the model that failed; then the answer is final.
    """
    answer: Message = service_pb2.ModelStreamInferResponse(error_message=text)
    answer.infer_response.id = request_id
    if model:
        answer.infer_response.model_name = model
        answer.infer_response.parameters["triton_final_response"].bool_param = True
    return bytes(answer.SerializeToString())


@lru_cache(1024)  # a server gives answers of the same few shapes again and again
def _head(model: str, version: int, outputs: _Outputs) -> bytes:
    message: Message = service_pb2.ModelInferResponse(model_name=model, model_version=str(version))
    for name, word, shape in outputs:
        message.outputs.add(name=name, datatype=word, shape=shape)
    return bytes(message.SerializeToString())


def _own_fields(response: InferResponse) -> bytes:
    """The fields that are different in each answer, or mostly not there."""
    if not response.request_id and not response.parameters:
        return b""
    message: Message = service_pb2.ModelInferResponse(id=response.request_id)
    _set_parameters(message.parameters, response.parameters)
    return bytes(message.SerializeToString())


def _set_parameters(target: Message, parameters: Mapping[str, Parameter]) -> None:
    for key, value in parameters.items():
        match value:
            case bool():
                target[key].bool_param = value
            case int() if value in _INT64:
                target[key].int64_param = value
            case str():
                target[key].string_param = value
            case _:
                target[key].double_param = float(value)
