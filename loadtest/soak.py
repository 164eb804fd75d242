"""Kill worker processes under load, over and over, and see that nothing is lost and nothing stays behind.

    python -m loadtest.soak --kills 1000 --instances 2 --clients 8

Each round waits until all instances work, kills one of their processes with SIGKILL while callers are calling, and
waits until it is replaced. At the end it prints a report; the exit status is 1 if an answer was missing, was wrong, or
if processes, file descriptors or shared memory are left.
"""

import argparse
import asyncio
import gc
import os
import random
import signal
import statistics
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import uvloop

from backends.errors import BackendError, WorkerLostError
from backends.members import MemberState, MemberStatus
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.alarm import create_alarm
from batching.clock import MILLISECOND_NS, MonotonicClock
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.profiles import create_policy
from batching.runner import Runner
from models.inference import Tensors
from models.spec import BatchingSpec, DeviceKind, ExecutionSpec, Host, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

CLOCK = MonotonicClock()
LARGEST_ROWS = 8
_PATIENCE_S = 30.0


def identity(instances: int, *, service_us: int = 2_000, max_restarts: int = -1) -> ModelSpec:
    """A fake model in processes of its own: answers what it is asked, after a while."""
    return ModelSpec(
        name="identity",
        version=1,
        platform="",
        backend="fake",
        max_batch_rows=LARGEST_ROWS,
        inputs=(TensorSpec(name="x", data_type=DataType.INT64, dims=(2,)),),
        outputs=(TensorSpec(name="y", data_type=DataType.INT64, dims=(2,)),),
        instance_groups=(InstanceGroup(name="i", kind=DeviceKind.CPU, count=instances),),
        batching=BatchingSpec(policy="greedy"),
        execution=ExecutionSpec(host=Host.PROCESS, max_restarts=max_restarts),
        file=Path("model"),
        parameters={"service_base_us": str(service_us)},
    )


@dataclass(slots=True)
class Report:
    """What came of a soak.

    Attributes:
        kills: Processes that were killed.
        answers: Requests that were answered with what they asked for.
        lost: Requests that were answered with WorkerLostError.
        wrong: Requests that were answered with anything else.
        unanswered: Requests without any answer after half a minute.
        back_ms: Time from each kill until all instances worked again, ms.
    """

    kills: int = 0
    answers: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    unanswered: int = 0
    back_ms: list[float] = field(default_factory=list)


@asynccontextmanager
async def serving(
    spec: ModelSpec, *, gpus: Sequence[int] = ()
) -> AsyncIterator[tuple[Runner[Tensors, Tensors], InstancePool]]:
    """A pool of a version behind a scheduler, ready."""
    loop = asyncio.get_running_loop()
    machine = Machine(gpus={ordinal: str(ordinal) for ordinal in gpus}, defaults=Placement(cores=1))
    async with WorkerHouse(CLOCK) as workers:
        pool = InstancePool(spec, clock=CLOCK, machine=machine, workers=workers)
        await pool.start()
        largest = spec.largest_batch_rows
        scheduler = Scheduler(
            create_policy(spec.batching.policy, spec.batching.parameters, max_batch_rows=largest, faithful=False),
            Limits(max_batch_rows=largest, max_requests=10_000, max_rows=100_000),
        )
        runner: Runner[Tensors, Tensors] = Runner(scheduler, (), CLOCK, lambda ring: create_alarm(loop, CLOCK, ring))
        pool.attach(runner)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(runner.run())
                await asyncio.sleep(0)
                yield runner, pool
                running.cancel()
        finally:
            await pool.aclose()


async def soak(kills: int, instances: int, clients: int, seed: int = 1) -> Report:
    """Kill a process of a pool so many times while callers call."""
    report = Report()
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    async with serving(identity(instances)) as (runner, pool), asyncio.TaskGroup() as tasks:
        enough = asyncio.Event()
        callers = [tasks.create_task(_call(runner, report, number, enough)) for number in range(clients)]
        for _ in range(kills):
            await pool.wait_until(_all_work)
            await asyncio.sleep(chance.uniform(0, 0.01))  # into the middle of a batch, or between two
            victim = chance.choice(pool.statuses())
            restarts = sum(each.restarts for each in pool.statuses())
            killed_ns = CLOCK.now_ns()
            os.kill(victim.pid, signal.SIGKILL)
            report.kills += 1
            await pool.wait_until(partial(_more_restarts, restarts))
            await pool.wait_until(_all_work)
            report.back_ms.append((CLOCK.now_ns() - killed_ns) / MILLISECOND_NS)
        enough.set()
        await asyncio.wait(callers)  # each with its last answer
    return report


async def _call(runner: Runner[Tensors, Tensors], report: Report, number: int, enough: asyncio.Event) -> None:
    value = number
    while not enough.is_set():
        value += 1_000
        wanted = np.array([[value, value]], np.int64)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await runner.execute({"x": wanted}, 1)
        except TimeoutError:
            report.unanswered += 1
        except WorkerLostError:
            report.lost += 1
        except BackendError as error:
            report.wrong.append(repr(error))
        else:
            if np.array_equal(answer.result["y"], wanted):
                report.answers += 1
            else:
                report.wrong.append(f"asked for {value}, got {answer.result['y']}")


def _more_restarts(than: int, statuses: Sequence[MemberStatus]) -> bool:
    return sum(status.restarts for status in statuses) > than


def _all_work(statuses: Sequence[MemberStatus]) -> bool:
    return all(status.state is MemberState.READY for status in statuses)


def left_behind() -> list[str]:
    """Children of this process, zombies included, its threads, and shared memory that it still holds."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    descriptors = list(Path("/proc/self/fd").iterdir())
    targets = [str(descriptor.readlink()) for descriptor in descriptors if descriptor.is_symlink()]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [
        *(f"child process {child}" for child in children),
        *(f"descriptor of {target}" for target in targets if "memfd:" in target or "socket:" in target),
        *(f"mapping of {line.split()[-2]}" for line in maps if "memfd:" in line),
        *(f"thread {thread.name}" for thread in threading.enumerate()),
    ]


def main() -> int:
    """Run a soak and print its report; 1 if something was lost or stayed behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    before = set(left_behind())
    report = uvloop.run(soak(options.kills, options.instances, options.clients, options.seed))
    gc.collect()  # what only garbage holds is not left behind
    rest = [each for each in left_behind() if each not in before]
    back = sorted(report.back_ms)
    lines = [
        f"kills            {report.kills}",
        f"answers          {report.answers}",
        f"lost             {report.lost} (answered: the worker was lost)",
        f"wrong            {len(report.wrong)} {report.wrong[:3] or ''}",
        f"unanswered       {report.unanswered}",
        f"back in service  median {statistics.median(back):.0f} ms, longest {back[-1]:.0f} ms",
        f"left behind      {', '.join(rest) or 'nothing'}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    # One kill may cost the batch that both workers lost, one after the other; more would be a defect.
    return 1 if report.wrong or report.unanswered or rest or report.lost > report.kills * LARGEST_ROWS else 0


if __name__ == "__main__":
    sys.exit(main())
