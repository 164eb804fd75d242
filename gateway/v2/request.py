"""An infer request's body to an `InferRequest`, and what is needed to render its answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from gateway.v2 import tensors
from gateway.v2.body import Body
from gateway.v2.members import JsonObject, as_object, as_unsigned, optional, parse_json, required, unsigned, wrong_kind
from gateway.v2.tensors import Wire
from models.errors import InvalidRequestError, MalformedRequestError
from models.inference import Array, InferRequest, Parameter
from models.spec import ModelSpec
from models.tensors import DataType, element_count

_SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But found: "
)
_SERVED_PARAMETERS = frozenset((
    "binary_data_output", "priority", "timeout", "sequence_id", "sequence_start", "sequence_end", "headers",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class OutputForm:
    """How one output is to be rendered.

    Attributes:
        is_binary: Behind the JSON part rather than in it.
        classes: How many top classes to render instead of the values; 0 means the values.
    """

    is_binary: bool
    classes: int = 0


JSON_FORM = OutputForm(is_binary=False)
BINARY_FORM = OutputForm(is_binary=True)


_NO_FORMS: Mapping[str, OutputForm] = MappingProxyType({})


class Decoded(NamedTuple):
    """A request and how to render its answer: `forms` by output name, `default` for outputs that were not listed."""

    request: InferRequest
    default: OutputForm
    forms: Mapping[str, OutputForm] = _NO_FORMS


def with_request_id(error: InvalidRequestError, request_id: str) -> InvalidRequestError:
    """The same error as Triton's core words it, beginning with the request's id."""
    return InvalidRequestError(f"[request id: {request_id or '<id_unknown>'}] {error}")


def decode_raw(version: int | None, body: Body, spec: ModelSpec) -> Decoded:
    """A request without JSON: the body is the only input of the model, its shape is deduced.

    Raises:
        InvalidRequestError: The model has several inputs, or the bytes do not make one row.
    """
    try:
        array = _raw_array(spec, body)
    except InvalidRequestError as error:
        raise with_request_id(error, "") from None
    return Decoded(InferRequest(model=spec.name, version=version, inputs={spec.inputs[0].name: array}), BINARY_FORM)


def _raw_array(spec: ModelSpec, body: Body) -> Array:
    if len(spec.inputs) != 1:
        raise InvalidRequestError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(spec.inputs)} inputs in "
            f"'{spec.name}' model configuration"
        )
    declared = spec.inputs[0]
    if declared.data_type is DataType.BYTES:
        if declared.dims not in ((1,), (-1,)):
            raise InvalidRequestError(
                f"For BYTE datatype raw input '{declared.name}', the model must have input shape [1], found "
                f"{list(declared.dims)}"
            )
        row = tensors.object_array([body.data[body.tensors_start :]])
    else:
        size_bytes = len(body.data) - body.tensors_start
        shape = _deduce_shape(declared.name, declared.dims, declared.data_type.numpy.itemsize, size_bytes)
        wire = tensors.WIRES[declared.data_type.value]
        row = tensors.from_bytes(body.data, body.tensors_start, element_count(shape), wire, shape)
    return row.reshape(1, *row.shape) if spec.has_batch_dimension else row


def _deduce_shape(name: str, dims: tuple[int, ...], element_bytes: int, size_bytes: int) -> tuple[int, ...]:
    if dims.count(-1) > 1:
        raise InvalidRequestError(
            f"The shape of the raw input '{name}' can not be deduced because there are more than one variable-sized "
            f"dimension: {list(dims)}"
        )
    fixed_bytes = element_bytes * element_count(tuple(dim for dim in dims if dim != -1))
    variable, rest = divmod(size_bytes, fixed_bytes) if fixed_bytes else (0, size_bytes)
    if rest or (-1 not in dims and size_bytes != fixed_bytes):
        raise InvalidRequestError(
            f"The shape of the raw input '{name}' can not be deduced: found {size_bytes} bytes, expected "
            f"{'a multiple of ' if -1 in dims else ''}{fixed_bytes}"
        )
    return tuple(variable if dim == -1 else dim for dim in dims)


def decode_json(model: str, version: int | None, body: Body, limit_bytes: int) -> Decoded:
    """A request with a JSON part.

    Args:
        model: Model name of the path.
        version: Version of the path, if any.
        body: The request body; arrays of the result may be views on it.
        limit_bytes: Largest size of one JSON tensor once it is an array.

    Raises:
        MalformedRequestError: Something in it cannot be read.
        InvalidRequestError: Sizes do not fit each other.
        RequestTooLargeError: A tensor is over the limit.
    """
    whole = body.tensors_start == len(body.data) and body.json_start == 0
    top = parse_json(body.data if whole else memoryview(body.data)[body.json_start : body.tensors_start])
    request_id = optional(top, "id", str, "", "")
    parameters = optional(top, "parameters", dict, {}, "")
    priority, timeout_ns, custom = _read_parameters(parameters) if parameters else (0, None, {})
    items = required(top, "inputs", list, "")
    try:
        inputs = _read_plain_inputs(items, limit_bytes) if whole else None
        if inputs is None:
            inputs = InputReader(model, body, limit_bytes).read(items)
        forms = _read_outputs(required(top, "outputs", list, "")) if "outputs" in top else {}
    except MalformedRequestError:
        raise
    except InvalidRequestError as error:
        raise with_request_id(error, request_id) from None
    request = InferRequest(
        model=model,
        version=version,
        inputs=inputs,
        outputs=tuple(forms),
        request_id=request_id,
        priority=priority,
        timeout_ns=timeout_ns,
        parameters=custom,
    )
    wants_binary = bool(parameters) and optional(parameters, "binary_data_output", bool, False, "/parameters")
    # As Triton's code has it: the default counts only when no outputs are listed.
    return Decoded(request, BINARY_FORM if wants_binary else JSON_FORM, forms)


def _read_parameters(parameters: JsonObject) -> tuple[int, int | None, dict[str, Parameter]]:
    pointer = "/parameters"
    priority = unsigned(parameters, "priority", pointer) if "priority" in parameters else 0
    timeout_us = unsigned(parameters, "timeout", pointer) if "timeout" in parameters else 0
    custom: dict[str, Parameter] = {}
    for key, value in parameters.items():
        if key.startswith("triton_"):
            raise MalformedRequestError(
                f"parameter keys starting with 'triton_' are reserved for Triton usage, found '{key}'", pointer=pointer
            )
        if key in _SERVED_PARAMETERS:
            continue
        if not isinstance(value, str | int | float):
            raise MalformedRequestError(
                f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'.", pointer=pointer
            )
        custom[key] = value
    return priority, timeout_us * 1000 or None, custom


def _read_plain_inputs(items: list[object], limit_bytes: int) -> dict[str, Array] | None:
    """All inputs if each of them is plain and has a name of its own; None sends the request to the careful reader."""
    inputs: dict[str, Array] = {}
    for item in items:
        plain = tensors.read_plain_input(item, limit_bytes)
        if plain is None:
            return None
        inputs[plain[0]] = plain[1]
    return inputs if len(inputs) == len(items) else None


class InputReader:
    """Reads the `inputs` of one request; binary tensors are taken from the body one after the other."""

    def __init__(self, model: str, body: Body, limit_bytes: int) -> None:
        self._model = model
        self._data = body.data
        self._position = body.tensors_start  # invariant: never beyond the end of the data
        self._limit_bytes = limit_bytes

    def read(self, items: list[object]) -> dict[str, Array]:
        """All inputs by name. Raises as `decode_json` does."""
        inputs: dict[str, Array] = {}
        for index, value in enumerate(items):
            pointer = f"/inputs/{index}"
            item = as_object("inputs", value, pointer)
            name = required(item, "name", str, pointer)
            if name in inputs:
                raise InvalidRequestError(f"input '{name}' already exists in request", pointer=pointer)
            inputs[name] = self._read_input(name, item, pointer)
        if self._position != len(self._data):
            raise MalformedRequestError(
                f"unexpected additional input data for model '{self._model}': found "
                f"{len(self._data) - self._position} bytes after the last input"
            )
        return inputs

    def _read_input(self, name: str, item: JsonObject, pointer: str) -> Array:
        shape = _read_shape(required(item, "shape", list, pointer), pointer)
        word = required(item, "datatype", str, pointer)
        wire = tensors.WIRES.get(word)
        if wire is None:
            raise MalformedRequestError(
                f"invalid datatype for input {name}: found '{word[:32]}', expected one of {', '.join(tensors.WIRES)}",
                pointer=f"{pointer}/datatype",
            )
        count = tensors.check_shape(name, wire, shape, f"{pointer}/shape")
        size_bytes = _binary_size(name, item, pointer)
        if size_bytes is not None:
            return self._take(name, wire, shape, count, size_bytes)
        data = required(item, "data", list, pointer)
        return tensors.from_json(name, wire, shape, count, data, f"{pointer}/data", self._limit_bytes)

    def _take(self, name: str, wire: Wire, shape: tuple[int, ...], count: int, size_bytes: int) -> Array:
        start, end = self._position, self._position + size_bytes
        if end > len(self._data):
            raise MalformedRequestError(
                f"unexpected size for input '{name}', expecting {end - len(self._data)} additional bytes for model "
                f"'{self._model}'"
            )
        self._position = end
        if wire.element_bytes is None:
            elements = tensors.parse_strings(name, memoryview(self._data)[start:end], count)
            return tensors.object_array(elements).reshape(shape)
        if count * wire.element_bytes != size_bytes:
            raise InvalidRequestError(
                f"input byte size mismatch for input '{name}' for model '{self._model}'. Expected "
                f"{count * wire.element_bytes}, got {size_bytes}"
            )
        return tensors.from_bytes(self._data, start, count, wire, shape)


def _read_shape(dims: list[object], pointer: str) -> tuple[int, ...]:
    for index, dim in enumerate(dims):
        if type(dim) is not int or dim < 0:
            raise wrong_kind("shape", dim, "unsigned-integer", f"{pointer}/shape/{index}")
    return tuple(dims)  # type: ignore[arg-type] # the loop has looked at each


def _binary_size(name: str, item: JsonObject, pointer: str) -> int | None:
    """Size of the input's binary data, or None when it comes as JSON."""
    if "data" in item and "parameters" not in item:
        return None
    parameters = optional(item, "parameters", dict, {}, pointer)
    found = [key for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if "data" in item:
        found.append("data")
    if len(found) != 1:
        raise MalformedRequestError(_SOURCES + (", ".join(found) or "none of them"), pointer=pointer)
    if "shared_memory_region" in parameters:
        _refuse_shared_memory(parameters, f"input '{name}'", pointer)
    if "binary_data_size" in parameters:
        return unsigned(parameters, "binary_data_size", f"{pointer}/parameters")
    return None


def _read_outputs(items: list[object]) -> dict[str, OutputForm]:
    forms: dict[str, OutputForm] = {}
    for index, value in enumerate(items):
        pointer = f"/outputs/{index}"
        item = as_object("outputs", value, pointer)
        name = required(item, "name", str, pointer)
        if name in forms:
            raise InvalidRequestError(f"output '{name}' already exists in request", pointer=pointer)
        parameters = optional(item, "parameters", dict, {}, pointer)
        forms[name] = _read_form(name, parameters, f"{pointer}/parameters") if parameters else JSON_FORM
    return forms


def _read_form(name: str, parameters: JsonObject, pointer: str) -> OutputForm:
    if "shared_memory_region" in parameters:
        _refuse_shared_memory(parameters, f"output '{name}'", pointer)
    is_binary = optional(parameters, "binary_data", bool, False, pointer)
    classes = as_unsigned("classification", parameters.get("classification", 0), f"{pointer}/classification")
    return OutputForm(is_binary, classes) if classes else (BINARY_FORM if is_binary else JSON_FORM)


def _refuse_shared_memory(parameters: JsonObject, where: str, pointer: str) -> None:
    region = required(parameters, "shared_memory_region", str, pointer)
    raise InvalidRequestError(
        f"Unable to find shared memory region: '{region[:64]}'. {where} names one, but this server offers no shared "
        "memory: send the data in the body",
        pointer=pointer,
    )
