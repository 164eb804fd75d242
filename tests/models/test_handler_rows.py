"""Rows of handlers and their answers, as elements of tensors and back."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import MalformedRequestError
from models.handler_rows import (
    Field,
    HandlerResponse,
    HandlerRow,
    decode_response,
    decode_row,
    encode_response,
    encode_row,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
fields = st.dictionaries(names, st.builds(Field, st.binary(max_size=64), st.none() | names), max_size=4)
headers = st.dictionaries(names, names, max_size=4)


@given(fields, headers, names)
def test_a_row_comes_back_as_it_was_sent(fields, headers, request_id) -> None:
    row = decode_row(encode_row(fields, headers, request_id=request_id))

    assert row == HandlerRow(fields=fields, headers=headers, request_id=request_id)


@given(st.binary(max_size=64), st.integers(0, 999), names, headers)
def test_a_response_comes_back_as_it_was_sent(body, status, reason, headers) -> None:
    response = HandlerResponse(body=body, status=status, reason=reason, headers=headers)

    assert decode_response(encode_response(response)) == response


@given(st.binary(max_size=64).filter(lambda element: not element.startswith(b"\x89shoal")))
def test_an_element_without_an_envelope_is_the_body(element: bytes) -> None:
    assert decode_row(element) == HandlerRow(fields={"body": Field(element)}, is_plain=True)
    assert decode_response(element) == HandlerResponse(body=element)


ROW = encode_row({"data": Field(b"picture", "image/png")}, {"Accept": "*/*"})


@pytest.mark.parametrize(
    ("element", "says"),
    [
        (ROW[:14], "ends after 14 bytes"),
        (ROW[:20], "declares a header of"),
        (ROW[:-1], "field 'data' of 7 bytes, expected 0 to 6"),
        (ROW + b"!", "1 bytes after its last field"),
        (ROW.replace(b'"headers":{', b'"headers":1,"x":{'), "header"),
        (ROW.replace(b',7,"image', b',-7,"image'), "header"),
        (ROW.replace(b"]],", b"]},"), "wrong header"),
    ],
)
def test_a_broken_envelope_is_refused_with_a_sentence(element: bytes, says: str) -> None:
    with pytest.raises(MalformedRequestError, match=says):
        decode_row(element)


@given(st.data())
def test_a_damaged_envelope_is_refused_or_read_but_never_crashes(data) -> None:
    place = data.draw(st.integers(len(b"\x89shoal-row\x1a\n"), len(ROW) - 1))
    damaged = ROW[:place] + bytes([data.draw(st.integers(0, 255))]) + ROW[place + 1 :]

    with contextlib.suppress(MalformedRequestError):
        assert not decode_row(damaged).is_plain
