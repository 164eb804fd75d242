"""Typed access to the members of a parsed JSON body; errors start as Triton's do and carry a JSON pointer."""

import json
from typing import TypeVar

import orjson

from gateway.v2.tensors import json_kind
from models.errors import MalformedRequestError

T = TypeVar("T")
JsonObject = dict[str, object]

_WORDS: dict[type[object], str] = {str: "string", list: "array", dict: "object", bool: "boolean"}


def parse_json(text: bytes | memoryview) -> JsonObject:
    """The top-level object of a body.

    Raises:
        MalformedRequestError: Not JSON, nested too deeply, or not an object.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        value = _parse_tolerantly(bytes(text), error)
    if not isinstance(value, dict):
        raise MalformedRequestError(
            f"failed to parse the request JSON buffer: found {json_kind(value)} at 0, expected an object"
        )
    return value


def _parse_tolerantly(text: bytes, error: orjson.JSONDecodeError) -> object:
    # Only the standard library reads the tokens NaN and Infinity, which v2 clients may send.
    if b"NaN" in text or b"Infinity" in text:
        try:
            value: object = json.loads(text.decode())
            orjson.dumps(value)  # refuses what the fast parser refuses: depth, lone surrogates, endless integers
        except (ValueError, RecursionError, TypeError) as slow_error:
            raise MalformedRequestError(f"failed to parse the request JSON buffer: {slow_error}") from None
        return value
    raise MalformedRequestError(f"failed to parse the request JSON buffer: {error.msg} at {error.pos}") from None


def required(container: JsonObject, key: str, kind: type[T], pointer: str) -> T:
    """A member that must be there, as `kind`: str, list, dict or bool.

    Raises:
        MalformedRequestError: It is missing or of another type.
    """
    if key not in container:
        raise _missing(key, pointer)
    value = container[key]
    if isinstance(value, kind):
        return value
    raise wrong_kind(key, value, _WORDS[kind], f"{pointer}/{key}")


def optional(container: JsonObject, key: str, kind: type[T], default: T, pointer: str) -> T:
    """A member that may be missing. Raises MalformedRequestError when it has another type."""
    return required(container, key, kind, pointer) if key in container else default


def unsigned(container: JsonObject, key: str, pointer: str) -> int:
    """A member that must be there, as an integer of at most 64 bits that is not negative."""
    if key not in container:
        raise _missing(key, pointer)
    return as_unsigned(key, container[key], f"{pointer}/{key}")


def as_unsigned(name: str, value: object, pointer: str) -> int:
    """The value, if it is an integer that is not negative. Raises MalformedRequestError."""
    if type(value) is int and value >= 0:
        return value
    raise wrong_kind(name, value, "unsigned-integer", pointer)


def as_object(name: str, value: object, pointer: str) -> JsonObject:
    """The value, if it is an object. Raises MalformedRequestError."""
    if isinstance(value, dict):
        return value
    raise wrong_kind(name, value, "object", pointer)


def _missing(key: str, pointer: str) -> MalformedRequestError:
    return MalformedRequestError(
        f"Unable to parse '{key}': attempt to access non-existing object member '{key}'", pointer=pointer
    )


def wrong_kind(name: str, value: object, expected: str, pointer: str) -> MalformedRequestError:
    """The error for a value of the wrong type."""
    found = json_kind(value)
    shown = f"{found} {value}" if type(value) in (int, float) else found
    return MalformedRequestError(
        f"Unable to parse '{name}': attempt to access JSON non-{expected} as {expected}, found {shown}", pointer=pointer
    )
