"""The `inputs` of one infer request, from JSON, from the body behind it, or from shared memory."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gateway.v2 import json_tensors, tensors
from gateway.v2.body import Body
from gateway.v2.flat_json import FlatArray
from gateway.v2.members import JsonObject, as_object, is_unsigned, required, unsigned, wrong_kind
from gateway.v2.shared_memory import RegionReader, SharedMemory
from gateway.v2.tensors import Wire
from gateway.validation import Shaped, validate
from models.errors import IncompleteStringError, InvalidRequestError, MalformedRequestError
from models.inference import Array
from models.spec import ModelSpec

_SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
_NO_DTYPE = np.dtype("V1")  # of a data type that there is not: no model has it


def read_plain_inputs(items: list[object], limit_bytes: int) -> dict[str, Array] | None:
    """All inputs if each of them is plain and has a name of its own; None sends the request to the careful reader."""
    inputs: dict[str, Array] = {}
    for item in items:
        plain = json_tensors.read_plain_input(item, limit_bytes)
        if plain is None:
            return None
        inputs[plain[0]] = plain[1]
    return inputs if len(inputs) == len(items) else None


class _Claim(NamedTuple):
    """What an input says of itself, without the data that would have to fit."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class InputReader:
    """Reads the `inputs` of one request; binary tensors are taken from the body one after the other.

    Triton finds data of the wrong size only after it has compared types and shapes with the model's. So such a
    mistake is kept until everything is read, and told if nothing else is wrong.
    """

    def __init__(self, spec: ModelSpec, body: Body, limit_bytes: int, memory: SharedMemory | None) -> None:
        self._spec = spec
        self._data = body.data
        self._position = body.tensors_start  # invariant: never beyond the end of the data
        self._limit_bytes = limit_bytes
        self._memory = memory
        self._regions: RegionReader | None = None
        self._misfit: Callable[[], InvalidRequestError] | None = None
        self._claims: dict[str, Shaped] = {}
        self._inputs: dict[str, Array] = {}

    def read(self, items: list[object]) -> dict[str, Array]:
        """All inputs by name, but for those of the wrong size, of which `check` tells. Raises as `decode_json` does."""
        for value in items:
            self._read_input(as_object(value))
        if self._position != len(self._data):
            raise MalformedRequestError(f"unexpected additional input data for model '{self._spec.name}'")
        return self._inputs

    def check(self, outputs: tuple[str, ...]) -> None:
        """Raise InvalidRequestError if the data of an input did not fit its shape; but first what is told before."""
        if self._misfit is not None:
            validate(self._spec, self._claims, outputs)
            raise self._misfit()

    def _read_input(self, item: JsonObject) -> None:
        parameters = as_object(item.get("parameters"))
        _check_source(item, parameters)
        name = required(item, "name", str)
        wire = tensors.WIRES.get(required(item, "datatype", str))
        shape = _read_shape(required(item, "shape", list))
        if name in self._claims:
            raise InvalidRequestError(f"input '{name}' already exists in request")
        self._claims[name] = _Claim(_NO_DTYPE if wire is None else wire.dtype, shape)
        try:
            self._inputs[name] = self._read_tensor(name, wire, shape, item, parameters)
        except InvalidRequestError as error:
            if isinstance(error, MalformedRequestError) and not isinstance(error, IncompleteStringError):
                raise
            # Of several the last, which Triton looks at first. Not the error itself: its traceback leads back to here,
            # and so the body would stay until the garbage collector runs.
            self._misfit = partial(type(error), str(error))

    def _read_tensor(
        self, name: str, wire: Wire | None, shape: tuple[int, ...], item: JsonObject, parameters: JsonObject
    ) -> Array:
        if "data" in item:
            return self._from_json(name, wire, shape, item["data"])
        if "binary_data_size" in parameters:
            data, (start, end) = self._data, self._take(name, unsigned(parameters, "binary_data_size", 0))
        else:
            data = self._read_region(parameters)
            start, end = 0, len(data)
        return self._from_bytes(name, wire, shape, data, (start, end))

    def _from_json(self, name: str, wire: Wire | None, shape: tuple[int, ...], data: object) -> Array:
        if wire is not None:
            count = tensors.check_shape(name, wire, shape)
            return json_tensors.from_json(name, wire, shape, count, data, self._limit_bytes, self._spec.name)
        if isinstance(data, list | FlatArray):
            raise MalformedRequestError(f"invalid datatype for input {name}")
        raise wrong_kind("data", "array")

    def _take(self, name: str, size_bytes: int) -> tuple[int, int]:
        """Start and end of the next tensor in the body."""
        start, left_bytes = self._position, len(self._data) - self._position
        if size_bytes > left_bytes:
            raise MalformedRequestError(
                f"unexpected size for input '{name}', expecting {size_bytes - left_bytes} additional bytes for model "
                f"'{self._spec.name}'"
            )
        self._position += size_bytes
        return start, self._position

    def _read_region(self, parameters: JsonObject) -> bytes:
        region = required(parameters, "shared_memory_region", str)
        offset = unsigned(parameters, "shared_memory_offset", 0)
        size_bytes = unsigned(parameters, "shared_memory_byte_size", 0)
        if self._regions is None:
            self._regions = (self._memory or SharedMemory(is_enabled=False)).reader()
        return self._regions.read(region, offset, size_bytes)

    def _from_bytes(
        self, name: str, wire: Wire | None, shape: tuple[int, ...], data: bytes, place: tuple[int, int]
    ) -> Array:
        if wire is None:
            raise InvalidRequestError(f"invalid datatype for input {name}")
        start, end = place
        count = tensors.check_shape(name, wire, shape)
        if wire.element_bytes is None:
            elements = tensors.parse_strings(name, memoryview(data)[start:end], count, self._spec.name)
            return tensors.shaped(tensors.object_array(elements), shape)
        if count * wire.element_bytes != end - start:
            raise tensors.wrong_size(name, self._spec.name, count * wire.element_bytes, end - start)
        return tensors.from_bytes(data, start, count, wire, shape)


def _check_source(item: JsonObject, parameters: JsonObject) -> None:
    if "data" in item and not parameters:
        return
    found = ["'data'"] if "data" in item else []
    found += [f"'{key}'" for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if len(found) != 1:
        raise MalformedRequestError(f"{_SOURCES}{'set ' + ' '.join(found) if found else 'no field is set'}")


def _read_shape(dims: list[object]) -> tuple[int, ...]:
    for dim in dims:
        if not is_unsigned(dim):
            raise wrong_kind("shape", "unsigned-integer")
    return tuple(dims)  # type: ignore[arg-type] # the loop has looked at each
