"""A `ModelInferRequest` to an `InferRequest`, and what is needed to render its answer. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.grpc_v2.inputs import InputReader
from gateway.grpc_v2.parameters import Message, read_parameters, read_region
from gateway.v2.request import BINARY_FORM, Decoded, OutputForm, with_request_id
from gateway.v2.shared_memory import SharedMemory
from models.errors import InvalidRequestError, MalformedRequestError
from models.inference import Array, InferRequest, Parameter
from models.spec import ModelSpec

_MAX_CLASSES = 2**32 - 1
_NO_FORMS: Mapping[str, OutputForm] = {}


def decode(
    spec: ModelSpec,
    version: int | None,
    message: Message,
    plain: Mapping[str, Array] | None,
    memory: SharedMemory,
    forwarded: Mapping[str, Parameter] | None = None,
) -> Decoded:
    """A request as the engine takes it.

    Args:
        spec: The version that is asked for.
        version: Its number, if the request names one.
        message: The `ModelInferRequest`.
        plain: Its inputs, if `read_plain_inputs` could read them.
        memory: The shared memory that tensors may be in.
        forwarded: Parameters that came as metadata of the call.

    Raises:
        InvalidRequestError: Something in it does not fit.
        UnsupportedRequestError: The id of a sequence is too long.
        SharedMemoryError: A tensor is in shared memory that is not there.
        RequestTooLargeError: It reads too much from shared memory.
    """
    request_id: str = message.id
    of_request: tuple[Any, ...] = read_parameters(message.parameters) if message.parameters else ()
    try:
        reader = InputReader(spec, message, memory) if plain is None else None
        inputs = reader.read() if reader is not None else plain or {}
        forms = _read_outputs(message.outputs, memory) if message.outputs else _NO_FORMS
        outputs = tuple(forms)
        if reader is not None:
            reader.check(outputs)
    except InvalidRequestError as error:
        raise with_request_id(error, request_id) from None
    request = InferRequest(spec.name, inputs, version, outputs, request_id, *of_request)
    if forwarded:
        request = request._replace(parameters={**request.parameters, **forwarded})
    return Decoded(request, BINARY_FORM, forms)


def _read_outputs(items: Iterable[Message], memory: SharedMemory) -> dict[str, OutputForm]:
    forms: dict[str, OutputForm] = {}
    for item in items:
        name: str = item.name
        if name in forms:
            raise InvalidRequestError(f"output '{name}' already exists in request")
        forms[name] = _read_form(name, item.parameters, memory) if item.parameters else BINARY_FORM
    return forms


def _read_form(name: str, parameters: Mapping[str, Message], memory: SharedMemory) -> OutputForm:
    region = read_region(name, parameters)
    has_classes = "classification" in parameters
    classes = _read_classes(parameters["classification"]) if has_classes else 0
    if region is None:
        return OutputForm(is_binary=True, classes=classes) if classes else BINARY_FORM
    if has_classes:
        raise MalformedRequestError("output can't set both 'shared_memory_region' and 'classification'")
    return OutputForm(is_binary=True, region=memory.output(region.name, region.offset, region.size_bytes))


def _read_classes(parameter: Message) -> int:
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise MalformedRequestError("invalid value type for 'classification' parameter, expected int64_param")
    classes: int = parameter.int64_param
    if classes <= 0:
        raise MalformedRequestError("invalid value for 'classification' parameter, expected >= 0")
    return min(classes, _MAX_CLASSES)
