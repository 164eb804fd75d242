"""Multipart form data, in memory; the parser is python-multipart's."""

from dataclasses import dataclass, field

import python_multipart as multipart
from python_multipart.exceptions import FormParserError

from models.errors import MalformedRequestError

MAX_PARTS = 1024
MAX_BOUNDARY_BYTES = 70  # RFC 2046
MAX_HEADER_BYTES = 4096


@dataclass(slots=True)
class Part:
    """One part: the field's name (empty if it has none) and its content."""

    name: str = ""
    content: bytes = b""


@dataclass(slots=True)
class _Collector:
    """Callbacks of the parser; the spans they get are slices of the whole body."""

    parts: list[Part] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    header_name: bytes = b""
    header_value: bytes = b""
    complete: bool = False

    def on_part_begin(self) -> None:
        if len(self.parts) >= MAX_PARTS:
            raise MalformedRequestError(f"multipart body has more than {MAX_PARTS} parts")
        self.parts.append(Part())
        self.chunks = []

    def on_header_begin(self) -> None:
        self.header_name = self.header_value = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self.header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]
        if len(self.header_value) > MAX_HEADER_BYTES:
            raise MalformedRequestError(f"a header of a multipart part is longer than {MAX_HEADER_BYTES} bytes")

    def on_header_end(self) -> None:
        if self.header_name.lower() == b"content-disposition":
            _, options = multipart.multipart.parse_options_header(self.header_value)
            self.parts[-1].name = options.get(b"name", b"").decode("utf-8", "replace")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.chunks.append(data[start:end])

    def on_part_end(self) -> None:
        self.parts[-1].content = b"".join(self.chunks)

    def on_end(self) -> None:
        self.complete = True


def parse_multipart(body: bytes, content_type: bytes) -> list[Part]:
    """The parts of a form, files and fields alike, in order.

    Args:
        body: The whole body.
        content_type: The request's Content-Type, which carries the boundary.

    Raises:
        MalformedRequestError: No boundary, a damaged or a truncated body.
    """
    _, options = multipart.multipart.parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_BYTES:
        raise MalformedRequestError(
            f"multipart Content-Type has a boundary of {len(boundary)} bytes, expected 1 to {MAX_BOUNDARY_BYTES}"
        )
    collector = _Collector()
    callbacks = {name: getattr(collector, name) for name in dir(collector) if name.startswith("on_")}
    parser = multipart.MultipartParser(boundary, callbacks)  # type: ignore[arg-type]  # its TypedDict has no such view
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise MalformedRequestError(f"damaged multipart body: {error}") from None
    if not collector.complete:
        raise MalformedRequestError("truncated multipart body: the closing boundary is missing")
    return collector.parts
