"""Rows and answers of TorchServe handlers as elements of BYTES tensors.

Such a handler is given, for each request, a dict of named values and the headers, and may answer with a status and
headers. The engine knows tensors only, so all of that crosses it as one element: a mark, the length of a JSON header,
the header, and the values one after the other as they came. An element without the mark is a plain body.

Whoever sends a plain row is answered by the body alone; whoever sends an envelope gets one back.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from models.errors import MalformedRequestError

Header = TypeVar("Header")

_ROW_MARK = b"\x89shoal-row\x1a\n"  # no text in UTF-8, and nothing that a converter of line ends would keep
_RESPONSE_MARK = b"\x89shoal-response\x1a\n"
_LENGTH = struct.Struct("<I")
_MAX_HEADER_BYTES = 1 << 20


class Field(NamedTuple):
    """One named value of a request: a part of a form, or the whole body under the name ``body``.

    Attributes:
        value: As it came; a view on the element where it was decoded, for pictures are large.
        content_type: Media type of the part or of the body, or None.
    """

    value: bytes | memoryview
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRow:
    """One request as a handler sees it.

    Attributes:
        fields: By name; the last one of a name counts.
        headers: Of the request, as they were written.
        request_id: The caller's, or empty.
        is_plain: It came as a body without an envelope.
    """

    fields: Mapping[str, Field]
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    is_plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerResponse:
    """One answer of a handler.

    Attributes:
        body: As it goes to the caller.
        status: HTTP status.
        reason: Its phrase; empty means the usual one.
        headers: The handler's own, ``content-type`` among them if it has set one.
    """

    body: bytes
    status: int = 200
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RowHeader:
    fields: list[tuple[str, int, str | None]]  # name, bytes, content type
    headers: dict[str, str]
    request_id: str


@dataclass(frozen=True, slots=True)
class _ResponseHeader:
    status: int
    reason: str
    headers: dict[str, str]


_ROW_HEADER = TypeAdapter(_RowHeader)
_RESPONSE_HEADER = TypeAdapter(_ResponseHeader)


def encode_row(fields: Mapping[str, Field], headers: Mapping[str, str], *, request_id: str = "") -> bytes:
    """The element that carries a request to a handler."""
    described = [(name, len(part.value), part.content_type) for name, part in fields.items()]
    header = {"fields": described, "headers": dict(headers), "request_id": request_id}
    return _packed(_ROW_MARK, header, *(part.value for part in fields.values()))


def decode_row(element: bytes) -> HandlerRow:
    """The request that an element carries; without an envelope, the element is the value of the field ``body``.

    Raises:
        MalformedRequestError: It has the mark of an envelope and is none.
    """
    if not element.startswith(_ROW_MARK):
        return HandlerRow(fields={"body": Field(element)}, is_plain=True)
    header, start = _unpacked(_ROW_MARK, element, _ROW_HEADER)
    view = memoryview(element)
    fields = {}
    for name, length_bytes, content_type in header.fields:
        if not 0 <= length_bytes <= len(element) - start:
            raise MalformedRequestError(
                f"a handler's row has a field '{name[:64]}' of {length_bytes} bytes, expected 0 to "
                f"{len(element) - start}, which are left"
            )
        fields[name] = Field(view[start : start + length_bytes], content_type)
        start += length_bytes
    if start != len(element):
        raise MalformedRequestError(
            f"a handler's row has {len(element) - start} bytes after its last field, expected 0"
        )
    return HandlerRow(fields=fields, headers=header.headers, request_id=header.request_id)


def encode_response(response: HandlerResponse) -> bytes:
    """The element that carries an answer, with its status and headers, to whoever sent an envelope."""
    header = {"status": response.status, "reason": response.reason, "headers": dict(response.headers)}
    return _packed(_RESPONSE_MARK, header, response.body)


def decode_response(element: bytes) -> HandlerResponse:
    """The answer that an element carries; without an envelope, the element is the body.

    Raises:
        MalformedRequestError: It has the mark of an envelope and is none.
    """
    if not element.startswith(_RESPONSE_MARK):
        return HandlerResponse(body=element)
    header, start = _unpacked(_RESPONSE_MARK, element, _RESPONSE_HEADER)
    return HandlerResponse(body=element[start:], status=header.status, reason=header.reason, headers=header.headers)


def _packed(mark: bytes, header: Mapping[str, object], *values: bytes | memoryview) -> bytes:
    text = orjson.dumps(header)
    return b"".join((mark, _LENGTH.pack(len(text)), text, *values))


def _unpacked(mark: bytes, element: bytes, kind: TypeAdapter[Header]) -> tuple[Header, int]:
    """The header, and where the values start."""
    start = len(mark) + _LENGTH.size
    if len(element) < start:
        raise MalformedRequestError(f"a handler's envelope ends after {len(element)} bytes, expected a header")
    (length_bytes,) = _LENGTH.unpack_from(element, len(mark))
    if length_bytes > min(_MAX_HEADER_BYTES, len(element) - start):
        raise MalformedRequestError(
            f"a handler's envelope declares a header of {length_bytes} bytes, expected at most {_MAX_HEADER_BYTES} "
            f"and the {len(element) - start} that are there"
        )
    end = start + length_bytes
    try:
        return kind.validate_json(element[start:end]), end
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise MalformedRequestError(f"a handler's envelope has a wrong header: {problem['msg']}") from None
