"""An infer request's body to an `InferRequest`, and what is needed to render its answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from batching.core.errors import QueueFullError
from gateway.v2.body import Body
from gateway.v2.flat_json import parse_flat
from gateway.v2.inputs import InputReader, read_plain_inputs
from gateway.v2.members import JsonObject, as_object, is_unsigned, optional, required, unsigned, wrong_kind
from gateway.v2.parameters import read_parameters
from gateway.v2.shared_memory import RegionOutput, SharedMemory
from models.errors import InvalidRequestError, MalformedRequestError, UnknownTensorError
from models.inference import InferRequest
from models.spec import ModelSpec

_MAX_CLASSES = 2**32 - 1


@dataclass(frozen=True, slots=True)
class OutputForm:
    """How one output is to be rendered.

    Attributes:
        is_binary: Behind the JSON part rather than in it.
        classes: How many top classes to render instead of the values; 0 means the values.
        region: Where to put the values instead of sending them.
    """

    is_binary: bool
    classes: int = 0
    region: RegionOutput | None = None


JSON_FORM = OutputForm(is_binary=False)
BINARY_FORM = OutputForm(is_binary=True)


_NO_FORMS: Mapping[str, OutputForm] = MappingProxyType({})
_NO_OUTPUTS: tuple[str, ...] = ()


class Decoded(NamedTuple):
    """A request and how to render its answer: `forms` by output name, `default` for outputs that were not listed."""

    request: InferRequest
    default: OutputForm
    forms: Mapping[str, OutputForm] = _NO_FORMS


class _NamedQueueFullError(QueueFullError):
    """A full queue in Triton's words, which name the request instead of the limit."""

    def __init__(self, error: QueueFullError, beginning: str) -> None:
        super().__init__(limit=error.limit, unit=error.unit)
        self.args = (f"{beginning}Exceeds maximum queue size",)


def with_request_id(error: InvalidRequestError | QueueFullError, request_id: str) -> Exception:
    """The same error as Triton's core words it, beginning with the request's id.

    What is found before the core is asked has no id, nor has the name of a tensor that the model does not have.
    """
    if isinstance(error, MalformedRequestError | UnknownTensorError):
        return error
    beginning = f"[request id: {request_id or '<id_unknown>'}] "
    if isinstance(error, QueueFullError):
        return _NamedQueueFullError(error, beginning)
    return InvalidRequestError(f"{beginning}{error}")


def decode_json(
    spec: ModelSpec, version: int | None, body: Body, limit_bytes: int, memory: SharedMemory | None = None
) -> Decoded:
    """A request with a JSON part.

    Args:
        spec: The model of the path.
        version: Version of the path, if any.
        body: The request body; arrays of the result may be views on it.
        limit_bytes: Largest size of one JSON tensor once it is an array.
        memory: The shared memory that tensors may be in, or None when there is none.

    Raises:
        JsonAccessError: The JSON part is none, or a member is missing or of the wrong type.
        MalformedRequestError: Something else in it cannot be read.
        InvalidRequestError: Sizes do not fit each other.
        RequestTooLargeError: A tensor is over the limit.
        UnsupportedRequestError: The id of a sequence is too long.
        SharedMemoryError: A tensor is in shared memory that is not there.
    """
    data, json_start, json_end = body
    whole = json_start == 0 and json_end == len(data)
    top = parse_flat(data if whole else data[json_start:json_end])
    request_id = required(top, "id", str) if "id" in top else ""
    parameters = read_parameters(top["parameters"]) if "parameters" in top else None
    items = required(top, "inputs", list)
    try:
        inputs = read_plain_inputs(items, limit_bytes) if whole else None
        reader = None
        if inputs is None:
            reader = InputReader(spec, body, limit_bytes, memory)
            inputs = reader.read(items)
        forms, outputs = _NO_FORMS, _NO_OUTPUTS
        if "outputs" in top:
            forms = _read_outputs(required(top, "outputs", list), memory)
            outputs = tuple(forms)
        if reader is not None:
            reader.check(outputs)
    except InvalidRequestError as error:
        raise with_request_id(error, request_id) from None
    if parameters is None:
        return Decoded(InferRequest(spec.name, inputs, version, outputs, request_id), JSON_FORM, forms)
    # As Triton's code has it: the default counts only when no outputs are listed.
    default = BINARY_FORM if parameters.wants_binary else JSON_FORM
    request = InferRequest(spec.name, inputs, version, outputs, request_id, *parameters.of_request)
    return Decoded(request, default, forms)


def _read_outputs(items: list[object], memory: SharedMemory | None) -> dict[str, OutputForm]:
    forms: dict[str, OutputForm] = {}
    for value in items:
        item = as_object(value)
        name = required(item, "name", str)
        if name in forms:
            raise InvalidRequestError(f"output '{name}' already exists in request")
        parameters = as_object(item.get("parameters"))
        forms[name] = _read_form(parameters, memory) if parameters else JSON_FORM
    return forms


def _read_form(parameters: JsonObject, memory: SharedMemory | None) -> OutputForm:
    classes = parameters.get("classification", 0)
    if not is_unsigned(classes):
        raise wrong_kind("classification", "unsigned-integer", verb="set")
    is_binary = optional(parameters, "binary_data", bool, default=False)
    region = _read_region(parameters, memory, is_binary=is_binary)
    classes &= _MAX_CLASSES  # Triton keeps 32 bits of it
    if region is None and not classes:
        return BINARY_FORM if is_binary else JSON_FORM
    return OutputForm(is_binary, classes, region)


def _read_region(parameters: JsonObject, memory: SharedMemory | None, *, is_binary: bool) -> RegionOutput | None:
    offset = unsigned(parameters, "shared_memory_offset", 0)
    limit_bytes = unsigned(parameters, "shared_memory_byte_size", 0)
    if "shared_memory_region" not in parameters:
        return None
    if is_binary:
        raise MalformedRequestError("Output can't set both 'shared_memory_region' and 'binary_data'")
    if "classification" in parameters:
        raise MalformedRequestError("Output can't set both 'shared_memory_region' and 'classification'")
    region = required(parameters, "shared_memory_region", str)
    return (memory or SharedMemory(is_enabled=False)).output(region, offset, limit_bytes)
