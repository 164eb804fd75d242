"""Content codings: gzip, deflate (zlib-wrapped) and, beyond what Triton has, zstd. Both ways."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from backports import zstd

from gateway.errors import RequestTooLargeError, UnsupportedEncodingError
from models.errors import MalformedRequestError

IDENTITY = b"identity"

_DETECT_GZIP_OR_ZLIB = 47
_ZSTD_WINDOW_BITS = 23  # 8 MiB: what HTTP lets a sender ask for
_STEP_BYTES = 1 << 20
_LEVEL = 1  # tensors compress badly at any level, and this one costs a third of the default's time
_MAX_RATIO = 1100  # deflate cannot do more than 1032, so only zstd's bombs meet it
_RATIO_FREE_BYTES = 1 << 20  # less is harmless at any ratio


def is_compressed(content_encoding: bytes) -> bool:
    """Whether a request body needs `inflate`; without a header it is `IDENTITY`.

    Raises:
        UnsupportedEncodingError: Neither gzip, deflate, zstd nor identity, exactly.
    """
    if content_encoding == IDENTITY:
        return False
    if content_encoding in (b"gzip", b"deflate", b"zstd"):
        return True
    raise UnsupportedEncodingError(content_encoding[:64].decode("ascii", "replace"))


def inflate(chunks: Sequence[bytes], limit_bytes: int, coding: bytes = b"gzip") -> list[bytes]:
    """Unpack a stream; whether it is gzip or zlib is told from its first bytes, as Triton does.

    What follows the end of the stream is ignored, as there: more members of gzip, more frames of zstd, anything.

    Args:
        chunks: The compressed stream in pieces.
        limit_bytes: Most bytes that it may unpack to; at most 1 MiB more is ever held.
        coding: The Content-Encoding.

    Raises:
        RequestTooLargeError: It unpacks to more than the limit, or to too many times its size.
        MalformedRequestError: There is nothing, or it is damaged or incomplete.
    """
    packed_bytes = sum(map(len, chunks))
    if not packed_bytes:
        raise MalformedRequestError("nothing to be decompressed")
    most_bytes = min(limit_bytes, max(_RATIO_FREE_BYTES, packed_bytes * _MAX_RATIO))
    total_bytes = 0
    pieces: list[bytes] = []
    for piece in _unpacked_zstd(chunks) if coding == b"zstd" else _unpacked_zlib(chunks):
        total_bytes += len(piece)
        if total_bytes > most_bytes:
            found = f"decompressed size of at least {total_bytes} bytes"
            raise RequestTooLargeError(found=found, limit_bytes=most_bytes)
        pieces.append(piece)
    return pieces


def _unpacked_zlib(chunks: Sequence[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_DETECT_GZIP_OR_ZLIB)
    try:
        for chunk in chunks:
            rest = chunk
            while rest and not stream.eof:
                yield stream.decompress(rest, _STEP_BYTES)
                rest = stream.unconsumed_tail
        # zlib may hold back the tail of its last match, a few hundred bytes.
        yield stream.flush()
    except zlib.error as error:
        raise _damaged(f"{error}") from None
    _check_end(stream.eof)


def _unpacked_zstd(chunks: Sequence[bytes]) -> Iterator[bytes]:
    stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_BITS})
    try:
        for chunk in chunks:
            rest = chunk
            while not stream.eof and (rest or not stream.needs_input):
                yield stream.decompress(rest, _STEP_BYTES)
                rest = b""
    except zstd.ZstdError as error:
        raise _damaged(f"{error}") from None
    _check_end(stream.eof)


def _damaged(reason: str) -> MalformedRequestError:
    return MalformedRequestError(f"failed to decompress the request body: {reason}")


def _check_end(is_complete: bool) -> None:
    if not is_complete:
        raise _damaged("it is incomplete")


@lru_cache(maxsize=64)
def response_coding(accept_encoding: bytes) -> str:
    """The coding that the client likes best: ``identity``, ``gzip``, ``deflate`` or ``zstd``.

    The first of equals wins; ``*`` means nothing.
    """
    best, best_weight = "identity", 0.0
    for item in accept_encoding.decode("latin-1").split(","):
        name, _, weight_text = item.strip().partition(";")
        if name != "identity" and name not in _PACKERS:
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
    """Pack a response body as ``gzip``, ``deflate`` or ``zstd``."""
    return _PACKERS[coding](body)


def _pack_zlib(body: bytes, window_bits: int) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=window_bits)
    return packer.compress(body) + packer.flush()


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: _pack_zlib(body, 31),
    "deflate": lambda body: _pack_zlib(body, 15),
    "zstd": lambda body: zstd.compress(body, _LEVEL),
}
