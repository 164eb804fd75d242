"""What the live driver needs of the things that execute batches. Implemented in `backends`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

Payload = TypeVar("Payload")
Payload_contra = TypeVar("Payload_contra", contravariant=True)
Result = TypeVar("Result")


class BatchTimes(NamedTuple):
    """Moments of one execution, monotonic nanoseconds.

    Attributes:
        started_ns: The instance began to work on the batch.
        gathered_ns: Inputs are in the executor's memory.
        computed_ns: The executor has returned.
        ended_ns: Results are cut into rows.
    """

    started_ns: int
    gathered_ns: int
    computed_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult(Generic[Result]):
    """What executing one batch gave.

    Attributes:
        results: One for each payload, in order; an exception for a payload that failed alone.
        times: When it happened.
        executed_rows: Rows that the executor saw, padding included.
    """

    results: Sequence[Result | Exception]
    times: BatchTimes
    executed_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatistics:
    """Counters of one instance since it was started.

    Attributes:
        cap_rows: Gauge: rows that it runs at once; larger batches are run in parts.
        memory_failures: Batches, or parts of one, for which the device's memory did not suffice.
        non_finite_rows: Rows that were computed as NaN or infinite numbers, whatever was then done about them.
    """

    name: str
    device: str
    executions: int
    failed_executions: int
    rows: int
    padding_rows: int
    busy_ns: int
    cap_rows: int = 0
    memory_failures: int = 0
    non_finite_rows: int = 0


Done = Callable[[BatchResult[Result] | Exception], None]
"""Told the outcome of a batch; an exception means that it failed as a whole."""


class Instance(Protocol[Payload_contra, Result]):
    """Something that executes batches. Its caller never has more than `max_in_flight` calls open."""

    @property
    def name(self) -> str:
        """Unique within the pool."""
        ...

    @property
    def device(self) -> str:
        """Where it runs, e.g. ``cpu`` or ``gpu0``; load is balanced over devices."""
        ...

    @property
    def max_in_flight(self) -> int:
        """How many batches it can hold at once."""
        ...

    def submit(self, batch: Sequence[Payload_contra], done: "Done[Result]") -> None:
        """Run the payloads together, in order. Never raises.

        A callback and not a coroutine: a task for each batch would cost as much as all else that is done for it.

        Args:
            batch: At least one payload.
            done: Called once, on the event loop and after this has returned. An exception means that the whole batch
                failed: every member is answered with it.
        """
        ...

    def statistics(self) -> InstanceStatistics:
        """Counters since it was started."""
        ...


async def executed(instance: Instance[Payload, Result], batch: Sequence[Payload]) -> BatchResult[Result]:
    """Submit a batch and wait; a caller that is cancelled does not stop it. Raises the error of the whole batch."""
    # An error is a value here, not the future's exception: one that nobody waits for must not be logged as lost.
    outcome: asyncio.Future[BatchResult[Result] | Exception] = asyncio.get_running_loop().create_future()
    instance.submit(batch, partial(_settle, outcome))
    result = await outcome
    if not isinstance(result, Exception):
        return result
    try:
        raise result
    finally:
        del result, outcome, batch  # the error's traceback holds this frame: let it not hold tensors, nor itself


def _settle(outcome: "asyncio.Future[BatchResult[Result] | Exception]", found: BatchResult[Result] | Exception) -> None:
    if not outcome.done():  # the caller may have left
        outcome.set_result(found)
