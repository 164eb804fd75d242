"""The hidden input: whose rows are whose, through all that happens to a batch on its way."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.gather import gather
from models.errors import InvalidRequestError
from models.inference import InferRequest, Tensors
from models.request_rows import REQUEST_INPUT, RequestInfo, attach, requests_of


def request(rows: int, **told: object) -> Tensors:
    inputs = {"x": np.zeros((rows, 2), np.float32)}
    return attach(inputs, rows, RequestInfo(**told))  # type: ignore[arg-type]


def batch(payloads: Sequence[Tensors], executed_rows: int) -> Tensors:
    return gather(payloads, [len(payload["x"]) for payload in payloads], executed_rows)


def borders(inputs: Tensors) -> list[tuple[str, int, int]]:
    _, found = requests_of(inputs, len(inputs["x"]))
    return [(each.info.request_id, each.first, each.end) for each in found]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 4))
def test_the_requests_of_a_gathered_batch_are_found_and_padding_is_in_none(sizes: list[int], padding: int) -> None:
    payloads = [request(rows, request_id=str(index)) for index, rows in enumerate(sizes)]
    ends = np.cumsum(sizes).tolist()
    expected = [(str(index), end - rows, end) for index, (rows, end) in enumerate(zip(sizes, ends, strict=True))]
    assert borders(batch(payloads, sum(sizes) + padding)) == expected


def test_two_requests_that_say_the_same_are_two() -> None:
    payloads = [request(1, request_id="a"), request(1, request_id="a")]
    assert borders(batch(payloads, 2)) == [("a", 0, 1), ("a", 1, 2)]


def test_a_request_that_was_cut_is_found_in_both_parts() -> None:
    whole = request(5, request_id="a")
    first, second = ({name: array[cut] for name, array in whole.items()} for cut in (slice(0, 2), slice(2, 5)))
    assert borders(batch([first], 2)) == [("a", 0, 2)]
    assert borders(batch([second, request(1, request_id="b")], 6)) == [("a", 0, 3), ("b", 3, 4)]


def test_all_that_is_told_comes_through() -> None:
    told = RequestInfo.of(
        InferRequest(
            model="m",
            inputs={},
            outputs=("z", "y"),
            request_id="é\n",
            timeout_ns=1_500_000,
            parameters={"colour": "red", "n": -3, "is": True, "x": 0.5, "large": 2**64 - 1},
            sequence_id="s",
            sequence_start=True,
            sequence_end=True,
        )
    )
    visible, (found,) = requests_of(attach({"x": np.zeros((1, 2))}, 1, told), 1)
    assert found.info == told
    assert (told.timeout_us, told.outputs) == (1_500, ("z", "y"))
    assert (told.sequence_id, told.sequence_start, told.sequence_end) == ("s", True, True)
    assert set(visible) == {"x"}


def test_a_batch_without_the_hidden_input_is_one_request() -> None:
    inputs = {"x": np.zeros((3, 2))}
    assert requests_of(inputs, 3) == (inputs, ((RequestInfo(), 0, 3),))


def test_the_inputs_of_the_caller_are_not_changed() -> None:
    inputs = {"x": np.zeros((1, 2))}
    assert attach(inputs, 1).keys() - inputs.keys() == {REQUEST_INPUT}


def test_parameters_that_are_too_large_to_repeat_are_refused_with_their_size() -> None:
    with pytest.raises(InvalidRequestError, match=r"take up 7\d{4} bytes as JSON, expected at most 65536"):
        request(1, parameters={"text": "x" * 70_000})


@pytest.mark.parametrize("value", [2**64, "half \ud800"], ids=["integer", "text"])
def test_parameters_that_cannot_be_handed_on_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be handed on"):
        request(1, parameters={"odd": value})
