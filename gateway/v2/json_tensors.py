"""JSON lists to arrays. What Triton takes is taken and what it refuses is refused, in its words.

Integers wrap around, and only the number of elements matters, not how they are nested.
"""

from array import array as native_array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from math import prod
from typing import Any, cast

import numpy as np

from gateway.errors import RequestTooLargeError
from gateway.v2.flat_json import FlatArray, leaves_of, to_array
from gateway.v2.members import MAX_NESTING, too_deep, wrong_kind
from gateway.v2.tensors import (
    MAX_DIMS,
    WIRES,
    Wire,
    object_array,
    shaped,
    too_few_strings,
    too_many_strings,
)
from models.errors import JsonAccessError, MalformedRequestError
from models.inference import Array

_LENGTH_BYTES = 4  # of a string's length in the binary form, which counts
_INTEGERS = frozenset((int,))
_NATIVE: dict[str, np.dtype[Any]] = {code: np.dtype(code) for code in "fdqQ"}


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
    has_shape = 0 < len(dims) <= MAX_DIMS and _INTEGERS.issuperset(map(type, dims)) and min(dims) > 0
    if wire is None or wire.element_bytes is None or not has_shape or prod(dims) != len(data):
        return None
    if len(data) * wire.element_bytes > limit_bytes or not wire.json_types.issuperset(map(type, data)):
        return None
    try:
        return name, _numbers(data, wire).reshape(dims)
    except OverflowError:
        return None


def from_json(
    name: str, wire: Wire, shape: tuple[int, ...], count: int, data: object, limit_bytes: int, model: str
) -> Array:
    """An array from a JSON list: flat, nested to the shape, or anything between; only the leaf count has to match.

    Raises:
        JsonAccessError: No list, or wrong element type or count.
        MalformedRequestError: The type has no JSON form, or the list is nested too deeply.
        InvalidRequestError: Not `count` strings, or a shape that no tensor can have.
        RequestTooLargeError: The array would be larger than `limit_bytes`.
    """
    if not count or not shape:
        return shaped(np.empty(count, wire.dtype), shape)  # Triton does not even look at the data
    if not isinstance(data, list | FlatArray):
        raise wrong_kind("data", "array")
    if not wire.json_types:
        raise MalformedRequestError(
            f"receiving {wire.data_type.value} data via JSON is not supported. Please use the binary data format for "
            f"input {name}"
        )
    if count * (wire.element_bytes or _LENGTH_BYTES) > limit_bytes:
        raise RequestTooLargeError(found=f"JSON tensor '{name}' of {count} elements", limit_bytes=limit_bytes)
    if isinstance(data, FlatArray):
        return shaped(_from_flat(name, wire, data, count, model), shape)
    leaves, kinds = _flatten(data)
    if wire.element_bytes is None:
        return shaped(_strings(name, leaves, count, model), shape)
    if len(leaves) == count and kinds <= wire.json_types:
        with suppress(OverflowError):  # told below
            return shaped(_numbers(leaves, wire), shape)
    raise _wrong_leaf(leaves, count, wire)


def _from_flat(name: str, wire: Wire, data: FlatArray, count: int, model: str) -> Array:
    """Of a large body, so that elements do not become Python objects all at the same time if it can be avoided."""
    if wire.element_bytes is None:
        return _strings(name, leaves_of(data), count, model)
    if wire.flat_kind is None:
        leaves = list(islice(leaves_of(data), count + 1))
        values = np.array(leaves, wire.dtype) if wire.json_types.issuperset(map(type, leaves)) else None
    else:
        values = to_array(data, wire.flat_kind)
    if values is None:
        raise _wrong_leaf(leaves_of(data), count, wire)
    if len(values) != count:
        raise _wrong_count()
    return _cast(values, wire.dtype)


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """As in C: integers keep their lower bits, a double that is too big for FP32 becomes infinite."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _wrong_leaf(leaves: Iterable[object], count: int, wire: Wire) -> JsonAccessError:
    """The error for the first leaf that is not what it should be, or for their number."""
    low, high = wire.limits
    for leaf in islice(leaves, count):
        if type(leaf) not in wire.json_types or (wire.limits != (0, 0) and not low <= cast("int", leaf) <= high):
            word = "number as double" if wire.json_word == "double" else f"{wire.json_word} as {wire.json_word}"
            return JsonAccessError(f"Unable to parse 'data': attempt to access JSON non-{word}")
    return _wrong_count()


def _wrong_count() -> JsonAccessError:
    return JsonAccessError("Unable to parse 'data': Shape does not match true shape of 'data' field")


def _numbers(leaves: list[object], wire: Wire) -> Array:
    """At least one number or boolean of the right type. Raises OverflowError for an integer beyond 64 bits."""
    if not wire.native:
        return np.array(leaves, wire.dtype)
    values = np.frombuffer(native_array(wire.native, cast("list[float]", leaves)), _NATIVE[wire.native])
    return values if values.dtype == wire.dtype else values.astype(wire.dtype)


def _strings(name: str, leaves: Iterable[object], count: int, model: str) -> Array:
    elements: list[bytes] = []
    found = 0
    for found, leaf in enumerate(leaves, 1):
        if not isinstance(leaf, str):
            raise JsonAccessError("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
        if found <= count:
            elements.append(leaf.encode("utf-8", "surrogateescape"))  # which stand for bytes that are no UTF-8
    if found > count:
        raise too_many_strings(name, model, count)
    if found < count:
        raise too_few_strings(name, model, count, found)
    return object_array(elements)


def _flatten(data: list[object]) -> tuple[list[object], set[type[object]]]:
    level = data
    for _ in range(MAX_NESTING):
        kinds = set(map(type, level))
        if list not in kinds:
            return level, kinds
        # Numbers and lists side by side: level by level would pass over the numbers a hundred times.
        is_mixed = len(kinds) > 1
        level = list(_leaves(level) if is_mixed else chain.from_iterable(cast("list[list[object]]", level)))
    raise too_deep()


def _leaves(data: list[object]) -> Iterator[object]:
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
            raise too_deep()
