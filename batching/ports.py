"""What the live driver needs of the things that execute batches. Implemented in `backends`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

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

    async def execute(self, batch: Sequence[Payload_contra]) -> BatchResult[Result]:
        """Run the payloads together, in order.

        Raises:
            Exception: The whole batch failed; every member is answered with this error.
        """
        ...

    def statistics(self) -> InstanceStatistics:
        """Counters since it was started."""
        ...
