"""Worker processes in hard times: they die, hang, lie and are ended, and nothing of them is left."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.errors import ExecutionError, LoadError, WorkerLostError
from backends.ports import Placement
from backends.process.worker_process import WorkerProcess
from batching.clock import SECOND_NS, MonotonicClock
from tests.backends.builders import model, payload
from tests.backends.process.builders import (
    CLOSE_SOCKETS,
    EXIT,
    LOOP,
    RAISE,
    SEGFAULT,
    WRITE_TO_SOCKETS,
    busy,
    loaded,
    open_fds,
    save_code,
    save_deeds,
    shared_memory,
    started_worker,
    until,
)

pytestmark = pytest.mark.long

in_thread: Callable[..., Any] = asyncio.to_thread

SLOW = {"service_base_us": "30000000"}


def children() -> set[str]:
    """Processes that this thread has started, zombies included."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (SEGFAULT, r"was killed by signal 11 \(SIGSEGV\)"),
        (EXIT, "exited with status 3"),
        (WRITE_TO_SOCKETS, "was ended: it sent what no worker sends"),
        (CLOSE_SOCKETS, "was ended: it closed a connection of its own|exited with status 1"),
    ],
)
async def test_model_code_that_ends_or_ruins_its_process_fails_the_batch_with_the_reason(
    tmp_path: Path, deed: int, reason: str
):
    async with started_worker("w") as worker:
        executor = await loaded(worker, save_deeds(tmp_path))

        with pytest.raises(WorkerLostError, match=rf"worker 'w' \(pid {worker.pid}\) ({reason})"):
            await in_thread(executor.run, payload(deed), 1)

        assert await worker.wait_ended()


async def test_an_endless_loop_is_seen_beats_on_and_can_be_ended(tmp_path: Path):
    clock = MonotonicClock()
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        executor = await loaded(worker, save_deeds(tmp_path))
        assert list(worker.pulse().steps.values()) == [0]
        began_ns = clock.now_ns()
        running = tasks.create_task(fails_with(executor.run, payload(LOOP)))
        await busy(worker)
        (busy_since_ns,) = worker.pulse().steps.values()
        await until(lambda: worker.pulse().heartbeat_ns > busy_since_ns + SECOND_NS // 5)
        worker.kill("its step took longer than 1 s")

        assert began_ns < busy_since_ns < clock.now_ns()
        assert "was ended: its step took longer than 1 s" in str(await running)
        assert await worker.wait_ended() == "was ended: its step took longer than 1 s"


async def fails_with(run: Callable[..., Any], inputs: Any) -> WorkerLostError:
    with pytest.raises(WorkerLostError) as caught:
        await in_thread(run, inputs, 1)
    return caught.value


async def test_a_stopped_worker_is_seen_and_can_be_ended_while_a_batch_is_in_it():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        executor = await loaded(worker, model(**SLOW))
        running = tasks.create_task(fails_with(executor.run, payload(1)))
        await busy(worker)
        os.kill(worker.pid, signal.SIGSTOP)
        await until(lambda: worker.pulse().is_stopped)
        worker.kill("it was stopped")

        assert "it was stopped" in str(await running)


async def test_a_failing_batch_leaves_the_worker_as_it_is(tmp_path: Path):
    async with started_worker() as worker:
        executor = await loaded(worker, save_deeds(tmp_path))

        with pytest.raises(ExecutionError, match="ZeroDivisionError"):
            await in_thread(executor.run, payload(RAISE), 1)

        outputs = await in_thread(executor.run, payload(5), 1)
        np.testing.assert_array_equal(outputs["y"], [[5, 5]])
        assert not worker.has_ended


def new_fds(before: Mapping[str, str]) -> dict[str, str]:
    """Descriptors that were not there before, with what they are of."""
    return {fd: target for fd, target in open_fds().items() if before.get(fd) != target}


@pytest.mark.slow
async def test_twenty_workers_that_are_killed_with_a_batch_in_them_leave_nothing_behind():
    async def one_round() -> None:
        async with started_worker() as worker, asyncio.TaskGroup() as tasks:
            executor = await loaded(worker, model(**SLOW))
            running = tasks.create_task(fails_with(executor.run, payload(1)))
            await busy(worker)
            os.kill(worker.pid, signal.SIGKILL)
            assert "was killed by signal 9 (SIGKILL)" in str(await running)
            assert await worker.wait_ended() == "was killed by signal 9 (SIGKILL)"

    await one_round()  # starts the threads that stay
    gc.collect()
    fds, memory, processes = open_fds(), shared_memory(), children()
    for _ in range(10):
        await asyncio.gather(one_round(), one_round())
    gc.collect()

    assert new_fds(fds) == {}
    assert not set(shared_memory()) - set(memory)
    assert children() <= processes


async def test_a_worker_that_is_closed_in_order_closes_its_executors_and_leaves_nothing_behind(tmp_path: Path):
    code = """
from pathlib import Path

class Model:
    def execute(self, inputs):
        return {"y": inputs["x"]}

    def close(self):
        Path(__file__).with_name("closed").touch()
"""
    await in_thread(lambda: None)  # starts the thread that stays
    gc.collect()
    fds, memory, processes, threads = open_fds(), shared_memory(), children(), threading.active_count()
    async with started_worker() as worker:
        spec = save_code(tmp_path, code)
        executor = await loaded(worker, spec)
        await asyncio.gather(worker.aclose(), worker.aclose())
        with pytest.raises(WorkerLostError, match="exited with status 0"):
            await in_thread(executor.run, payload(1), 1)
    del executor
    gc.collect()

    assert await worker.wait_ended() == "exited with status 0"
    assert spec.file.with_name("closed").exists()
    assert (new_fds(fds), threading.active_count()) == ({}, threads)
    assert not set(shared_memory()) - set(memory)
    assert children() <= processes


async def test_a_running_batch_is_answered_before_the_worker_closes():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        executor = await loaded(worker, model(service_base_us="200000"))
        running = tasks.create_task(in_thread(executor.run, payload(1), 1))
        await busy(worker)
        await worker.aclose()
        outputs = await running

    np.testing.assert_array_equal(outputs["y"], [[1, 1]])


async def test_a_worker_that_does_not_close_in_time_is_killed():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        executor = await loaded(worker, model(**SLOW))
        running = tasks.create_task(fails_with(executor.run, payload(1)))
        await busy(worker)
        await worker.aclose(grace_s=0.1)

        assert await worker.wait_ended() == "was ended: it did not end within 0.1 s"
        assert "did not end within 0.1 s" in str(await running)


async def test_closing_that_is_cancelled_kills_the_worker():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        executor = await loaded(worker, model(**SLOW))
        tasks.create_task(fails_with(executor.run, payload(1)))
        await busy(worker)
        closing = tasks.create_task(worker.aclose(grace_s=60))
        await asyncio.sleep(0)
        closing.cancel()

        assert "was ended" in await worker.wait_ended()


async def test_all_who_wait_hear_of_the_end():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(worker.wait_ended()) for _ in range(3)]
        await asyncio.sleep(0)
        os.kill(worker.pid, signal.SIGTERM)

    assert [task.result() for task in waiting] == ["was killed by signal 15 (SIGTERM)"] * 3
    assert worker.has_ended
    assert worker.pulse().steps == {}


