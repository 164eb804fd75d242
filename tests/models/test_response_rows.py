"""Parameters of an answer, through all that happens to it on its way."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.inference import Tensors
from models.response_rows import joined, parameters_of, with_parameters

TOLD = {"colour": "red", "n": -3, "is": True}


def outputs(rows: int) -> Tensors:
    return {"y": np.arange(rows * 2).reshape(rows, 2)}


@given(st.integers(1, 6), st.lists(st.integers(1, 5), max_size=3))
def test_an_answer_that_is_cut_and_joined_has_its_parameters_still(rows: int, cuts: list[int]) -> None:
    whole = with_parameters(outputs(rows), rows, TOLD)
    ends = sorted({0, rows, *(cut for cut in cuts if cut < rows)})
    parts = [{name: array[start:end] for name, array in whole.items()} for start, end in itertools.pairwise(ends)]
    again = joined(parts)
    np.testing.assert_array_equal(again["y"], whole["y"])
    assert parameters_of(again) == TOLD


def test_parts_may_say_different_things_or_nothing() -> None:
    told = [with_parameters(outputs(2), 2, {"a": 1, "b": 1}), outputs(1), with_parameters(outputs(1), 1, {"a": 2})]
    assert parameters_of(joined(told)) == {"a": 2, "b": 1}
    assert len(joined(told)["y"]) == 4


def test_an_answer_without_parameters_is_left_as_it_is() -> None:
    plain = outputs(2)
    assert with_parameters(plain, 2, {}) is plain
    assert parameters_of(plain) == {}
    assert joined([plain, plain]).keys() == {"y"}


def test_what_json_has_not_is_refused() -> None:
    with pytest.raises(TypeError, match="64-bit"):
        with_parameters(outputs(1), 1, {"n": 2**64})
