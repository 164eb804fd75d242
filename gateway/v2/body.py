"""A request body in one piece, and where its JSON part ends."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from models.errors import MalformedRequestError

_ALIGNMENT_BYTES = 16
_PADDING = bytes(_ALIGNMENT_BYTES)
_INTEGER = re.compile(rb"[ \t]*([+-]?[0-9]{1,20})")


class Body(NamedTuple):
    """A request body in one piece: padding, JSON, tensors.

    Attributes:
        data: All bytes. The padding is chosen so that the tensors start at an aligned address.
        json_start: Offset of the JSON part.
        tensors_start: Offset of what follows the JSON part; equal to `json_start` for a raw request.
    """

    data: bytes
    json_start: int
    tensors_start: int

    @property
    def is_raw(self) -> bool:
        """Whether there is no JSON at all, just the bytes of the only input."""
        return self.json_start == self.tensors_start


def assemble(chunks: Sequence[bytes], header_length: bytes | None) -> Body:
    """Join the body's pieces, once.

    Args:
        chunks: The body, unpacked.
        header_length: Value of Inference-Header-Content-Length, or None when there is none: all is JSON. An empty
            body, or a length of 0, make a raw request.

    Raises:
        MalformedRequestError: The length is not within the body.
    """
    size_bytes = sum(map(len, chunks))
    json_bytes = size_bytes if header_length is None else _parse_header_length(header_length, size_bytes)
    if json_bytes == size_bytes:
        return Body(chunks[0] if len(chunks) == 1 else b"".join(chunks), 0, size_bytes)
    # CPython puts the contents of a bytes object at an address that is a multiple of 16.
    padding_bytes = -json_bytes % _ALIGNMENT_BYTES
    data = b"".join((_PADDING[:padding_bytes], *chunks))
    return Body(data, padding_bytes, padding_bytes + json_bytes)


def _parse_header_length(value: bytes, size_bytes: int) -> int:
    """The number that the text begins with, or 0, as Triton reads it."""
    found = _INTEGER.match(value)
    length = int(found[1]) if found else 0
    if not 0 <= length <= size_bytes:
        shown = value[:64].decode("latin-1")
        raise MalformedRequestError(f"inference header size should be in range (0, {size_bytes}), got: {shown}")
    return length


def is_slow(body: Body, inline_bytes: int, *, has_large_regions: bool = False) -> bool:
    """Whether decoding takes more than a fraction of a millisecond: much JSON, many BYTES elements, large regions.

    Args:
        body: The request body.
        inline_bytes: The most JSON that is parsed at once.
        has_large_regions: Whether there is shared memory that it takes long to read.
    """
    if len(body.data) <= inline_bytes and not has_large_regions:
        return False
    # Tensors with a fixed element size are views and cost nothing. A backslash could hide the word in an escape.
    text = body.data[body.json_start : body.tensors_start]
    if len(text) > inline_bytes or b"\\" in text:
        return True
    return (b"BYTES" in text and len(body.data) > inline_bytes) or (has_large_regions and b"shared_memory" in text)
