"""Tensor data on the v2 wire: little-endian bytes and length-prefixed strings to arrays and back, arrays to JSON."""

import struct
from itertools import chain
from typing import cast

import numpy as np

from gateway.v2.flat_json import FlatKind
from models.errors import IncompleteStringError, InvalidRequestError, MalformedRequestError
from models.inference import Array
from models.tensors import DataType, element_count

MAX_ELEMENT_BYTES = 2**63 - 1
MAX_DIMS = 32
"""numpy 1's limit; no known model comes near."""
_MANY = 64  # elements; fewer are written faster from a list
_LENGTH = struct.Struct("<I")


class Wire:
    """How one data type looks on the wire."""

    __slots__ = ("data_type", "dtype", "element_bytes", "flat_kind", "json_types", "json_word", "limits", "native")

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type
        self.dtype = data_type.numpy
        self.element_bytes = data_type.element_bytes
        self.json_types: frozenset[type[object]] = frozenset()
        self.json_word = ""
        self.native = ""  # the code of the C type that JSON numbers are read as
        self.flat_kind: FlatKind | None = None
        self.limits = (0, 0)  # of that type, if it is an integer
        if data_type is DataType.BYTES:
            self.json_types, self.json_word = frozenset((str,)), "string"
        elif data_type is DataType.BOOL:
            self.json_types, self.json_word = frozenset((bool,)), "boolean"
        elif data_type in (DataType.FP32, DataType.FP64):
            self.json_types, self.json_word = frozenset((int, float)), "double"
            self.native, self.flat_kind = self.dtype.char, "d"
        elif self.dtype.kind == "u":
            self.json_types, self.json_word = frozenset((int,)), "unsigned-integer"
            self.native, self.flat_kind, self.limits = "Q", "u", (0, 2**64 - 1)
        elif self.dtype.kind == "i":
            self.json_types, self.json_word = frozenset((int,)), "signed-integer"
            self.native, self.flat_kind, self.limits = "q", "i", (-(2**63), 2**63 - 1)


WIRES = {data_type.value: Wire(data_type) for data_type in DataType}
_NAMES = {data_type.numpy: data_type.value for data_type in DataType}


def datatype_name(array: Array) -> str:
    """The wire's word for the array's type. Raises KeyError for a type without one."""
    name: str = _NAMES[array.dtype]
    return name


def check_shape(name: str, wire: Wire, shape: tuple[int, ...]) -> int:
    """Element count of a shape; nothing is allocated. Raises MalformedRequestError for too many elements or bytes."""
    count = element_count(shape)
    if count > MAX_ELEMENT_BYTES:
        raise MalformedRequestError(
            f"shape of input '{name}' causes total element count to exceed maximum size of {MAX_ELEMENT_BYTES}"
        )
    if count * (wire.element_bytes or 8) > MAX_ELEMENT_BYTES:
        raise MalformedRequestError(f"byte size overflow for input '{name}'")
    return count


def shaped(values: Array, shape: tuple[int, ...]) -> Array:
    """The values in this shape, whose element count is theirs.

    Raises:
        InvalidRequestError: More dimensions, or larger ones beside a zero, than any model has.
    """
    try:
        if len(shape) <= MAX_DIMS:
            return values.reshape(shape)
    except (ValueError, OverflowError):
        pass  # other dimensions overflow beside a zero, too
    raise InvalidRequestError(f"no tensor can have the shape {list(shape)}")


def wrong_size(name: str, model: str, expected_bytes: int, found_bytes: int) -> InvalidRequestError:
    """The error for data that does not have the size that type and shape ask for."""
    return InvalidRequestError(
        f"input byte size mismatch for input '{name}' for model '{model}'. Expected {expected_bytes}, got {found_bytes}"
    )


def too_many_strings(name: str, model: str, count: int) -> InvalidRequestError:
    """The error for a BYTES tensor with more elements than its shape says."""
    # Triton stops counting at the first one that is too many.
    return InvalidRequestError(
        f"unexpected number of string elements {count + 1} for inference input '{name}' for model '{model}', "
        f"expecting {count}"
    )


def too_few_strings(name: str, model: str, count: int, found: int) -> InvalidRequestError:
    """The error for a BYTES tensor with fewer elements than its shape says."""
    return InvalidRequestError(
        f"expected {count} string elements for inference input '{name}' for model '{model}', got {found}"
    )


def object_array(elements: list[bytes]) -> Array:
    """A one-dimensional BYTES array."""
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def from_bytes(data: bytes, offset: int, count: int, wire: Wire, shape: tuple[int, ...]) -> Array:
    """A read-only view of `count` fixed-size elements of a body.

    The caller has checked that the bytes are there. Elements that start at an odd address are copied, because engines
    may use aligned loads; bodies are assembled so that this does not happen to the first tensor.

    Raises:
        InvalidRequestError: A shape that no tensor can have.
    """
    if not count:
        return shaped(np.empty(0, wire.dtype), shape)
    view = shaped(np.frombuffer(data, wire.dtype, count, offset), shape)
    return view if view.flags.aligned else view.copy()


def parse_strings(name: str, data: memoryview, count: int, model: str) -> list[bytes]:
    """Elements of a BYTES tensor: each is a 4-byte little-endian length and so many bytes.

    Raises:
        IncompleteStringError: The last element is incomplete.
        InvalidRequestError: Half a length, or there are not exactly `count` elements.
    """
    elements: list[bytes] = []
    offset, size_bytes = 0, len(data)
    while offset < size_bytes:
        if size_bytes - offset < _LENGTH.size:
            raise InvalidRequestError(
                f"incomplete string length indicator for inference input '{name}' for model '{model}', expecting "
                f"{_LENGTH.size} bytes but only {size_bytes - offset} bytes available. Please make sure the string "
                "length indicator is in one buffer."
            )
        if len(elements) == count:
            raise too_many_strings(name, model, count)
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if length > size_bytes - offset and len(elements) + 1 < count:
            raise too_few_strings(name, model, count, len(elements) + 1)
        if length > size_bytes - offset:
            # Triton's backend finds this one, not its core.
            raise IncompleteStringError(
                f"incomplete string data for inference input '{name}', expecting string of length {length} but only "
                f"{size_bytes - offset} bytes available"
            )
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    if len(elements) != count:
        raise too_few_strings(name, model, count, len(elements))
    return elements


def to_bytes(array: Array) -> memoryview | bytes:
    """Row-major little-endian bytes; a view where the array is contiguous."""
    if array.dtype == np.object_:
        elements = array.reshape(-1).tolist()
        return b"".join(chain.from_iterable((_LENGTH.pack(len(element)), element) for element in elements))
    return array.reshape(-1).view(np.uint8).data


def to_json(array: Array) -> list[object] | Array:
    """The elements in row-major order: a flat list, or if there are many an array that orjson writes alike.

    Bytes that are no UTF-8 become lone surrogates (PEP 383), floats those of twice the size.

    Raises:
        MalformedRequestError: The type has no JSON form (FP16, BF16).
    """
    word = datatype_name(array)
    if not WIRES[word].json_types:
        raise MalformedRequestError(
            f"sending {word} data via JSON is not supported. Please use the binary data format for output"
        )
    flat = array.reshape(-1)
    if word == "BYTES":
        return [cast("bytes", leaf).decode("utf-8", "surrogateescape") for leaf in flat.tolist()]
    if flat.size < _MANY:
        return flat.tolist()
    return np.ascontiguousarray(flat, np.float64 if flat.dtype.kind == "f" else None)
