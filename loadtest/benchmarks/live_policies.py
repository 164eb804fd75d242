"""Policies live, on a real clock and event loop, beside the same load in the simulator.

The instance sleeps 6 ms + 1.2 ms a row (the model of the source articles on an A10G), so the machine's speed matters
little; callers come again as soon as they are answered, or at random.
"""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import uvloop

from batching.alarm import create_alarm
from batching.clock import MILLISECOND_NS, SECOND_NS, MonotonicClock
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.ports import BatchResult, BatchTimes, Done, InstanceStatistics
from batching.profiles import create_policy
from batching.runner import Runner
from batching.simulation import Affine, ClosedLoop, House, Poisson, Requests, Service, simulate

BASE_MS, ROW_MS, LARGEST = 6.0, 1.2, 32
DURATION_S = 6.0
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
RATES_PER_S = (50.0, 200.0, 400.0)
PREFERRED: dict[str, object] = {"preferred_batch_size": (8, 16, 32), "max_queue_delay_microseconds": 5_000}
POLICIES: dict[str, tuple[str, dict[str, object]]] = {
    "greedy": ("greedy", {}),
    "triton 8/16/32, 5 ms": ("triton", PREFERRED),
    "shoal": ("shoal", {}),
}
CLOCK = MonotonicClock()


class Sleeper:
    """One instance whose batches take their time and nothing else."""

    name = "i"
    device = "cpu"
    max_in_flight = 1

    def submit(self, batch: Sequence[object], done: Done[object]) -> None:
        """End when the batch is due."""
        duration_s = (BASE_MS + ROW_MS * len(batch)) / 1_000
        asyncio.get_running_loop().call_later(duration_s, self._end, batch, done, CLOCK.now_ns())

    def _end(self, batch: Sequence[object], done: Done[object], started_ns: int) -> None:
        ended_ns = CLOCK.now_ns()
        times = BatchTimes(started_ns=started_ns, gathered_ns=started_ns, computed_ns=ended_ns, ended_ns=ended_ns)
        done(BatchResult(results=batch, times=times, executed_rows=len(batch)))

    def statistics(self) -> InstanceStatistics:
        """Nobody asks."""
        return InstanceStatistics(
            name=self.name, device=self.device, executions=0, failed_executions=0, rows=0, padding_rows=0, busy_ns=0
        )


async def live(
    label: str, load: Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]]
) -> tuple[float, float]:
    """Throughput per second and mean latency in ms of the second half of a run."""
    loop = asyncio.get_running_loop()
    name, parameters = POLICIES[label]
    scheduler = Scheduler(
        create_policy(name, parameters, max_batch_rows=LARGEST, faithful=False),
        Limits(max_batch_rows=LARGEST, max_requests=10_000, max_rows=10_000),
    )
    runner: Runner[object, object] = Runner(scheduler, [Sleeper()], CLOCK, lambda ring: create_alarm(loop, CLOCK, ring))
    latencies_ms: list[float] = []
    half_ns = CLOCK.now_ns() + round(DURATION_S / 2 * SECOND_NS)

    async def call() -> None:
        began_ns = CLOCK.now_ns()
        await runner.execute(None, 1)
        if CLOCK.now_ns() >= half_ns:
            latencies_ms.append((CLOCK.now_ns() - began_ns) / MILLISECOND_NS)

    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(runner.run())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(DURATION_S):
                await load(call)
        except TimeoutError:
            serving.cancel()
    return len(latencies_ms) / (DURATION_S / 2), statistics.fmean(latencies_ms)


def closed(clients: int) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]]:
    """So many callers who come again at once."""

    async def load(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def client() -> None:
            while True:
                await call()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(clients):
                tasks.create_task(client())

    return load


def poisson(rate_per_s: float) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]]:
    """Independent callers."""

    async def load(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        gaps = random.Random(1)  # noqa: S311 - a load, not a secret
        async with asyncio.TaskGroup() as tasks:
            due_ns = CLOCK.now_ns()
            while True:
                due_ns += round(gaps.expovariate(rate_per_s) * SECOND_NS)
                await asyncio.sleep(max(0, due_ns - CLOCK.now_ns()) / SECOND_NS)
                tasks.create_task(call())

    return load


def simulated(label: str, load: ClosedLoop | Poisson) -> tuple[float, float]:
    """The same in virtual time, without any cost but the sleep."""
    name, parameters = POLICIES[label]
    found = simulate(
        lambda: create_policy(name, parameters, max_batch_rows=LARGEST, faithful=False),
        load,
        Service(Affine(BASE_MS, ROW_MS)),
        House(limits=Limits(max_batch_rows=LARGEST, max_requests=10_000, max_rows=10_000)),
        duration_s=2 * DURATION_S,
        seed=1,
    )
    return found.throughput_per_s, found.latency.mean_ms


def main() -> None:
    """One line a load and policy."""
    print(f"{'load':14} {'policy':22} {'live /s':>8} {'sim /s':>8} {'live ms':>8} {'sim ms':>8}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        for clients in CLIENTS:
            for label in POLICIES:
                figures = loop.run(live(label, closed(clients))), simulated(label, ClosedLoop(clients=clients))
                print_line(f"{clients} clients", label, *figures)
        for rate_per_s in RATES_PER_S:
            for label in POLICIES:
                figures = loop.run(live(label, poisson(rate_per_s))), simulated(label, Poisson(rate_per_s, Requests()))
                print_line(f"{rate_per_s:.0f}/s random", label, *figures)


def print_line(load: str, label: str, real: tuple[float, float], virtual: tuple[float, float]) -> None:
    """Live and simulated side by side."""
    print(f"{load:14} {label:22} {real[0]:8.1f} {virtual[0]:8.1f} {real[1]:8.2f} {virtual[1]:8.2f}")


if __name__ == "__main__":
    main()
