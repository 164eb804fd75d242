"""A thread instance in hard times: leaving callers, closing, failing loads, code that raises anything."""

import asyncio
import logging
import threading

import numpy as np
import pytest

from backends.errors import BackendError, ExecutionError, InstanceClosedError, LoadError, WrongRowsError
from backends.fake import FakeExecutor
from backends.request_answers import join_answers
from models.inference import Tensors
from tests.backends.builders import (
    Gate,
    ScriptedExecutor,
    failing,
    gated,
    model,
    payload,
    started,
    tensor,
    thread_instance,
    thread_names,
)


async def test_a_cancelled_batch_still_finishes_and_its_late_answer_is_dropped_in_silence(
    caplog: pytest.LogCaptureFixture,
):
    gate = Gate()
    async with started(model(), gated(model(), gate)) as instance, asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(instance.execute([payload(1)]))
        staying = tasks.create_task(instance.execute([payload(2)]))
        await gate.wait_until_entered()
        leaving.cancel()
        gate.open()
        result = await staying

    assert leaving.cancelled()
    np.testing.assert_array_equal(result.results[0]["y"], [[2, 2]])
    assert instance.statistics().executions == 2
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_late_error_for_a_caller_that_left_is_not_reported_as_lost(caplog: pytest.LogCaptureFixture):
    gate = Gate()
    executor = FakeExecutor(model(), service_ns=lambda rows: 1, sleep=gate.pass_through, fail_on_value=1)
    async with started(model(), executor) as instance, asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(instance.execute([payload(1)]))
        await gate.wait_until_entered()
        leaving.cancel()
        gate.open()

    assert leaving.cancelled()
    assert instance.statistics().failed_executions == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_closing_refuses_what_waits_at_once_and_lets_the_running_batch_finish():
    gate = Gate()
    async with started(model(), gated(model(), gate)) as instance, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(instance.execute([payload(1)]))
        await gate.wait_until_entered()
        waiting = tasks.create_task(asyncio.wait([asyncio.Task(instance.execute([payload(2)]))]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing = tasks.create_task(instance.aclose())
        (refused,), _ = await waiting
        assert not running.done()
        gate.open()
        await closing

    assert isinstance(refused.exception(), InstanceClosedError)
    np.testing.assert_array_equal(running.result().results[0]["y"], [[1, 1]])
    assert instance.name not in thread_names()


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this works")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), UnprintableError()]
)
async def test_model_code_that_raises_anything_at_all_fails_its_batch_only(error: BaseException):
    def fail_on_1(inputs: Tensors, rows: int) -> Tensors:
        if 1 in inputs["x"]:
            raise error
        return {"y": inputs["x"]}

    executor = ScriptedExecutor(model(), run=fail_on_1)
    async with started(model(), executor) as instance:
        with pytest.raises(ExecutionError, match=type(error).__name__) as caught:
            await instance.execute([payload(1)])
        result = await instance.execute([payload(2)])

    assert caught.value.__cause__ is error
    np.testing.assert_array_equal(result.results[0]["y"], [[2, 2]])


async def test_an_error_of_this_package_reaches_the_caller_as_it_is():
    error = ExecutionError("the engine says no")
    async with started(model(), ScriptedExecutor(model(), run=failing(error))) as instance:
        with pytest.raises(BackendError) as caught:
            await instance.execute([payload(1)])

    assert caught.value is error


async def test_requests_that_all_fail_are_each_told_their_own_error():
    def refuse(inputs: Tensors, rows: int) -> Tensors:
        return join_answers([ExecutionError(f"no {value}") for value in inputs["x"][:, 0]], [1] * rows, rows)

    async with started(model(), ScriptedExecutor(model(), run=refuse)) as instance:
        result = await instance.execute([payload(1), payload(2)])

    assert [str(error) for error in result.results] == ["no 1", "no 2"]
    assert instance.statistics().failed_executions == 1


async def test_a_batch_that_fails_as_a_whole_raises_the_error():
    out_of_order = WrongRowsError(output="y", expected_rows=2, found_rows=1)
    async with started(model(), ScriptedExecutor(model(), run=failing(out_of_order))) as instance:
        with pytest.raises(WrongRowsError) as caught:
            await instance.execute([payload(1), payload(2)])

    assert caught.value is out_of_order


async def test_a_model_that_answers_too_few_rows_is_told_so():
    executor = ScriptedExecutor(model(), run=lambda inputs, rows: {"y": inputs["x"][:-1]})
    async with started(model(), executor) as instance:
        with pytest.raises(WrongRowsError, match="output 'y' has 2 rows for a batch of 3"):
            await instance.execute([payload(1), payload(2, 3)])


async def test_a_batch_larger_than_every_allowed_size_fails_without_being_run():
    spec = model(allowed_rows=(1, 2))
    async with started(spec, ScriptedExecutor(spec, run=failing(AssertionError("was run")))) as instance:
        with pytest.raises(ExecutionError, match="largest allowed size is 2"):
            await instance.execute([payload(1, 2, 3)])

    assert (instance.statistics().rows, instance.statistics().padding_rows) == (3, 0)


async def test_a_model_without_batch_dimension_runs_one_request_as_it_is():
    spec = model(inputs=[tensor("x", dims=(3,))], outputs=[tensor("y", dims=(3,))], max_batch_rows=0)
    request = {"x": np.array([7, 8, 9])}
    async with started(spec, FakeExecutor(spec)) as instance:
        result = await instance.execute([request])
        with pytest.raises(ExecutionError, match="runs 1 request, found 2"):
            await instance.execute([request, request])

    assert result.executed_rows == 1
    np.testing.assert_array_equal(result.results[0]["y"], [7, 8, 9])


async def test_the_executor_is_loaded_warmed_and_closed_in_order():
    steps: list[object] = []
    executor = ScriptedExecutor(
        model(), load=lambda: steps.append("load"), warm_up=steps.append, close=lambda: steps.append("close")
    )
    instance = thread_instance(model(), executor)

    await instance.start([1, 4])
    await instance.aclose()

    assert steps == ["load", [1, 4], "close"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(LoadError("no such file"), "^no such file$", id="load error"),
        pytest.param(OSError("disk on fire"), "^instance 'm_0': OSError: disk on fire$", id="exception"),
        pytest.param(SystemExit(), "^instance 'm_0': SystemExit$", id="exit"),
    ],
)
@pytest.mark.parametrize("step", ["load", "warm_up"])
async def test_whatever_keeps_the_model_from_loading_is_a_load_error(step: str, error: BaseException, text: str):
    instance = thread_instance(model(), ScriptedExecutor(model(), **{step: failing(error)}))

    with pytest.raises(LoadError, match=text):
        await instance.start([1])

    await instance.aclose()
    assert instance.name not in thread_names()


