import gzip
import tracemalloc
import zlib

import pytest
from backports import zstd

from gateway.compression import deflate, inflate, is_compressed, response_coding
from gateway.errors import RequestTooLargeError, UnsupportedEncodingError
from models.errors import MalformedRequestError

TEXT = b'{"inputs":[]}' * 5000


@pytest.mark.parametrize("packed", [gzip.compress(TEXT), zlib.compress(TEXT)], ids=["gzip", "zlib"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
def test_a_stream_is_unpacked_whatever_its_pieces(packed: bytes, piece_bytes: int) -> None:
    pieces = [packed[at : at + piece_bytes] for at in range(0, len(packed), piece_bytes)]

    assert b"".join(inflate(pieces, len(TEXT))) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("piece_bytes", [1, 100_000])
def test_what_is_packed_unpacks_to_the_same(coding: str, piece_bytes: int) -> None:
    packed = deflate(TEXT, coding)
    pieces = [packed[at : at + piece_bytes] for at in range(0, len(packed), piece_bytes)]

    assert b"".join(inflate(pieces, len(TEXT), coding.encode())) == TEXT


@pytest.mark.parametrize("rest", [[b"more"], [gzip.compress(b"b")], [b"", gzip.compress(b"b"), b"c"]])
def test_what_follows_the_stream_is_ignored_as_in_triton(rest: list[bytes]) -> None:
    assert b"".join(inflate([gzip.compress(b"a") + rest[0], *rest[1:]], 100)) == b"a"


@pytest.mark.parametrize("coding", ["deflate", "zstd"])
def test_a_bomb_is_refused_at_the_limit(coding: str) -> None:
    limit_bytes = 4 << 20
    bomb = deflate(bytes(64 << 20), coding)
    tracemalloc.start()

    try:
        with pytest.raises(RequestTooLargeError, match="exceeds the maximum allowed value"):
            inflate([bomb], limit_bytes, coding.encode())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < limit_bytes + (3 << 20)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([gzip.compress(TEXT)[:-9]], "incomplete"),
        ([b"plain"], "failed to decompress"),
        ([], "nothing to be decompressed"),
    ],
    ids=["cut off", "plain", "empty"],
)
def test_a_broken_stream_is_refused(body: list[bytes], text: str) -> None:
    with pytest.raises(MalformedRequestError, match=text):
        inflate(body, 1 << 20)


@pytest.mark.parametrize("body", [zstd.compress(TEXT)[:-3], b"plain"])
def test_a_broken_stream_of_zstd_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="failed to decompress"):
        inflate([body], 1 << 20, b"zstd")


def test_a_ratio_that_only_a_bomb_has_is_refused_below_the_limit() -> None:
    bomb = zstd.compress(bytes(8 << 20))

    with pytest.raises(RequestTooLargeError):
        inflate([bomb], 64 << 20, b"zstd")


@pytest.mark.parametrize(
    ("coding", "expected"), [(b"zstd", True), (b"identity", False), (b"gzip", True), (b"deflate", True)]
)
def test_known_codings(coding: bytes, expected: bool) -> None:
    assert is_compressed(coding) is expected


@pytest.mark.parametrize("coding", [b"", b"br", b"GZIP", b"gzip, gzip", b"\xff"])
def test_other_codings_are_refused(coding: bytes) -> None:
    with pytest.raises(UnsupportedEncodingError, match="Unsupported compression type"):
        is_compressed(coding)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"", "identity"),
        (b"*", "identity"),
        (b"br", "identity"),
        (b"gzip, deflate", "gzip"),
        (b"deflate,gzip", "deflate"),
        (b"gzip;q=0.5, deflate;q=0.8", "deflate"),
        (b"identity;q=1, gzip;q=0.5", "identity"),
        (b"gzip;q=0", "identity"),
        (b"gzip ; q=0.3", "identity"),
        (b"zstd, gzip", "zstd"),
        (b"gzip;q=abc", "identity"),
    ],
)
def test_the_reply_takes_the_coding_that_weighs_most(header: bytes, expected: str) -> None:
    assert response_coding(header) == expected
