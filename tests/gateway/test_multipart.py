"""Multipart bodies, whole and damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.multipart import MAX_PARTS, parse_multipart
from models.errors import MalformedRequestError

TYPE = b"multipart/form-data; boundary=b"


def body(*parts: tuple[str, bytes]) -> bytes:
    head = 'content-disposition: form-data; name="{}"; filename="f"'
    return b"".join(
        b"--b\r\n" + head.format(name).encode() + b"\r\n\r\n" + content + b"\r\n" for name, content in parts
    ) + (b"--b--\r\n")


@given(contents=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_every_part_keeps_its_bytes_and_place(contents: list[bytes]) -> None:
    parts = parse_multipart(body(*((f"n{index}", content) for index, content in enumerate(contents))), TYPE)

    assert [(part.name, part.content) for part in parts] == [(f"n{i}", content) for i, content in enumerate(contents)]


def test_a_part_without_a_name_has_an_empty_one() -> None:
    parts = parse_multipart(b"--b\r\ncontent-type: image/png\r\n\r\nx\r\n--b--\r\n", TYPE)

    assert [(part.name, part.content) for part in parts] == [("", b"x")]


def test_a_boundary_in_quotes_is_read() -> None:
    assert len(parse_multipart(body(("a", b"1")), b'multipart/mixed; boundary="b"')) == 1


GOOD = body(("image", b"0123456789"))
BAD = {
    "no boundary": (GOOD, b"multipart/form-data", "a boundary of 0 bytes, expected 1 to 70"),
    "a long boundary": (GOOD, b"multipart/form-data; boundary=" + b"b" * 71, "a boundary of 71 bytes"),
    "another boundary": (GOOD, b"multipart/form-data; boundary=c", "damaged"),
    "no boundary in the body": (b"just text", TYPE, "damaged"),
    "an empty body": (b"", TYPE, "truncated"),
    "too many parts": (body(*[("a", b"")] * (MAX_PARTS + 1)), TYPE, f"more than {MAX_PARTS} parts"),
    "a long header": (b"--b\r\nx: " + b"y" * 5000 + b"\r\n\r\n\r\n--b--\r\n", TYPE, "header"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_body_is_refused_with_what_is_wrong(what: str) -> None:
    data, content_type, text = BAD[what]

    with pytest.raises(MalformedRequestError, match=text):
        parse_multipart(data, content_type)


@pytest.mark.parametrize("length", range(1, len(GOOD) - 2))
def test_a_truncated_body_is_refused_wherever_it_ends(length: int) -> None:
    with pytest.raises(MalformedRequestError, match=r"truncated|damaged"):
        parse_multipart(GOOD[:length], TYPE)