async def test_an_instance_that_nobody_waited_to_load_can_be_closed():
    gate = Gate()
    instance = thread_instance(model(), ScriptedExecutor(model(), load=gate.pass_through))
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(instance.start())
        await gate.wait_until_entered()
        starting.cancel()
        closing = tasks.create_task(instance.aclose())
        gate.open()
        await closing

    assert starting.cancelled()
    assert instance.name not in thread_names()


async def test_a_close_that_is_cancelled_can_be_waited_for_again():
    gate = Gate()
    async with started(model(), gated(model(), gate)) as instance, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(instance.execute([payload(1)]))
        await gate.wait_until_entered()
        closing = tasks.create_task(instance.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        gate.open()
        await instance.aclose()

    assert running.result().executed_rows == 1
    assert instance.name not in thread_names()


async def test_an_instance_that_is_not_started_takes_nothing_and_closes():
    instance = thread_instance(model(), FakeExecutor(model()))

    with pytest.raises(InstanceClosedError, match="'m_0' is not started"):
        await instance.execute([payload(1)])
    await instance.aclose()


async def test_an_executor_that_cannot_be_closed_is_logged_and_the_thread_ends(caplog: pytest.LogCaptureFixture):
    async with started(model(), ScriptedExecutor(model(), close=failing(OSError("stuck")))) as instance:
        await instance.aclose()

    assert "instance 'm_0': the executor could not be closed" in caplog.text
    assert instance.name not in thread_names()


def test_a_loop_that_ended_during_a_batch_does_not_break_the_thread():
    gate = Gate()
    instance = thread_instance(model(), gated(model(), gate), name="orphan")

    async def leave() -> None:
        await instance.start()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(instance.execute([payload(1)]))
            await gate.wait_until_entered()
            running.cancel()
            instance.stop_nowait()

    asyncio.run(leave())
    threads = [thread for thread in threading.enumerate() if thread.name == "orphan"]
    gate.open()
    for thread in threads:
        thread.join(timeout=10)

    assert threads
    assert "orphan" not in thread_names()
