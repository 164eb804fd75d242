"""The inputs of one `ModelInferRequest`: raw, in typed lists, or in shared memory."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from gateway.grpc_v2.contents import read_contents
from gateway.grpc_v2.parameters import Message, RegionParameters, read_region
from gateway.v2 import tensors
from gateway.v2.shared_memory import RegionReader, SharedMemory
from gateway.validation import Shaped, validate
from models.errors import IncompleteStringError, InvalidRequestError, MalformedRequestError
from models.inference import Array
from models.spec import ModelSpec


def read_plain_inputs(message: Message) -> dict[str, Array] | None:
    """All inputs, if each is raw, of fixed size, fits its shape and has no parameters; else None.

    A short cut for well-formed requests. What it does not take, `InputReader` takes or refuses with a reason.
    """
    raw = message.raw_input_contents
    items = message.inputs
    if len(raw) != len(items):
        return None
    inputs: dict[str, Array] = {}
    for item, data in zip(items, raw, strict=True):
        wire = tensors.WIRES.get(item.datatype)
        if wire is None or wire.element_bytes is None or len(item.shape) > tensors.MAX_DIMS or item.parameters:
            return None
        shape = tuple(item.shape)
        fits = data and prod(shape) * wire.element_bytes == len(data) and min(shape, default=1) > 0
        if not fits or item.HasField("contents"):
            return None
        inputs[item.name] = np.ndarray(shape, wire.dtype, data)
    return inputs if len(inputs) == len(items) else None


class _Invalid:
    """The type of an input with a word that is no type: unlike all types."""

    @override
    def __str__(self) -> str:
        return "<invalid>"


class _Claim(NamedTuple):
    """What an input says of itself, without the data that would have to fit."""

    dtype: Any
    shape: tuple[int, ...]


class InputReader:
    """Reads the inputs of one request that is not plain.

    Triton finds data of the wrong size only after it has compared types and shapes with the model's. So such a
    mistake is kept until everything is read, and told if nothing else is wrong.

    Raises:
        InvalidRequestError: Two inputs have the same name.
    """

    def __init__(self, spec: ModelSpec, message: Message, memory: SharedMemory) -> None:
        self._spec = spec
        self._items = message.inputs
        self._raw = message.raw_input_contents
        self._used = 0  # raw contents so far
        self._memory = memory
        self._regions: RegionReader | None = None
        self._misfit: InvalidRequestError | None = None
        self._claims: dict[str, Shaped] = {}
        for item in self._items:
            if item.name in self._claims:
                raise InvalidRequestError(f"input '{item.name}' already exists in request")
            wire = tensors.WIRES.get(item.datatype)
            self._claims[item.name] = _Claim(wire.dtype if wire is not None else _Invalid(), _shape(item))

    def read(self) -> Mapping[str, Array]:
        """All inputs by name, but for those of the wrong size, of which `check` tells.

        Raises:
            InvalidRequestError: One has no data, or data that do not fit.
            SharedMemoryError: One is in shared memory that is not there.
            RequestTooLargeError: They read too much of it.
        """
        inputs: dict[str, Array] = {}
        for item in self._items:
            data = self._find_data(item)
            try:
                inputs[item.name] = self._read_tensor(item, data)
            except InvalidRequestError as error:
                if isinstance(error, MalformedRequestError) and not isinstance(error, IncompleteStringError):
                    raise
                self._misfit = error  # of several the last, which Triton looks at first
        return inputs

    def check(self, outputs: tuple[str, ...]) -> None:
        """Raise InvalidRequestError if the data of an input did not fit its shape; but first what is told before."""
        if self._misfit is not None:
            validate(self._spec, self._claims, outputs)
            raise self._misfit

    def _find_data(self, item: Message) -> bytes | Array:
        """The input's bytes, or an array of its typed list."""
        region = read_region(item.name, item.parameters) if item.parameters else None
        has_contents = item.HasField("contents")
        if region is not None:
            return self._read_region(item, region, has_contents=has_contents)
        if has_contents and self._raw:
            raise MalformedRequestError(
                f"contents field must not be specified when using raw_input_contents for '{item.name}' for model "
                f"'{self._spec.name}'"
            )
        if has_contents:
            return read_contents(item, self._spec.name)
        if self._used >= len(self._raw):
            raise MalformedRequestError(
                f"unable to find data for input tensor '{item.name}' for model '{self._spec.name}' in request."
            )
        self._used += 1
        data: bytes = self._raw[self._used - 1]
        return data

    def _read_region(self, item: Message, region: RegionParameters, *, has_contents: bool) -> bytes:
        if has_contents:
            raise MalformedRequestError(
                f"unexpected 'content' provided when using shared memory for input tensor '{item.name}' for model "
                f"'{self._spec.name}'"
            )
        if self._regions is None:
            self._regions = self._memory.reader()
        return self._regions.read(region.name, region.offset, region.size_bytes)

    def _read_tensor(self, item: Message, data: bytes | Array) -> Array:
        name, model, shape = item.name, self._spec.name, _shape(item)
        wire = tensors.WIRES.get(item.datatype)
        if wire is None:
            raise InvalidRequestError(f"input '{name}' has no data type")  # `validate` says it in Triton's words
        element_bytes = wire.element_bytes
        found_bytes = len(data) if isinstance(data, bytes) else data.nbytes
        if any(dim < 0 for dim in shape):
            raise tensors.wrong_size(name, model, prod(shape) * (element_bytes or 1), found_bytes)
        count = tensors.check_shape(name, wire, shape)
        if element_bytes is None:
            return _strings(name, model, data, count).reshape(shape)
        if found_bytes != count * element_bytes:
            raise tensors.wrong_size(name, model, count * element_bytes, found_bytes)
        return tensors.from_bytes(data, 0, count, wire, shape) if isinstance(data, bytes) else data.reshape(shape)


def _shape(item: Message) -> tuple[int, ...]:
    """The shape; of one that is too long what is enough to refuse it."""
    return tuple(item.shape[: tensors.MAX_DIMS + 1])


def _strings(name: str, model: str, data: bytes | Array, count: int) -> Array:
    if not isinstance(data, bytes):
        if data.size == count:
            return data
        data = bytes(tensors.to_bytes(data))  # to be refused below, as if it had come like that
    return tensors.object_array(tensors.parse_strings(name, memoryview(data), count, model))
