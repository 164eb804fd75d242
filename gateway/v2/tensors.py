"""Tensor data on the v2 wire: JSON lists, raw little-endian bytes and length-prefixed strings, to arrays and back."""

import struct
from array import array as native_array
from collections.abc import Iterator
from itertools import chain
from math import prod
from typing import Any, cast

import numpy as np

from gateway.errors import RequestTooLargeError
from models.errors import InvalidRequestError, MalformedRequestError
from models.inference import Array
from models.tensors import DataType, element_count

MAX_ELEMENT_BYTES = 2**63 - 1
MAX_DIMS = 32
"""numpy 1's limit; no known model comes near."""
MAX_NESTING = 100
_LENGTH = struct.Struct("<I")

_INTEGER = "integer"
_JSON_KINDS: dict[type[object], str] = {
    str: "string", bool: "boolean", int: _INTEGER, float: "double", list: "array", dict: "object", type(None): "null",
}  # fmt: skip


def json_kind(value: object) -> str:
    """JSON's word for the type of a parsed value."""
    return _JSON_KINDS.get(type(value), type(value).__name__)


class Wire:
    """How one data type looks on the wire."""

    __slots__ = ("data_type", "dtype", "element_bytes", "json_types", "json_word")

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type
        self.dtype = data_type.numpy
        self.element_bytes = data_type.element_bytes
        self.json_types: frozenset[type[object]] = frozenset()
        self.json_word = _INTEGER
        if data_type is DataType.BYTES:
            self.json_types, self.json_word = frozenset((str,)), "string"
        elif data_type is DataType.BOOL:
            self.json_types, self.json_word = frozenset((bool,)), "boolean"
        elif data_type in (DataType.FP32, DataType.FP64):
            self.json_types, self.json_word = frozenset((int, float)), "double"
        elif data_type not in (DataType.FP16, DataType.BF16):
            self.json_types = frozenset((int,))


WIRES = {data_type.value: Wire(data_type) for data_type in DataType}
_NAMES = {data_type.numpy: data_type.value for data_type in DataType}


def datatype_name(array: Array) -> str:
    """The wire's word for the array's type. Raises KeyError for a type without one."""
    name: str = _NAMES[array.dtype]
    return name


def check_shape(name: str, wire: Wire, shape: tuple[int, ...], pointer: str) -> int:
    """Element count of a shape that numpy can hold; nothing is allocated.

    Raises:
        InvalidRequestError: Too many dimensions, elements or bytes.
    """
    if len(shape) > MAX_DIMS:
        raise InvalidRequestError(
            f"input '{name}' has {len(shape)} dimensions, expected at most {MAX_DIMS}", pointer=pointer
        )
    count = element_count(shape)
    if 0 < count * (wire.element_bytes or 8) <= MAX_ELEMENT_BYTES:
        return count
    # Zeros are left out because numpy overflows on the other dimensions of an empty array, too.
    widest = element_count(tuple(dim or 1 for dim in shape))
    if widest * (wire.element_bytes or 8) > MAX_ELEMENT_BYTES:
        raise InvalidRequestError(
            f"shape of input '{name}' causes total element count to exceed maximum size of {MAX_ELEMENT_BYTES} bytes",
            pointer=pointer,
        )
    return count


def read_plain_input(item: object, limit_bytes: int) -> tuple[str, Array] | None:
    """Name and array of the commonest input: flat numbers that fit, and no other member; None for everything else.

    A short cut for well-formed requests. What it does not take, the careful reader takes or refuses with a reason.
    """
    if type(item) is not dict or len(item) != 4:
        return None
    name, dims, word, data = item.get("name"), item.get("shape"), item.get("datatype"), item.get("data")
    if type(name) is not str or type(dims) is not list or type(data) is not list or type(word) is not str:
        return None
    wire = WIRES.get(word)
    if wire is None or wire.element_bytes is None or len(dims) > MAX_DIMS or not _are_positive(dims):
        return None
    fits = len(data) == prod(dims) and len(data) * wire.element_bytes <= limit_bytes
    if not fits or not wire.json_types.issuperset(map(type, data)):
        return None
    try:
        return name, _numbers(data, wire.dtype).reshape(dims)
    except OverflowError:
        return None


def _are_positive(dims: list[object]) -> bool:
    return all(type(dim) is int and dim > 0 for dim in dims)


def from_json(
    name: str, wire: Wire, shape: tuple[int, ...], count: int, data: list[object], pointer: str, limit_bytes: int
) -> Array:
    """An array from a JSON list: flat, nested to the shape, or anything between; only the leaf count has to match.

    Raises:
        MalformedRequestError: Wrong element type, count, or value out of range.
        RequestTooLargeError: The array would be larger than `limit_bytes`.
    """
    if not wire.json_types:
        word = wire.data_type.value
        raise MalformedRequestError(
            f"receiving {word} data via JSON is not supported. Please use the binary data format for input '{name}'",
            pointer=pointer,
        )
    leaves, kinds = _flatten(data, pointer)
    if len(leaves) != count:
        raise _wrong_count(len(leaves), count, pointer)
    if len(leaves) * (wire.element_bytes or 1) > limit_bytes:
        raise RequestTooLargeError(found=f"{len(leaves)} elements in input '{name}'", limit_bytes=limit_bytes)
    if not kinds <= wire.json_types:
        found = next(leaf for leaf in leaves if type(leaf) not in wire.json_types)
        raise MalformedRequestError(
            f"Unable to parse 'data': attempt to access JSON non-{wire.json_word} as {wire.json_word}, found "
            f"{json_kind(found)} in {wire.data_type.value} input '{name}'",
            pointer=pointer,
        )
    try:
        array = _strings(leaves) if wire.data_type is DataType.BYTES else _numbers(leaves, wire.dtype)
    except (OverflowError, UnicodeEncodeError) as error:
        raise MalformedRequestError(
            f"Unable to parse 'data': a value does not fit {wire.data_type.value} of input '{name}': {error}",
            pointer=pointer,
        ) from None
    return array.reshape(shape)


