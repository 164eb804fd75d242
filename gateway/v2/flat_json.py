"""Infer bodies with many numbers: parsed so that tensors are never lists of Python objects.

Such a body costs a third of the time here that it costs as Python objects. The tree is the one that
`gateway.v2.members.parse_json` gives, but for the arrays `data` of its inputs: they stay in the parser's own memory.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
from simdjson import Array as FlatArray
from simdjson import Object, Parser

from gateway.v2.members import MAX_NESTING, JsonObject, parse_json
from models.errors import MalformedRequestError
from models.inference import Array

FlatKind: TypeAlias = Literal["d", "i", "u"]

__all__ = ["FlatArray", "FlatKind", "leaves_of", "parse_flat", "to_array"]

_SMALL_BYTES = 768
_MAX_MEMBERS = 64  # of an object, or inputs; finding one of many takes as long as there are
_MAX_ELEMENTS = 100_000
_MAX_SLOW_VALUES = 2_000_000  # about 200 MB of Python objects
_CHUNK_BYTES = 256 << 10  # stays in a core's cache
_OPENING, _CLOSING = ord("["), ord("]")
_DTYPES: dict[FlatKind, type[np.generic]] = {"d": np.float64, "i": np.int64, "u": np.uint64}


class _UnusualError(Exception):
    """A body that is to be parsed as Python objects."""


def parse_flat(text: bytes) -> JsonObject:
    """The top-level object of an infer body; `data` of an input may be a `FlatArray`.

    Raises:
        JsonAccessError: Not JSON.
        MalformedRequestError: Nested too deeply, or so many values that they would fill the memory.
    """
    if len(text) < _SMALL_BYTES:
        return parse_json(text)
    try:
        return _parse(text)
    except _UnusualError:
        _check_values(text)
        return parse_json(text)


def _check_values(text: bytes) -> None:
    values = text.count(b",") + text.count(b"[") + text.count(b"{") if len(text) > _MAX_SLOW_VALUES else 0
    if values > _MAX_SLOW_VALUES:
        raise MalformedRequestError(
            f"found {values} values in JSON that can only be read one by one, expected at most {_MAX_SLOW_VALUES}: "
            "use the binary data format"
        )


def _parse(text: bytes) -> JsonObject:
    if _may_be_deep(text):
        raise _UnusualError
    try:
        root = Parser().parse(text)
    except (ValueError, RuntimeError):  # the parser has no error class of its own
        raise _UnusualError from None  # the other parser says what is wrong
    top = _members(root, keep="inputs")
    inputs = top.get("inputs")
    if not isinstance(inputs, FlatArray):
        raise _UnusualError
    top["inputs"] = [_members(item, keep="data") for item in _elements(inputs, _MAX_MEMBERS)]
    return top


def _may_be_deep(text: bytes) -> bool:
    """Whether arrays may be nested deeper than allowed. Brackets in strings count as well."""
    codes = np.frombuffer(text, np.uint8)
    depth = 0
    for start in range(0, len(text), _CHUNK_BYTES):
        chunk = codes[start : start + _CHUNK_BYTES]
        opening, closing = np.flatnonzero(chunk == _OPENING), np.flatnonzero(chunk == _CLOSING)
        if depth + len(opening) > MAX_NESTING:
            depths = depth + 1 + np.arange(len(opening)) - np.searchsorted(closing, opening)
            if depths.max() > MAX_NESTING:
                return True
        depth += len(opening) - len(closing)
    return False


def _members(container: object, keep: str) -> JsonObject:
    """The members as Python objects, but for an array `keep`."""
    if not isinstance(container, Object):
        raise _UnusualError
    keys = list(islice(container.keys(), _MAX_MEMBERS + 1))
    members: JsonObject = {}
    for key in keys if len(keys) <= _MAX_MEMBERS else ():
        value = container[key]
        members[key] = value if key == keep and isinstance(value, FlatArray) else _plain(value)
    if len(members) != len(keys):  # too many, or the same key twice, of which parsers choose different ones
        raise _UnusualError
    return members


def _plain(value: object) -> object:
    # Not with the parser's own `as_list`: it writes beyond its list when there are more than 16,777,215 elements.
    if isinstance(value, FlatArray):
        return [_plain(element) for element in _elements(value, _MAX_ELEMENTS)]
    return _members(value, keep="") if isinstance(value, Object) else value


def _elements(array: FlatArray, most: int) -> list[object]:
    elements: list[object] = list(islice(iter(array), most + 1))
    if len(elements) > most:
        raise _UnusualError
    return elements


def to_array(data: FlatArray, kind: FlatKind) -> Array | None:
    """The numbers of a possibly nested array in order, as 64-bit elements; None if not all of them are of the kind."""
    try:
        return np.frombuffer(data.as_buffer(of_type=kind), _DTYPES[kind])
    except (TypeError, ValueError):
        return None


def leaves_of(data: FlatArray) -> Iterator[object]:
    """The elements of a possibly nested array in order, as Python objects; an object in it stays the parser's."""
    stack: list[Iterator[object]] = [iter(data)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, FlatArray):
                stack.append(iter(item))
                break
            yield item
        else:
            stack.pop()
