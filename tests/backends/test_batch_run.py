"""What is saved of a batch that fails: halves without memory, guilty requests alone."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.batch_run import BatchRunner
from backends.errors import DeviceFaultError, ExecutionError, OutOfMemoryError, WorkerLostError, WrongRowsError
from backends.memory_cap import MemoryCap
from batching.clock import MonotonicClock
from models.inference import Tensors
from tests.backends.builders import POISON, ScriptedExecutor, failing, model, payload, tensor


class Memory:
    """An identity on a device with room for some rows; remembers the sizes that it was given."""

    def __init__(self, rows: int) -> None:
        self.room_rows = rows
        self.sizes: list[int] = []

    def __call__(self, inputs: Tensors, rows: int) -> Tensors:
        self.sizes.append(rows)
        if rows > self.room_rows:
            raise OutOfMemoryError(f"no memory for {rows} rows")
        return {"y": inputs["x"]}


class Poisoned:
    """An identity that fails on batches with POISON in them."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or ExecutionError("poison")
        self.sizes: list[int] = []

    def __call__(self, inputs: Tensors, rows: int) -> Tensors:
        self.sizes.append(rows)
        if POISON in inputs["x"]:
            raise self.error
        return {"y": inputs["x"]}


def runner(
    run: Callable[[Tensors, int], Tensors], *, allowed_rows: tuple[int, ...] = (), cap: MemoryCap | None = None
) -> BatchRunner:
    executor = ScriptedExecutor(model(), run=run)
    return BatchRunner(model(), executor, MonotonicClock(), allowed_rows, cap or MemoryCap(64))


def answers(results: list[object]) -> list[object]:
    return [type(result) if isinstance(result, Exception) else result["y"][:, 0].tolist() for result in results]


def test_a_batch_that_does_not_fit_is_run_in_halves_and_every_request_gets_its_rows():
    memory = Memory(3)

    run = runner(memory).run([payload(1, 2, 3, 4, 5), payload(6), payload(7, 8)])

    assert answers(run.results) == [[1, 2, 3, 4, 5], [6], [7, 8]]
    assert memory.sizes == [8, 4, 2, 2, 2, 2]


def test_what_did_not_fit_once_is_run_in_parts_from_the_start_the_next_time(caplog: pytest.LogCaptureFixture):
    memory, cap = Memory(4), MemoryCap(32)
    batches = runner(memory, cap=cap)
    batches.run([payload(*range(8))])
    memory.sizes.clear()

    run = batches.run([payload(*range(7)), payload(7)])

    assert answers(run.results) == [list(range(7)), [7]]
    assert memory.sizes == [4, 4]
    assert cap.rows == 4
    assert "model 'm' version 1: not enough memory for 8 rows, larger batches run in parts of 4" in caplog.text


def test_a_single_row_that_does_not_fit_fails_its_own_request_only():
    def no_room_for_7(inputs: Tensors, rows: int) -> Tensors:
        if 7 in inputs["x"] or rows > 2:
            raise OutOfMemoryError("no memory")
        return {"y": inputs["x"]}

    run = runner(no_room_for_7).run([payload(1), payload(7, 8), payload(3)])

    assert answers(run.results) == [[1], OutOfMemoryError, [3]]


def test_padding_counts_for_what_fits():
    memory, cap = Memory(4), MemoryCap(32, (4, 16))

    run = runner(memory, allowed_rows=(4, 16), cap=cap).run([payload(1, 2, 3), payload(4, 5, 6)])

    assert answers(run.results) == [[1, 2, 3], [4, 5, 6]]
    assert (memory.sizes, cap.rows) == ([16, 4, 4], 4)


def test_where_the_only_size_does_not_fit_nothing_is_tried_again():
    memory = Memory(4)

    run = runner(memory, allowed_rows=(8,), cap=MemoryCap(8, (8,))).run([payload(1, 2), payload(3)])

    assert answers(run.results) == [OutOfMemoryError] * 2
    assert memory.sizes == [8]


def test_requests_that_cannot_share_a_batch_are_run_apart():
    odd = {"x": np.zeros((1, 3), np.int64)}

    run = runner(Memory(8)).run([payload(1), odd])

    assert (run.errors, len(answers(run.results))) == (0, 2)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 8))
def test_whatever_the_room_every_row_comes_back_in_its_place(sizes: list[int], room_rows: int):
    numbers = iter(range(1_000))
    requests = [[next(numbers) for _ in range(size)] for size in sizes]

    run = runner(Memory(room_rows), cap=MemoryCap(64)).run([payload(*rows) for rows in requests])

    assert answers(run.results) == requests


@given(st.integers(2, 40), st.data())
def test_one_guilty_request_fails_alone_in_any_place(count: int, data: st.DataObject):
    guilty = data.draw(st.integers(0, count - 1))
    poisoned = Poisoned()

    run = runner(poisoned).run([payload(POISON if place == guilty else place) for place in range(count)])

    assert answers(run.results) == [ExecutionError if place == guilty else [place] for place in range(count)]
    assert len(poisoned.sizes) <= 1 + 2 * count.bit_length()


def test_several_guilty_requests_fail_and_the_rest_is_answered():
    guilty = {3, 4, 20}

    run = runner(Poisoned()).run([payload(POISON if place in guilty else place) for place in range(32)])

    assert [place for place, answer in enumerate(answers(run.results)) if answer is ExecutionError] == sorted(guilty)


def test_a_model_that_always_fails_is_given_up_after_seven_tries():
    poisoned = Poisoned()

    run = runner(poisoned).run([payload(POISON)] * 32)

    assert answers(run.results) == [ExecutionError] * 32
    assert poisoned.sizes == [32, 16, 16, 8, 8, 8, 8]


@pytest.mark.parametrize(
    "error", [DeviceFaultError("illegal access"), WrongRowsError(output="y", expected_rows=2, found_rows=1)]
)
def test_errors_that_are_nobodys_fault_do_not_run_the_batch_again(error: ExecutionError):
    poisoned = Poisoned(error)

    run = runner(poisoned).run([payload(POISON), payload(1)])

    assert answers(run.results) == [type(error)] * 2
    assert poisoned.sizes == [2]


def test_a_lost_worker_is_told_at_once():
    with pytest.raises(WorkerLostError, match="gone"):
        runner(failing(WorkerLostError("gone"))).run([payload(1), payload(2)])


def test_staged_memory_is_where_the_rows_are_gathered():
    class Staging(ScriptedExecutor):
        memory = np.zeros((8, 2), np.int64)

        def stage(self, name: str, shape: tuple[int, ...], dtype: object) -> np.ndarray:
            return self.memory[: shape[0]]

    seen: list[np.ndarray] = []
    executor = Staging(model(), run=lambda inputs, rows: seen.append(inputs["x"]) or {"y": inputs["x"].copy()})

    BatchRunner(model(), executor, MonotonicClock(), (), MemoryCap(32)).run([payload(5)])

    assert seen[0].base is Staging.memory
    assert Staging.memory[0].tolist() == [5, 5]


def test_a_request_without_batch_dimension_that_does_not_fit_fails():
    spec = model(inputs=[tensor("x")], outputs=[tensor("y")], max_batch_rows=0)
    executor = ScriptedExecutor(spec, run=failing(OutOfMemoryError("no memory")))

    run = BatchRunner(spec, executor, MonotonicClock(), (), MemoryCap(1)).run([{"x": np.array([1, 2])}])

    assert answers(run.results) == [OutOfMemoryError]
