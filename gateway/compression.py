"""Content codings: gzip and deflate (zlib-wrapped), both ways."""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gateway.errors import RequestTooLargeError, UnsupportedEncodingError
from models.errors import MalformedRequestError

_WINDOW_BITS = {"gzip": 31, "deflate": 15}
_DETECT_GZIP_OR_ZLIB = 47
_STEP_BYTES = 1 << 20
_LEVEL = 1  # tensors compress badly at any level, and this one costs a third of the default's time


def is_compressed(content_encoding: bytes) -> bool:
    """Whether a request body needs `inflate`; no header counts as identity.

    Raises:
        UnsupportedEncodingError: Neither gzip, deflate nor identity, exactly.
    """
    if content_encoding in (b"", b"identity"):
        return False
    if content_encoding in (b"gzip", b"deflate"):
        return True
    raise UnsupportedEncodingError(content_encoding[:64].decode("ascii", "replace"))


def inflate(chunks: Sequence[bytes], limit_bytes: int) -> list[bytes]:
    """Unpack a gzip or zlib stream; which of the two is told from its first bytes, as Triton does.

    Args:
        chunks: The compressed stream in pieces.
        limit_bytes: Most bytes that it may unpack to; at most 1 MiB more is ever held.

    Raises:
        RequestTooLargeError: It unpacks to more than the limit.
        MalformedRequestError: It is damaged, incomplete or followed by something else.
    """
    total_bytes = 0
    pieces: list[bytes] = []
    for piece in _unpacked(chunks):
        total_bytes += len(piece)
        if total_bytes > limit_bytes:
            raise RequestTooLargeError(
                found=f"a compressed body of at least {total_bytes} unpacked bytes", limit_bytes=limit_bytes
            )
        pieces.append(piece)
    return pieces


def _unpacked(chunks: Sequence[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_DETECT_GZIP_OR_ZLIB)
    try:
        for chunk in chunks:
            if stream.eof:
                raise MalformedRequestError("compressed body goes on after its end: found more, expected nothing")
            rest = chunk
            while rest:
                yield stream.decompress(rest, _STEP_BYTES)
                rest = stream.unconsumed_tail
        # zlib may hold back the tail of its last match, a few hundred bytes.
        yield stream.flush()
    except zlib.error as error:
        raise MalformedRequestError(f"compressed body is damaged: {error}, expected gzip or zlib data") from None
    if not stream.eof:
        raise MalformedRequestError("compressed body is incomplete: found no end of the stream")
    if stream.unused_data:
        raise MalformedRequestError(
            f"compressed body goes on after its end: found {len(stream.unused_data)} bytes more, expected none"
        )


@lru_cache(maxsize=64)
def response_coding(accept_encoding: bytes) -> str:
    """The coding that the client likes best: ``identity``, ``gzip`` or ``deflate``.

    The first of equals wins; ``*`` means nothing.
    """
    best, best_weight = "identity", 0.0
    for item in accept_encoding.decode("latin-1").split(","):
        name, _, weight_text = item.strip().partition(";")
        name = name.strip()
        if name != "identity" and name not in _WINDOW_BITS:
            continue
        weight = _weight(weight_text)
        if weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(text: str) -> float:
    key, _, value = text.strip().partition("=")
    if not key:
        return 1.0
    try:
        return float(value) if key.strip().lower() == "q" else 1.0
    except ValueError:
        return 0.0


def deflate(body: bytes, coding: str) -> bytes:
    """Pack a response body as ``gzip`` or ``deflate``."""
    packer = zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[coding])
    return packer.compress(body) + packer.flush()
