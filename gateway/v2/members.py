"""Typed access to the members of a parsed JSON body. Answers and texts are those of Triton's JSON class."""

import json
import re
from typing import TypeVar

import orjson
import rapidjson
from typing_extensions import TypeIs

from models.errors import JsonAccessError, MalformedRequestError

T = TypeVar("T")
JsonObject = dict[str, object]

MAX_NESTING = 100
_WORDS: dict[type[object], str] = {str: "string", list: "array", dict: "object", bool: "boolean"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONE_SURROGATES = re.compile("[\udc80-\udcff]")
_PARSE_ERROR = re.compile(r"Parse error at offset (\d+): (.*)")
# The parser's version in Triton has another word for a control character in a string.
_OLDER_REASONS = {"Invalid encoding in string.": "Invalid escape character in string."}


def parse_json(text: bytes | memoryview) -> JsonObject:
    """The top-level object of a body. To Triton anything else is an object without members.

    Raises:
        JsonAccessError: Not JSON.
        MalformedRequestError: Nested too deeply.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parse_as_triton(bytes(text))
    return as_object(value)


def _parse_as_triton(text: bytes) -> object:
    """With the parser that Triton uses: it takes NaN and Inf, and has the words for what it does not take."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    try:
        return _parse_slowly(text.decode())
    except UnicodeDecodeError as error:
        return _parse_undecodable(text, error.start)


def _parse_undecodable(text: bytes, offset: int) -> object:
    """JSON with bytes that are not UTF-8, which Triton does not mind.

    In the inputs they become lone surrogates (PEP 383), so that none is lost; elsewhere question marks, because
    identifiers and parameters go to places that take text only.
    """
    escaped = text.decode("utf-8", "surrogateescape")
    _parse_slowly(_LONE_SURROGATES.sub("?", escaped))  # tells whether all the rest is well-formed
    try:
        value: object = json.loads(escaped.partition("\0")[0])
    except ValueError:  # a token that only Triton's parser knows
        raise _no_json("Invalid encoding in string.", offset) from None
    if not isinstance(value, dict):
        return value
    return {key: member if key == "inputs" else _readable(member) for key, member in value.items()}


def _readable(value: object) -> object:
    return json.loads(_LONE_SURROGATES.sub("?", json.dumps(value, ensure_ascii=False)))


def _parse_slowly(text: str) -> object:
    try:
        # Numbers in C's types: what is beyond 64 bits becomes a double, or an error.
        value: object = rapidjson.loads(text, number_mode=rapidjson.NM_NATIVE | rapidjson.NM_NAN)
    except RecursionError:
        raise too_deep() from None
    except rapidjson.JSONDecodeError as error:
        found = _PARSE_ERROR.search(str(error))
        if found is None:
            raise _no_json(str(error), 0) from None
        raise _no_json(_OLDER_REASONS.get(found[2], found[2]), int(found[1])) from None
    return value


def _no_json(reason: str, offset: int) -> JsonAccessError:
    return JsonAccessError(f"failed to parse the request JSON buffer: {reason} at {offset}")


def too_deep() -> MalformedRequestError:
    """The error for JSON that is nested too deeply."""
    return MalformedRequestError(f"JSON is nested too deeply, expected at most {MAX_NESTING} levels")


def required(container: JsonObject, key: str, kind: type[T]) -> T:
    """A member that must be there, as `kind`: str, list, dict or bool.

    Raises:
        JsonAccessError: It is missing or of another type.
    """
    value = container.get(key)
    if isinstance(value, kind):
        return value
    raise wrong_kind(key, _WORDS[kind]) if key in container else _missing(key)


def optional(container: JsonObject, key: str, kind: type[T], default: T) -> T:
    """A member that may be missing. Raises JsonAccessError when it has another type."""
    return required(container, key, kind) if key in container else default


def unsigned(container: JsonObject, key: str, default: int) -> int:
    """A member that may be missing, as an integer from 0 to 2^64 - 1. Raises JsonAccessError."""
    value = container.get(key, default)
    if is_unsigned(value):
        return value
    raise wrong_kind(key, "unsigned-integer")


def is_unsigned(value: object) -> TypeIs[int]:
    """Whether it is an integer from 0 to 2^64 - 1; parsers give no larger ones."""
    return type(value) is int and value >= 0


def as_object(value: object) -> JsonObject:
    """The value if it is an object, else one without members, as Triton sees it."""
    return value if isinstance(value, dict) else {}


def _missing(key: str) -> JsonAccessError:
    return JsonAccessError(f"Unable to parse '{key}': attempt to access non-existing object member '{key}'")


def wrong_kind(key: str, expected: str, verb: str = "parse") -> JsonAccessError:
    """The error for a value of the wrong type."""
    return JsonAccessError(f"Unable to {verb} '{key}': attempt to access JSON non-{expected} as {expected}")
