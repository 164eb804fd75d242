import gzip
import tracemalloc
import zlib

import pytest

from gateway.compression import deflate, inflate, is_compressed, response_coding
from gateway.errors import RequestTooLargeError, UnsupportedEncodingError
from models.errors import MalformedRequestError

TEXT = b'{"inputs":[]}' * 5000


@pytest.mark.parametrize("packed", [gzip.compress(TEXT), zlib.compress(TEXT)], ids=["gzip", "zlib"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
def test_a_stream_is_unpacked_whatever_its_pieces(packed: bytes, piece_bytes: int) -> None:
    pieces = [packed[at : at + piece_bytes] for at in range(0, len(packed), piece_bytes)]

    assert b"".join(inflate(pieces, len(TEXT))) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_what_is_packed_unpacks_to_the_same(coding: str) -> None:
    assert b"".join(inflate([deflate(TEXT, coding)], len(TEXT))) == TEXT


def test_a_bomb_is_refused_at_the_limit() -> None:
    limit_bytes = 4 << 20
    bomb = zlib.compress(bytes(64 << 20), 1)
    tracemalloc.start()

    try:
        with pytest.raises(RequestTooLargeError, match=f"the limit is {limit_bytes} bytes"):
            inflate([bomb], limit_bytes)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < limit_bytes + (3 << 20)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([gzip.compress(TEXT)[:-9]], "incomplete"),
        ([b"plain"], "damaged"),
        ([gzip.compress(b"a") + b"more"], "found 4 bytes more"),
        ([gzip.compress(b"a"), b"more"], "goes on after its end"),
        ([], "incomplete"),
    ],
    ids=["cut off", "plain", "trailing bytes", "trailing piece", "empty"],
)
def test_a_broken_stream_is_refused(body: list[bytes], text: str) -> None:
    with pytest.raises(MalformedRequestError, match=text):
        inflate(body, 1 << 20)


@pytest.mark.parametrize(
    ("coding", "expected"), [(b"", False), (b"identity", False), (b"gzip", True), (b"deflate", True)]
)
def test_known_codings(coding: bytes, expected: bool) -> None:
    assert is_compressed(coding) is expected


@pytest.mark.parametrize("coding", [b"br", b"GZIP", b"gzip, gzip", b"\xff"])
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
        (b"gzip ; q=0.3", "gzip"),
        (b"gzip;q=abc", "identity"),
    ],
)
def test_the_reply_takes_the_coding_that_weighs_most(header: bytes, expected: str) -> None:
    assert response_coding(header) == expected
