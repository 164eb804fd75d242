"""The live driver in virtual time, with the same words as the simulator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from batching.callers import Splitting
from batching.clock import SECOND_NS, Clock
from batching.core.commands import Command
from batching.core.errors import BatchingError
from batching.core.events import Event
from batching.core.scheduler import Scheduler
from batching.ports import BatchResult, BatchTimes, Done, InstanceStatistics
from batching.runner import Runner
from batching.simulation import Arrival
from batching.virtual_time import VirtualTimeLoop

Value = TypeVar("Value")


class RecordingScheduler(Scheduler):
    """Keeps the trace: every command with its moment."""

    trace: list[tuple[int, Command]]

    def handle(self, events: Iterable[Event], now_ns: int) -> list[Command]:
        commands = super().handle(events, now_ns)
        self.trace = [*getattr(self, "trace", []), *((now_ns, command) for command in commands)]
        return commands


class SleepingInstance:
    """Executes a batch by letting (virtual) time pass; the result of a payload is the payload.

    A payload that is an exception makes its batch fail with it.
    """

    device = "cpu"
    max_in_flight = 1

    def __init__(self, clock: Clock, service_ns: Callable[[int], int], name: str = "instance_0") -> None:
        self.name = name
        self.batches: list[list[object]] = []
        self._running: set[asyncio.Task[BatchResult[object]]] = set()
        self._clock = clock
        self._service_ns = service_ns

    def submit(self, batch: Sequence[object], done: Done[object]) -> None:
        running = asyncio.get_running_loop().create_task(self.execute(batch))
        self._running.add(running)
        running.add_done_callback(partial(self._end, done))

    def _end(self, done: Done[object], ended: "asyncio.Task[BatchResult[object]]") -> None:
        self._running.discard(ended)
        if not ended.cancelled():
            error = ended.exception()
            done(ended.result() if error is None else error)

    async def execute(self, batch: Sequence[object]) -> BatchResult[object]:
        self.batches.append(list(batch))
        started_ns = self._clock.now_ns()
        rows = sum(payload.rows if isinstance(payload, Arrival) else 1 for payload in batch)
        await asyncio.sleep(self._service_ns(rows) / SECOND_NS)
        for payload in batch:
            if isinstance(payload, Exception):
                raise payload
        ended_ns = self._clock.now_ns()
        times = BatchTimes(started_ns=started_ns, gathered_ns=started_ns, computed_ns=ended_ns, ended_ns=ended_ns)
        return BatchResult(results=list(batch), times=times, executed_rows=rows)

    def statistics(self) -> InstanceStatistics:
        raise AssertionError("nobody asks")


CUTTING: Splitting[object, object] = Splitting(
    cut=lambda payload, _first_row, rows: payload._replace(rows=rows) if isinstance(payload, Arrival) else payload,
    join=lambda parts: parts[0],
)
"""Parts of a simulated request are requests of fewer rows."""


def in_virtual_time(scenario: Callable[[VirtualTimeLoop], Awaitable[Value]]) -> Value:
    """Run a scenario to its end on a fresh virtual loop."""
    loop = VirtualTimeLoop()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(_call(scenario, loop))
    finally:
        loop.close()


async def _call(scenario: Callable[[VirtualTimeLoop], Awaitable[Value]], loop: VirtualTimeLoop) -> Value:
    return await scenario(loop)


@asynccontextmanager
async def serving(runner: Runner[object, object]) -> AsyncIterator[asyncio.TaskGroup]:
    """The runner runs while the body does; the body's own tasks go into the yielded group."""
    async with asyncio.TaskGroup() as tasks:
        serving_task = tasks.create_task(runner.run())
        await asyncio.sleep(0)  # let it begin
        async with asyncio.TaskGroup() as callers:
            yield callers
        await runner.drain()  # batches whose callers have left still run
        serving_task.cancel()


async def play(runner: Runner[object, object], load: Iterable[Arrival]) -> dict[str, object]:
    """Send every arrival at its time; what each caller got, by name."""
    answers: dict[str, object] = {}

    async def call(arrival: Arrival) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(arrival.at_ns / SECOND_NS - loop.time())
        try:
            answers[arrival.name] = await ask(runner, arrival)
        except (BatchingError, TimeoutError) as error:
            answers[arrival.name] = error

    async with serving(runner) as callers:
        for arrival in load:
            callers.create_task(call(arrival))
    return answers


async def ask(runner: Runner[object, object], arrival: Arrival) -> object:
    loop = asyncio.get_running_loop()
    now_ns = round(loop.time() * SECOND_NS)
    with runner.reserve(
        arrival.rows,
        deadline_ns=None if arrival.patience_ns is None else now_ns + arrival.patience_ns,
        priority=arrival.priority,
        shape_key=arrival.shape_key,
        timeout_ns=arrival.timeout_ns,
        sequence=arrival.sequence,
    ) as reservation:
        async with asyncio.timeout(None if arrival.leaves_ns is None else arrival.leaves_ns / SECOND_NS):
            return await reservation.execute(arrival)