def _numbers(leaves: list[object], dtype: np.dtype[Any]) -> Array:
    if dtype == np.float32:
        # As in C, and without numpy's warning: a double that is too big for FP32 becomes infinite.
        return np.frombuffer(native_array("f", cast("list[float]", leaves)), np.float32)
    return np.array(leaves, dtype)


def _strings(leaves: list[object]) -> Array:
    return object_array([cast("str", leaf).encode() for leaf in leaves])


def object_array(elements: list[bytes]) -> Array:
    """A one-dimensional BYTES array."""
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def _flatten(data: list[object], pointer: str) -> tuple[list[object], set[type[object]]]:
    level = data
    for _ in range(MAX_NESTING):
        kinds = set(map(type, level))
        if list not in kinds:
            return level, kinds
        if len(kinds) > 1:
            # Numbers and lists side by side: level by level would pass over the numbers a hundred times.
            level = list(_leaves(level, pointer))
        else:
            level = list(chain.from_iterable(cast("list[list[object]]", level)))
    raise _too_deep(pointer)


def _leaves(data: list[object], pointer: str) -> Iterator[object]:
    stack = [iter(data)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, list):
                stack.append(iter(item))
                break
            yield item
        else:
            stack.pop()
        if len(stack) > MAX_NESTING:
            raise _too_deep(pointer)


def _too_deep(pointer: str) -> MalformedRequestError:
    return MalformedRequestError(f"'data' is nested too deeply, expected at most {MAX_NESTING} levels", pointer=pointer)


def _wrong_count(found: int, expected: int, pointer: str) -> MalformedRequestError:
    if found < expected:
        text = "Failed to parse 'data' field: shape does not match true shape"
    else:
        text = "Unable to parse 'data': Shape does not match true shape of 'data' field"
    return MalformedRequestError(f"{text}: found {found} elements, expected {expected}", pointer=pointer)


def from_bytes(data: bytes, offset: int, count: int, wire: Wire, shape: tuple[int, ...]) -> Array:
    """A read-only view of `count` fixed-size elements of a body.

    The caller has checked that the bytes are there. Elements that start at an odd address are copied, because engines
    may use aligned loads; bodies are assembled so that this does not happen to the first tensor.
    """
    if not count:
        return np.empty(shape, wire.dtype)
    view = np.frombuffer(data, wire.dtype, count, offset).reshape(shape)
    return view if view.flags.aligned else view.copy()


def parse_strings(name: str, data: memoryview, count: int) -> list[bytes]:
    """Elements of a BYTES tensor: each is a 4-byte little-endian length and so many bytes.

    Raises:
        InvalidRequestError: Lengths point outside the data, or there are not exactly `count` elements.
    """
    elements: list[bytes] = []
    offset, size_bytes = 0, len(data)
    while offset < size_bytes:
        if len(elements) == count:
            raise InvalidRequestError(
                f"unexpected number of string elements for inference input '{name}', expecting {count}, found more"
            )
        if size_bytes - offset < _LENGTH.size:
            raise InvalidRequestError(
                f"incomplete string length indicator for inference input '{name}', expecting {_LENGTH.size} bytes but "
                f"only {size_bytes - offset} bytes available"
            )
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if length > size_bytes - offset:
            raise InvalidRequestError(
                f"incomplete string data for inference input '{name}', expecting string of length {length} but only "
                f"{size_bytes - offset} bytes available"
            )
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    if len(elements) != count:
        raise InvalidRequestError(f"expected {count} string elements for inference input '{name}', got {len(elements)}")
    return elements


def to_bytes(array: Array) -> memoryview | bytes:
    """Row-major little-endian bytes; a view where the array is contiguous."""
    if array.dtype == np.object_:
        elements = array.reshape(-1).tolist()
        return b"".join(chain.from_iterable((_LENGTH.pack(len(element)), element) for element in elements))
    return array.reshape(-1).view(np.uint8).data


def to_json(name: str, array: Array) -> list[object]:
    """A flat row-major list.

    Raises:
        InvalidRequestError: The type has no JSON form (FP16, BF16), or a BYTES element is not UTF-8.
    """
    word = datatype_name(array)
    if not WIRES[word].json_types:
        raise InvalidRequestError(
            f"sending {word} data via JSON is not supported. Please use the binary data format for output '{name}'"
        )
    leaves: list[object] = array.reshape(-1).tolist()
    if word != "BYTES":
        return leaves
    try:
        return [cast("bytes", leaf).decode() for leaf in leaves]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"output '{name}' holds bytes that are not UTF-8 and cannot be sent via JSON ({error.reason}). "
            f"Please use the binary data format for it"
        ) from None
