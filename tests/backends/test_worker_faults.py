"""Workers that die, hang or are stopped under a pool: who is answered what, what is shown, and how it comes back."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.errors import DeviceFaultError, ExecutionError, LoadError, NoInstanceError, WorkerLostError
from backends.members import MemberState, MemberStatus
from batching.callers import Answer
from batching.runner import Runner
from loadtest.soak import identity, serving, soak
from models.inference import Tensors
from models.spec import DeviceKind, ExecutionSpec, InstanceGroup, ModelSpec
from tests.backends.process.builders import shared_memory, until

pytestmark = pytest.mark.long

RISKY = """
import ctypes, os, signal, time

class Model:
    def execute(self, inputs):
        wish = int(inputs["x"].max())
        if wish == 901:
            os.kill(os.getpid(), signal.SIGKILL)
        elif wish == 902:
            ctypes.string_at(0)
        elif wish == 903:
            while True:
                pass
        elif wish == 904:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)  # all threads are stopped a moment later
        elif wish == 905:
            os._exit(3)
        elif wish == 906:
            raise SystemExit("wanted")
        elif wish == 907:
            time.sleep(1.5)
        elif wish == 908:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        elif wish == 909 and len(inputs["x"]) > 2:
            raise MemoryError
        return {"y": inputs["x"].copy()}
