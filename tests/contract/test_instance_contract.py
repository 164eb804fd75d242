"""What every instance does, whatever executes inside."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from backends.errors import ExecutionError, InstanceClosedError
from batching.ports import BatchResult, Instance
from models.inference import Tensors
from models.spec import ModelSpec
from tests.backends.builders import POISON, model, payload, thread_names
from tests.contract.kinds import Running, crossed, identity, instance_in

Start = Callable[[ModelSpec], AbstractAsyncContextManager[Running]]


@pytest.fixture(params=crossed("here", "worker", "pool"))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Makes an instance of the identity for a version."""
    backend, host = request.param
    return lambda spec: instance_in(host, identity(backend, tmp_path, spec))


def rows_answered(result: BatchResult[Tensors]) -> list[list[int]]:
    return [answer["y"][:, 0].tolist() for answer in result.results]


async def outcomes(instance: Instance[Tensors, Tensors], batches: Sequence[Sequence[Tensors]]) -> list[object]:
    return await asyncio.gather(*(instance.execute(batch) for batch in batches), return_exceptions=True)


@pytest.mark.parametrize("sizes", [[1], [3], [1, 1], [2, 1, 4], [1] * 16])
async def test_each_request_gets_its_own_rows_in_order(start: Start, sizes: list[int]):
    numbers = iter(range(100))
    wanted = [[next(numbers) for _ in range(size)] for size in sizes]
    async with start(model()) as (instance, _):
        result = await instance.execute([payload(*rows) for rows in wanted])

    assert rows_answered(result) == wanted
    assert result.executed_rows == sum(sizes)


async def test_padding_is_executed_and_answered_to_nobody(start: Start):
    spec = model(allowed_rows=(4, 8))
    async with start(spec) as (instance, _):
        result = await instance.execute([payload(1, 2), payload(3, 4, 5)])

    assert result.executed_rows == 8
    assert rows_answered(result) == [[1, 2], [3, 4, 5]]


async def test_a_failing_batch_fails_alone(start: Start):
    async with start(model()) as (instance, _):
        before, failed, after = await outcomes(instance, [[payload(1)], [payload(POISON)], [payload(3)]])

    assert isinstance(failed, ExecutionError)
    assert isinstance(before, BatchResult)
    assert isinstance(after, BatchResult)
    assert (rows_answered(before), rows_answered(after)) == ([[1]], [[3]])


@pytest.mark.parametrize("guilty", [0, 5, 31])
async def test_of_a_batch_only_the_request_that_fails_alone_fails(start: Start, guilty: int):
    numbers = [POISON if place == guilty else place for place in range(32)]
    async with start(model()) as (instance, _):
        result = await instance.execute([payload(number) for number in numbers])

    failures = [place for place, answer in enumerate(result.results) if isinstance(answer, ExecutionError)]
    answers = [answer["y"][0, 0] for answer in result.results if not isinstance(answer, Exception)]
    assert failures == [guilty]
    assert answers == [number for number in numbers if number != POISON]


async def test_statistics_add_up(start: Start):
    spec = model(allowed_rows=(2, 4))
    async with start(spec) as (instance, _):
        await outcomes(instance, [[payload(1)], [payload(1, 2), payload(3)], [payload(POISON)]])
        statistics = instance.statistics()

    assert (statistics.executions, statistics.failed_executions) == (3, 1)
    assert (statistics.rows, statistics.padding_rows) == (1 + 3 + 1, 1 + 1 + 1)
    assert statistics.busy_ns > 0
    assert (statistics.name, statistics.device) == (instance.name, instance.device)


async def test_the_stages_follow_each_other_and_are_the_busy_time(start: Start):
    async with start(model()) as (instance, _):
        times = (await instance.execute([payload(1), payload(2)])).times
        busy_ns = instance.statistics().busy_ns

    assert times.started_ns <= times.gathered_ns <= times.computed_ns <= times.ended_ns
    assert times.ended_ns - times.started_ns <= busy_ns


@pytest.mark.parametrize("turns", range(4))
async def test_a_caller_that_leaves_does_not_disturb_the_others(start: Start, turns: int):
    async with start(model()) as (instance, _), asyncio.TaskGroup() as tasks:
        leaving, *staying = (tasks.create_task(instance.execute([payload(number)])) for number in range(4))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        answers = [rows_answered(await task) for task in staying]

    assert answers == [[[1]], [[2]], [[3]]]


async def test_closing_answers_everything_and_refuses_what_comes_later(start: Start):
    async with start(model()) as (instance, aclose), asyncio.TaskGroup() as tasks:
        calls = tasks.create_task(outcomes(instance, [[payload(number)] for number in range(16)]))
        await asyncio.sleep(0)
        await aclose()
        answers = await calls
        with pytest.raises(InstanceClosedError, match="m_0"):
            await instance.execute([payload(1)])

    assert len(answers) == 16
    assert all(isinstance(answer, BatchResult | InstanceClosedError) for answer in answers)


@pytest.mark.parametrize("is_closed", [False, True])
async def test_the_outcome_is_told_once_and_not_before_submit_has_returned(start: Start, is_closed: bool):
    outcomes: list[object] = []
    told = asyncio.Event()
    async with start(model()) as (instance, aclose):
        if is_closed:
            await aclose()
        instance.submit([payload(1)], lambda outcome: (outcomes.append(outcome), told.set()))
        told_at_once = list(outcomes)
        await told.wait()

    assert told_at_once == []
    assert [isinstance(outcome, InstanceClosedError) for outcome in outcomes] == [is_closed]


async def test_no_thread_is_left_after_closing_twice(start: Start):
    async with start(model()) as (instance, aclose):
        assert instance.name in thread_names()
        await asyncio.gather(aclose(), aclose())

    assert instance.name not in thread_names()
