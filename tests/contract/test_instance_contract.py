"""What every instance does, whatever executes inside."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.errors import ExecutionError, InstanceClosedError
from batching.ports import BatchResult, Instance
from models.inference import Tensors
from tests.backends.builders import POISON, identity_executor, model, payload, started, thread_names


@pytest.fixture(params=["thread-fake", "thread-onnxruntime"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param.removeprefix("thread-")


def rows_answered(result: BatchResult[Tensors]) -> list[list[int]]:
    return [answer["y"][:, 0].tolist() for answer in result.results]


async def outcomes(instance: Instance[Tensors, Tensors], batches: Sequence[Sequence[Tensors]]) -> list[object]:
    return await asyncio.gather(*(instance.execute(batch) for batch in batches), return_exceptions=True)


@pytest.mark.parametrize("sizes", [[1], [3], [1, 1], [2, 1, 4], [1] * 16])
async def test_each_request_gets_its_own_rows_in_order(kind: str, tmp_path: Path, sizes: list[int]):
    numbers = iter(range(100))
    wanted = [[next(numbers) for _ in range(size)] for size in sizes]
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance:
        result = await instance.execute([payload(*rows) for rows in wanted])

    assert rows_answered(result) == wanted
    assert result.executed_rows == sum(sizes)


async def test_padding_is_executed_and_answered_to_nobody(kind: str, tmp_path: Path):
    spec = model(allowed_rows=(4, 8))
    async with started(spec, identity_executor(kind, tmp_path, spec)) as instance:
        result = await instance.execute([payload(1, 2), payload(3, 4, 5)])

    assert result.executed_rows == 8
    assert rows_answered(result) == [[1, 2], [3, 4, 5]]


async def test_a_failing_batch_fails_alone(kind: str, tmp_path: Path):
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance:
        before, failed, after = await outcomes(instance, [[payload(1)], [payload(POISON)], [payload(3)]])

    assert isinstance(failed, ExecutionError)
    assert isinstance(before, BatchResult)
    assert isinstance(after, BatchResult)
    assert (rows_answered(before), rows_answered(after)) == ([[1]], [[3]])


@pytest.mark.parametrize("guilty", [0, 5, 31])
async def test_of_a_batch_only_the_request_that_fails_alone_fails(kind: str, tmp_path: Path, guilty: int):
    numbers = [POISON if place == guilty else place for place in range(32)]
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance:
        result = await instance.execute([payload(number) for number in numbers])

    failures = [place for place, answer in enumerate(result.results) if isinstance(answer, ExecutionError)]
    answers = [answer["y"][0, 0] for answer in result.results if not isinstance(answer, Exception)]
    assert failures == [guilty]
    assert answers == [number for number in numbers if number != POISON]


async def test_statistics_add_up(kind: str, tmp_path: Path):
    spec = model(allowed_rows=(2, 4))
    async with started(spec, identity_executor(kind, tmp_path, spec)) as instance:
        await outcomes(instance, [[payload(1)], [payload(1, 2), payload(3)], [payload(POISON)]])
        statistics = instance.statistics()

    assert (statistics.executions, statistics.failed_executions) == (3, 1)
    assert (statistics.rows, statistics.padding_rows) == (1 + 3 + 1, 1 + 1 + 1)
    assert statistics.busy_ns > 0
    assert (statistics.name, statistics.device) == (instance.name, instance.device)


async def test_the_stages_follow_each_other_and_are_the_busy_time(kind: str, tmp_path: Path):
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance:
        times = (await instance.execute([payload(1), payload(2)])).times
        busy_ns = instance.statistics().busy_ns

    assert times.started_ns <= times.gathered_ns <= times.computed_ns <= times.ended_ns
    assert times.ended_ns - times.started_ns <= busy_ns


@pytest.mark.parametrize("turns", range(4))
async def test_a_caller_that_leaves_does_not_disturb_the_others(kind: str, tmp_path: Path, turns: int):
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance, asyncio.TaskGroup() as tasks:
        leaving, *staying = (tasks.create_task(instance.execute([payload(number)])) for number in range(4))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        answers = [rows_answered(await task) for task in staying]

    assert answers == [[[1]], [[2]], [[3]]]


async def test_closing_answers_everything_and_refuses_what_comes_later(kind: str, tmp_path: Path):
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance, asyncio.TaskGroup() as tasks:
        calls = tasks.create_task(outcomes(instance, [[payload(number)] for number in range(16)]))
        await asyncio.sleep(0)
        await instance.aclose()
        answers = await calls
        with pytest.raises(InstanceClosedError, match="m_0"):
            await instance.execute([payload(1)])

    assert len(answers) == 16
    assert all(isinstance(answer, BatchResult | InstanceClosedError) for answer in answers)


async def test_no_thread_is_left_after_closing_twice(kind: str, tmp_path: Path):
    async with started(model(), identity_executor(kind, tmp_path, model())) as instance:
        assert instance.name in thread_names()
        await asyncio.gather(instance.aclose(), instance.aclose())

    assert instance.name not in thread_names()
