"""Answers to single requests, on their way from an executor to whoever has asked."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.batch_run import BatchRun, BatchRunner
from backends.errors import CodeError, CodeInvalidArgumentError, ExecutionError, NonFiniteError, WrongRowsError
from backends.memory_cap import MemoryCap
from backends.request_answers import Answer, are_split, join_answers, split_answers
from batching.clock import MonotonicClock
from models.inference import Tensors
from models.spec import ExecutionSpec, NonFinite
from tests.backends.builders import ScriptedExecutor, model, payload


def answer(*rows: Sequence[float]) -> Tensors:
    return {"y": np.array(rows)}


def shown(found: Answer) -> object:
    return repr(found) if isinstance(found, ExecutionError) else {name: array.tolist() for name, array in found.items()}


def test_answers_that_agree_are_one_dense_batch_with_its_padding() -> None:
    joined = join_answers([answer([1, 2]), answer([3, 4], [5, 6])], [1, 2], 4)
    assert not are_split(joined)
    assert joined["y"].tolist() == [[1, 2], [3, 4], [5, 6], [5, 6]]


def test_the_answer_to_the_only_request_is_not_copied() -> None:
    only = answer([1, 2])
    assert join_answers([only], [1], 1) is only


DIFFERENT: dict[str, list[Answer]] = {
    "row shapes": [answer([1, 2]), answer([1, 2, 3])],
    "outputs": [answer([1, 2]), {"z": np.array([[b"a"]], object)}],
    "an error": [answer([1, 2]), CodeInvalidArgumentError("no such colour")],
    "errors only": [CodeError("a"), ExecutionError("b")],
    "fields": [answer([1, 2]), WrongRowsError(output="y", expected_rows=1, found_rows=2)],
}


@pytest.mark.parametrize("answers", DIFFERENT.values(), ids=DIFFERENT)
def test_answers_that_differ_come_through_as_they_are(answers: list[Answer]) -> None:
    joined = join_answers(answers, [1, 1], 2)
    assert are_split(joined)
    found = split_answers(joined, [1, 1])
    assert [shown(each) for each in found] == [shown(each) for each in answers]
    assert [vars(each) for each in found if isinstance(each, ExecutionError)] == [
        vars(each) for each in answers if isinstance(each, ExecutionError)
    ]


def test_payloads_that_are_parts_of_answers_get_their_rows() -> None:
    joined = join_answers([answer([1], [2], [3]), answer([4, 4])], [3, 1], 4)
    found = split_answers(joined, [1, 2, 1])
    assert [shown(each) for each in found] == [{"y": [[1]]}, {"y": [[2], [3]]}, {"y": [[4, 4]]}]


def test_a_payload_over_several_answers_gets_all_or_the_error() -> None:
    joined = join_answers([answer([1]), answer([2]), CodeError("no")], [1, 1, 1], 3)
    assert [shown(each) for each in split_answers(joined, [2, 1])] == [{"y": [[1], [2]]}, "CodeError('no')"]
    assert [shown(each) for each in split_answers(joined, [1, 2])] == [{"y": [[1]]}, "CodeError('no')"]


def test_the_error_of_the_only_request_is_raised() -> None:
    with pytest.raises(CodeInvalidArgumentError, match="no such colour"):
        join_answers([CodeInvalidArgumentError("no such colour")], [1], 4)


def test_answers_to_another_number_of_rows_are_nobodys() -> None:
    with pytest.raises(WrongRowsError):
        split_answers(join_answers([answer([1]), CodeError("no")], [1, 1], 2), [1, 1, 1])


def run_batch(answers: Sequence[Answer], *, non_finite: NonFinite = NonFinite.COUNT) -> tuple[BatchRun, list[int]]:
    """Two requests, padded to four rows, which an executor answers so; and the sizes of its batches."""
    sizes: list[int] = []

    def run(_inputs: Tensors, rows: int) -> Tensors:
        sizes.append(rows)
        return join_answers(answers, [1, 1], rows)

    spec = replace(model(), execution=ExecutionSpec(non_finite=non_finite))
    runner = BatchRunner(spec, ScriptedExecutor(spec, run=run), MonotonicClock(), (4,), MemoryCap(4))
    return runner.run([payload(1), payload(2)]), sizes


def test_a_batch_with_one_failed_request_is_run_once_and_fails_that_request_only() -> None:
    run, sizes = run_batch([answer([1, 2]), CodeError("no")])
    assert [shown(result) for result in run.results] == [{"y": [[1, 2]]}, "CodeError('no')"]
    assert (sizes, run.errors, run.executed_rows) == ([4], 1, 4)


def test_numbers_that_are_none_fail_their_own_request_where_the_version_says_so() -> None:
    run, _ = run_batch([answer([1, 2]), answer([1, np.nan, 3])], non_finite=NonFinite.FAIL)
    assert [type(result) for result in run.results] == [dict, NonFiniteError]
    assert (run.errors, run.non_finite_rows) == (1, 1)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_whatever_the_borders_every_row_or_its_error_comes_to_who_asked(counts: list[int], data: st.DataObject) -> None:
    fails = data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    borders = data.draw(st.sets(st.integers(1, max(1, sum(counts) - 1))).map(sorted))
    ends = [border for border in borders if border < sum(counts)] + [sum(counts)]
    owners = [owner for owner, count in enumerate(counts) for _ in range(count)]
    answers = [
        CodeError(str(owner)) if fails[owner] else answer(*([row] for row, of in enumerate(owners) if of == owner))
        for owner in range(len(counts))
    ]
    joined = join_answers([*answers, CodeError("last")], [*counts, 1], len(owners) + 1)

    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    *found, last = split_answers(joined, [*sizes, 1])

    for start, end, each in zip([0, *ends], ends, found, strict=False):
        guilty = [owner for owner in owners[start:end] if fails[owner]]
        rows = {"y": [[row] for row in range(start, end)]}
        assert shown(each) == (f"CodeError('{guilty[0]}')" if guilty else rows)
    assert shown(last) == "CodeError('last')"