async def test_a_worker_that_ended_takes_no_models_and_may_be_killed_again():
    async with started_worker() as worker:
        worker.kill("first")
        worker.kill("second")
        await worker.wait_ended()
        worker.kill("third")

        with pytest.raises(WorkerLostError, match="was ended: first"):
            await worker.assign(model(), Placement())


async def test_a_worker_that_dies_while_it_takes_a_model_says_so(tmp_path: Path):
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        os.kill(worker.pid, signal.SIGSTOP)  # or it might be done before it is killed
        assigning = tasks.create_task(refused(worker))
        await asyncio.sleep(0)
        worker.kill("no more patience")

        assert "was ended: no more patience" in str(await assigning)


async def refused(worker: WorkerProcess) -> WorkerLostError:
    with pytest.raises(WorkerLostError) as caught:
        await worker.assign(model(), Placement())
    return caught.value


async def test_an_assignment_that_nobody_waits_for_any_more_is_given_up():
    async with started_worker() as worker, asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(worker.assign(model(), Placement(instances=3)))
        await asyncio.sleep(0)
        leaving.cancel()
        staying = await worker.assign(model(), Placement(instances=2))

        assert [len(lanes) for lanes in staying] == [1, 1]
        assert list(worker.pulse().steps.values()) == [0, 0]


async def test_a_worker_that_cannot_start_says_how_it_ended(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(WorkerLostError, match="exited with status 1"):
        async with started_worker(environment={"PYTHONHOME": "/nowhere"}):
            pass
    capfd.readouterr()


async def test_a_worker_that_was_never_started_can_be_closed():
    worker = WorkerProcess("w", clock=MonotonicClock())

    await worker.aclose()

    assert (worker.pid, worker.has_ended) == (0, False)


async def test_grandchildren_go_with_the_worker(tmp_path: Path):
    code = """
import os, subprocess, sys
from pathlib import Path

class Model:
    def __init__(self):
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def execute(self, inputs):
        return {"y": inputs["x"] * 0 + self.child.pid}
"""
    async with started_worker() as worker:
        executor = await loaded(worker, save_code(tmp_path, code))
        pid = int((await in_thread(executor.run, payload(1), 1))["y"][0, 0])
        grandchild = os.pidfd_open(pid)
        os.kill(worker.pid, signal.SIGKILL)
        await worker.wait_ended()

    await readable(grandchild)
    os.close(grandchild)


async def readable(pidfd: int) -> None:
    """Until the process has ended."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    async with asyncio.timeout(20):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)


@pytest.mark.parametrize("ending", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
async def test_a_gateway_that_dies_takes_its_workers_with_it(ending: str):
    code = f"""
import asyncio, os, signal
from backends.process.worker_process import WorkerProcess
from batching.clock import MonotonicClock

async def main():
    worker = WorkerProcess("w", clock=MonotonicClock())
    await worker.start()
    print(worker.pid, flush=True)
    input()
    {ending}

asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", code, stdin=pipe, stdout=pipe)
    assert gateway.stdout is not None
    worker = os.pidfd_open(int(await gateway.stdout.readline()))
    await gateway.communicate(b"now\n")
    await readable(worker)
    os.close(worker)


async def test_what_a_worker_prints_goes_to_stderr_and_its_environment_is_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    code = """
import os
print("hello from", os.environ["MALLOC_ARENA_MAX"], flush=True)

class Model:
    def execute(self, inputs):
        return {"y": inputs["x"]}
"""
    async with started_worker(environment={"MALLOC_ARENA_MAX": "2"}) as worker:
        await loaded(worker, save_code(tmp_path, code))

    out, err = capfd.readouterr()
    assert (out, "hello from 2" in err) == ("", True)


async def test_a_file_that_cannot_be_told_is_a_load_error():
    async with started_worker() as worker:
        with pytest.raises(LoadError, match="model 'm' cannot be described"):
            await worker.assign(model(file=Path("half a character: \ud800")), Placement())
