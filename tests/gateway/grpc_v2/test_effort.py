import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grpc_v2.effort import check_effort
from models.errors import MalformedRequestError
from tests.gateway.grpc_v2.serving import output, request, tensor

LIMIT = 1000
EMPTY = {"input": b"\x2a\0", "output": b"\x32\0", "raw contents": b"\x3a\0", "an unknown field": b"\x78\0"}


@pytest.mark.parametrize("what", EMPTY)
def test_a_message_of_too_many_fields_is_refused(what: str) -> None:
    with pytest.raises(MalformedRequestError, match="too many fields"):
        check_effort(EMPTY[what] * (LIMIT + 1), LIMIT)


def test_strings_of_a_typed_list_are_counted_as_fields() -> None:
    message = request(tensor(contents={"bytes_contents": [b""] * (LIMIT + 1)}))

    with pytest.raises(MalformedRequestError):
        check_effort(message.SerializeToString(), LIMIT)


def test_a_number_without_an_end_is_not_read_to_the_end() -> None:
    check_effort(b"\xff" * 100_000_000)  # read digit by digit into one number, this would take hours


def test_tensors_may_be_large() -> None:
    message = request(
        tensor(contents={"fp32_contents": [0.5] * 3_000_000}), tensor("B"), raw=[bytes(8 << 20)], outputs=[output()]
    )

    check_effort(message.SerializeToString())


@given(st.binary(max_size=40))
def test_any_bytes_are_looked_at_without_an_error(data: bytes) -> None:
    check_effort(data)


def test_the_numbers_of_a_shape_are_counted_one_by_one_and_those_of_lists_by_their_bytes() -> None:
    for item in (tensor(shape=[1] * (LIMIT + 1)), tensor(contents={"fp64_contents": [0.5] * (5 * LIMIT)})):
        with pytest.raises(MalformedRequestError):
            check_effort(request(item).SerializeToString(), LIMIT)