"""


def risky(directory: Path, *, instances: int = 1, max_restarts: int = 5, source: str = RISKY) -> ModelSpec:
    """A Python model that does what the number in its input says."""
    file = directory / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    return replace(
        identity(instances),
        name="risky",
        backend="python",
        file=file,
        parameters={},
        instance_groups=(InstanceGroup(name="i", kind=DeviceKind.CPU, count=instances),),
        execution=ExecutionSpec(step_timeout_s=3.0, max_restarts=max_restarts),
    )


async def ask(runner: Runner[Tensors, Tensors], value: int) -> Answer[Tensors]:
    return await runner.execute({"x": np.array([[value, value]], np.int64)}, 1)


def first(answer: Answer[Tensors]) -> int:
    return int(answer.result["y"][0, 0])


def is_(state: MemberState, place: int = 0):
    def condition(statuses: Sequence[MemberStatus]) -> bool:
        return statuses[place].state is state

    return condition


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        pytest.param(901, r"killed by signal 9 \(SIGKILL\)", id="SIGKILL"),
        pytest.param(902, r"killed by signal 11 \(SIGSEGV\)", id="segfault"),
        pytest.param(903, "a step took longer than 3 s", id="endless loop", marks=pytest.mark.slow),
        pytest.param(904, "it was stopped by a signal", id="SIGSTOP", marks=pytest.mark.slow),
        pytest.param(905, "exited with status 3", id="exit"),
    ],
)
async def test_a_batch_whose_worker_is_lost_is_answered_and_the_next_one_is_served_by_a_new_worker(
    tmp_path: Path, wish: int, reason: str
):
    async with serving(risky(tmp_path)) as (runner, pool):
        with pytest.raises(WorkerLostError, match=reason):
            await ask(runner, wish)
        answer = await ask(runner, 7)
        (status,) = pool.statuses()

    assert first(answer) == 7
    assert (status.state, status.restarts) == (MemberState.READY, 1)


async def test_a_request_that_waits_while_the_worker_is_replaced_is_answered_by_the_new_one(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, _):
        outcomes = await asyncio.gather(*(ask(runner, value) for value in (905, *range(20))), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes[:8]] == [WorkerLostError] * 8  # of one batch
    assert [first(outcome) for outcome in outcomes[8:]] == list(range(7, 20))


async def test_a_batch_whose_worker_is_killed_from_outside_runs_again_in_another_one(tmp_path: Path):
    async with serving(risky(tmp_path, instances=2)) as (runner, pool), asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(ask(runner, 907))
        await pool.wait_until(lambda now: any(each.state is MemberState.STALLED for each in now))
        (victim,) = [each for each in pool.statuses() if each.state is MemberState.STALLED]
        os.kill(victim.pid, signal.SIGKILL)
        answer = await slow

    assert first(answer) == 907


async def test_a_batch_that_crashes_its_worker_is_not_tried_on_the_others(tmp_path: Path):
    async with serving(risky(tmp_path, instances=3)) as (runner, pool):
        with pytest.raises(WorkerLostError, match="SIGSEGV"):
            await ask(runner, 902)
        await pool.wait_until(lambda now: all(each.state is MemberState.READY for each in now))
        restarts = sum(status.restarts for status in pool.statuses())

    assert restarts == 1


async def test_a_stopped_worker_is_seen_within_two_seconds_and_the_others_go_on(tmp_path: Path):
    async with serving(risky(tmp_path, instances=2)) as (runner, pool):
        pid = pool.statuses()[0].pid
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(2):
            await pool.wait_until(lambda now: now[0].state is not MemberState.READY)
        answers = [first(await ask(runner, number)) for number in range(10)]
        await pool.wait_until(is_(MemberState.READY))

    assert answers == list(range(10))
    assert pool.statuses() == []


async def test_a_slow_step_is_shown_as_a_stall_and_ends_well(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, pool), asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(ask(runner, 907))
        await pool.wait_until(is_(MemberState.STALLED))
        (stalled,) = pool.statuses()
        answer = await slow
        await pool.wait_until(is_(MemberState.READY))
        (after,) = pool.statuses()

    assert "a step runs for 1." in stalled.reason
    assert (first(answer), after.restarts, after.pid) == (907, 0, stalled.pid)


async def test_code_that_wants_to_end_the_process_fails_its_request_only(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, pool):
        with pytest.raises(ExecutionError, match="SystemExit: wanted"):
            await ask(runner, 906)
        (status,) = pool.statuses()

    assert status.restarts == 0


async def test_a_broken_device_takes_its_process_with_it_and_a_new_one_serves(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, pool):
        (before,) = pool.statuses()
        with pytest.raises(DeviceFaultError, match="illegal memory access"):
            await ask(runner, 908)
        answer = await ask(runner, 1)
        (after,) = pool.statuses()

    assert first(answer) == 1
    assert after.restarts == 1
    assert after.pid not in (0, before.pid)


async def test_a_batch_that_does_not_fit_is_answered_in_parts_and_lowers_the_cap_that_is_shown(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, pool):
        answers = await asyncio.gather(*(ask(runner, 909) for _ in range(8)))
        (status,) = pool.statuses()

    assert [first(answer) for answer in answers] == [909] * 8
    assert status.statistics.cap_rows == 2
    assert status.statistics.memory_failures > 0


async def test_a_caller_that_leaves_costs_no_worker(tmp_path: Path):
    async with serving(risky(tmp_path)) as (runner, pool):
        (before,) = pool.statuses()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await ask(runner, 907)
        answer = await ask(runner, 1)
        (after,) = pool.statuses()

    assert first(answer) == 1
    assert (after.pid, after.restarts) == (before.pid, 0)


async def test_a_worker_that_dies_too_often_fails_and_requests_are_refused_with_the_reason(tmp_path: Path):
    async with serving(risky(tmp_path, max_restarts=1)) as (runner, pool):
        with pytest.raises(WorkerLostError):
            await ask(runner, 905)
        with pytest.raises(WorkerLostError):
            await ask(runner, 905)
        await pool.wait_until(is_(MemberState.FAILED))
        with pytest.raises(NoInstanceError, match="no instance works; instance 'i_0' exited with status 3"):
            pool.check()

    assert not pool.is_available


async def test_what_waits_when_the_last_instance_fails_is_answered(tmp_path: Path):
    async with serving(risky(tmp_path, max_restarts=0)) as (runner, _):
        outcomes = await asyncio.gather(*(ask(runner, value) for value in (905, *range(20))), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [WorkerLostError] * 8 + [NoInstanceError] * 13


async def test_what_waits_is_answered_when_the_model_cannot_be_loaded_again(tmp_path: Path):
    spec = risky(tmp_path)
    async with serving(spec) as (runner, _):
        spec.file.write_text("raise ValueError('no such luck')\n")
        outcomes = await asyncio.gather(*(ask(runner, value) for value in (905, *range(20))), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [WorkerLostError] * 8 + [NoInstanceError] * 13
    assert "no such luck" in str(outcomes[-1])


async def test_a_worker_that_dies_while_it_loads_again_is_followed_by_one_that_serves_what_waits(tmp_path: Path):
    spec = risky(tmp_path)
    async with serving(spec) as (runner, pool):
        once = "import os, pathlib\nflag = pathlib.Path(__file__).with_name('died')\n"
        once += "if not flag.exists():\n    flag.touch()\n    os._exit(5)\n"
        spec.file.write_text(once + RISKY)
        outcomes = await asyncio.gather(*(ask(runner, value) for value in (905, *range(20))), return_exceptions=True)
        (status,) = pool.statuses()

    assert [type(outcome) for outcome in outcomes[:8]] == [WorkerLostError] * 8
    assert [first(outcome) for outcome in outcomes[8:]] == list(range(7, 20))
    assert status.restarts == 2


async def test_renewals_that_fail_leave_the_old_instances_and_nothing_else(tmp_path: Path):
    spec = risky(tmp_path)
    async with serving(spec) as (runner, pool):
        before = shared_memory()
        spec.file.write_text("raise ValueError('no such luck')\n")
        for _ in range(3):
            with pytest.raises(LoadError, match="no such luck"):
                await pool.renew()
        answer = await ask(runner, 3)
        after = shared_memory()

    assert first(answer) == 3
    assert len(after) == len(before)


async def test_a_child_that_async_model_code_forks_answers_nobody(tmp_path: Path):
    code = "import os\nasync def execute(inputs):\n    os.fork()\n    return {'y': inputs['x'].copy()}\n"
    async with serving(risky(tmp_path, source=code)) as (runner, pool):
        answers = [first(await ask(runner, number)) for number in range(5)]
        (status,) = pool.statuses()

    assert answers == list(range(5))
    assert status.restarts == 0


async def test_batches_that_are_lost_with_their_worker_are_counted(tmp_path: Path):
    async with serving(risky(tmp_path, max_restarts=-1)) as (runner, pool):
        for _ in range(5):
            with pytest.raises(WorkerLostError):
                await ask(runner, 905)
        (status,) = pool.statuses()

    assert status.statistics.failed_executions == 5


async def test_a_pool_can_be_closed_while_a_batch_never_ends_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with serving(replace(risky(tmp_path), execution=ExecutionSpec(step_timeout_s=600))) as (runner, pool):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(runner, 903)

    assert pool.statuses() == []
    assert "model 'risky' version 1: a batch is still running after 5 s and is given up" in caplog.text


async def test_a_pool_can_be_closed_while_a_replaced_worker_loads_for_ever(tmp_path: Path):
    spec = risky(tmp_path)
    async with asyncio.timeout(20):
        async with serving(spec) as (runner, pool):
            spec.file.write_text("import time\ntime.sleep(600)\n")
            with pytest.raises(WorkerLostError):
                await ask(runner, 905)
            before = pool.statuses()[0].pid
            await until(lambda: pool.statuses()[0].pid not in (0, before))

    assert pool.statuses() == []


async def test_a_worker_that_takes_too_long_to_load_is_ended_and_says_so(tmp_path: Path):
    slow = replace(
        risky(tmp_path, source="import time\ntime.sleep(600)\n"), execution=ExecutionSpec(load_timeout_s=0.5)
    )

    with pytest.raises(LoadError, match=r"a step took longer than 0\.5 s"):
        async with serving(slow):
            pass


@pytest.mark.parametrize("instances", [1, 2])
async def test_instances_that_are_renewed_under_load_lose_nothing(tmp_path: Path, instances: int):
    async with serving(risky(tmp_path, instances=instances)) as (runner, pool), asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(ask(runner, number)) for number in range(400)]
        pids = [status.pid for status in pool.statuses()]
        for _ in range(3):
            await pool.renew()
        answers = [first(await task) for task in asking]
        after = [status.pid for status in pool.statuses()]

    assert answers == list(range(400))
    assert after == pids


async def test_a_worker_that_dies_while_it_loads_is_a_load_error_with_the_reason(tmp_path: Path):
    with pytest.raises(LoadError, match="exited with status 4"):
        async with serving(risky(tmp_path, source="import os\nos._exit(4)\n")):
            pass


async def test_a_model_that_cannot_be_loaded_is_a_load_error_with_its_own_text(tmp_path: Path):
    with pytest.raises(LoadError, match="no such luck"):
        async with serving(risky(tmp_path, source="raise ValueError('no such luck')\n")):
            pass


@pytest.mark.slow
async def test_twenty_kills_under_load_lose_nothing():
    report = await soak(kills=20, instances=2, clients=8)

    assert report.kills == 20
    assert report.answers > 100
    assert report.wrong == []
    assert report.lost <= 20  # both workers may die at once
    assert report.unanswered == 0
    assert min(report.back_ms) < 2_000
