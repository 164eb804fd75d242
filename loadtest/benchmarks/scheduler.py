"""What the scheduler and its policy cost a request, in CPU time: alone, and with the live driver around them."""

import asyncio
import time
from collections.abc import Sequence

import uvloop

from batching.alarm import create_alarm
from batching.clock import MICROSECOND_NS, SECOND_NS, MonotonicClock
from batching.core.commands import Start
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.ports import BatchResult, BatchTimes, Done, InstanceStatistics
from batching.profiles import create_policy
from batching.runner import Runner

ROWS = 32
BATCHES = 1_000
GAP_NS = 100 * MICROSECOND_NS
PATIENCE_NS = 60 * SECOND_NS  # what a server gives requests that bring no timeout
POLICIES: dict[str, tuple[str, dict[str, object]]] = {
    "greedy": ("greedy", {}),
    "triton, no delay": ("triton", {}),
    "triton, 8/16/32, 5 ms": (
        "triton",
        {"preferred_batch_size": (8, 16, 32), "max_queue_delay_microseconds": 5_000},
    ),
    "shoal": ("shoal", {}),
}


def new_scheduler(label: str) -> Scheduler:
    """A scheduler for batches of 32."""
    name, parameters = POLICIES[label]
    limits = Limits(max_batch_rows=ROWS, max_requests=10_000, max_rows=10_000)
    return Scheduler(create_policy(name, parameters, max_batch_rows=ROWS), limits)


def alone_us(label: str) -> float:
    """One instance that is always busy; while a batch runs, the next 32 requests arrive one by one."""
    scheduler = new_scheduler(label)
    scheduler.handle([InstanceJoined("i")], 0)
    now_ns = 0
    running: list[int] = []
    requests = 0
    began_s = time.process_time()
    for _ in range(BATCHES):
        for _ in range(ROWS):
            now_ns += GAP_NS
            arrived = Arrived(scheduler.reserve(1, now_ns, deadline_ns=now_ns + PATIENCE_NS))
            running += [start.batch for start in scheduler.handle([arrived], now_ns) if isinstance(start, Start)]
            requests += 1
        now_ns += GAP_NS
        ended, running = running, []
        events = [event for batch in ended for event in (BatchDone(batch), InstanceFree(batch))]
        running += [start.batch for start in scheduler.handle(events, now_ns) if isinstance(start, Start)]
    return (time.process_time() - began_s) / requests * 1e6


class NoInstance:
    """Answers at once."""

    name = "i"
    device = "cpu"
    max_in_flight = 1

    def submit(self, batch: Sequence[object], done: Done[object]) -> None:
        """Nothing to do."""
        times = BatchTimes(started_ns=0, gathered_ns=0, computed_ns=0, ended_ns=0)
        result = BatchResult(results=batch, times=times, executed_rows=len(batch))
        asyncio.get_running_loop().call_soon(done, result)

    def statistics(self) -> InstanceStatistics:
        """Nobody asks."""
        return InstanceStatistics(
            name=self.name, device=self.device, executions=0, failed_executions=0, rows=0, padding_rows=0, busy_ns=0
        )


async def live_us(label: str) -> float:
    """64 callers who come again at once; the loop, futures and tasks are in the figure."""
    loop = asyncio.get_running_loop()
    clock = MonotonicClock()
    runner: Runner[object, object] = Runner(
        new_scheduler(label), [NoInstance()], clock, lambda ring: create_alarm(loop, clock, ring)
    )
    rounds = BATCHES // 2

    async def call() -> None:
        for _ in range(rounds):
            await runner.execute(None, 1, deadline_ns=clock.now_ns() + PATIENCE_NS)

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(runner.run())
        await asyncio.sleep(0)
        began_s = time.process_time()
        async with asyncio.TaskGroup() as callers:
            for _ in range(2 * ROWS):
                callers.create_task(call())
        took_s = time.process_time() - began_s
        serving.cancel()
    return took_s / (2 * ROWS * rounds) * 1e6


def main() -> None:
    """One line a policy."""
    for label in POLICIES:
        alone = min(alone_us(label) for _ in range(3))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            live = loop.run(live_us(label))
        print(f"{label:24} scheduler and policy {alone:5.1f} us a request; with the live driver {live:5.1f} us")


if __name__ == "__main__":
    main()
