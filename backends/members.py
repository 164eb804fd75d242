"""An instance that outlives its worker process: what the scheduler sees while workers come and go behind it."""

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from backends.batch_run import BatchRun
from backends.errors import BackendError, DeviceFaultError, InstanceClosedError, WorkerLostError
from backends.thread_host import ThreadInstance
from batching.clock import Clock
from batching.ports import BatchResult, Done, InstanceStatistics, executed
from models.inference import Tensors

logger = logging.getLogger(__name__)


class MemberState(enum.Enum):
    """What a member is doing. Only READY and STALLED ones get batches."""

    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"  # ready, but its worker has not moved for a while
    RESTARTING = "restarting"
    FAILED = "failed"  # it died too often; it is tried again, but not soon
    CLOSED = "closed"


SERVING = (MemberState.READY, MemberState.STALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A snapshot of one member.

    Attributes:
        statistics: Counters since the pool was started, over all its workers.
        state: What it is doing.
        since_ns: Since when, monotonic.
        reason: Why it is not ready, in words; empty if it is.
        restarts: How often its worker was replaced.
        pid: Of its worker process; 0 if it lives in this one, or has none now.
    """

    statistics: InstanceStatistics
    state: MemberState
    since_ns: int
    reason: str
    restarts: int
    pid: int


class Member:
    """An instance of the pool. Not thread-safe; lives on the event loop.

    Args:
        name: Unique within the pool.
        device: Where it runs.
        clock: Of `since_ns`.
        substitute: Another member that can run a batch now whose worker was lost, or None.
        on_broken: Told the error that shows that its worker is lost, or must be ended.
        on_turn: Told that the state has changed.
    """

    def __init__(
        self,
        *,
        name: str,
        device: str,
        clock: Clock,
        substitute: "Callable[[Member], Member | None]",
        on_broken: Callable[[BackendError], None],
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._device = device
        self._clock = clock
        self._substitute = substitute
        self._on_broken = on_broken
        self._on_turn = on_turn
        self._instance: ThreadInstance | None = None
        self._leaving: list[ThreadInstance] = []  # taken away, and not at their end
        self._past = InstanceStatistics(
            name=name, device=device, executions=0, failed_executions=0, rows=0, padding_rows=0, busy_ns=0
        )
        self.open_batches = 0
        self.state = MemberState.STARTING
        self.since_ns = clock.now_ns()
        self.reason = ""
        self.restarts = 0

    @property
    def name(self) -> str:
        """Unique within the pool."""
        return self._name

    @property
    def device(self) -> str:
        """Where it runs."""
        return self._device

    @property
    def max_in_flight(self) -> int:
        """Batches that it can hold at once."""
        return self._instance.max_in_flight if self._instance is not None else 1

    @property
    def is_serving(self) -> bool:
        """Whether it gets batches."""
        return self.state in SERVING

    async def execute(self, batch: Sequence[Tensors]) -> BatchResult[Tensors]:
        """Run the payloads together, as `ThreadInstance.execute` does; once more on another member if a worker is lost.

        Raises:
            ExecutionError: The whole batch failed.
            WorkerLostError: The worker was lost, and there is no other member, or its worker was lost too.
        """
        return await executed(self, batch)

    def submit(self, batch: Sequence[Tensors], done: Done[Tensors]) -> None:
        """As `execute`; see `batching.ports.Instance`."""
        self._submit(batch, partial(self._end, batch, done))

    def _submit(self, batch: Sequence[Tensors], done: Done[Tensors]) -> None:
        """Run the payloads in this member's own worker, without a second try."""
        instance = self._instance
        if instance is None:
            error = InstanceClosedError(f"instance '{self._name}' is {self.state.value}: {self.reason or 'no worker'}")
            asyncio.get_running_loop().call_soon(done, error)
        else:
            self.open_batches += 1
            instance.submit(batch, partial(self._count, instance, done))

    def _count(self, instance: ThreadInstance, done: Done[Tensors], outcome: BatchResult[Tensors] | Exception) -> None:
        self.open_batches -= 1
        self._look_at(outcome, instance)
        done(outcome)

    def _end(self, batch: Sequence[Tensors], done: Done[Tensors], outcome: BatchResult[Tensors] | Exception) -> None:
        other = self._second(outcome) if isinstance(outcome, (WorkerLostError, InstanceClosedError)) else None
        if other is None:
            done(outcome)
        else:
            logger.info("instance %s: a batch is run again by %s: %s", self._name, other.name, outcome)
            other._submit(batch, done)  # noqa: SLF001 - of the same class

    def _second(self, error: WorkerLostError | InstanceClosedError) -> "Member | None":
        """Who runs a batch once more; None if nobody does."""
        if isinstance(error, InstanceClosedError) and self.is_serving:
            return self  # another instance has taken over before the batch's turn
        is_guilty = isinstance(error, WorkerLostError) and error.blames_batch
        return None if is_guilty or self.state is MemberState.CLOSED else self._substitute(self)

    def _look_at(self, outcome: BatchResult[Tensors] | Exception, instance: ThreadInstance) -> None:
        """Notice a broken worker with its first error, before the scheduler gives it another batch."""
        if isinstance(outcome, BatchRun) and not outcome.errors:
            return  # nearly always
        for error in outcome.results if isinstance(outcome, BatchResult) else (outcome,):
            if isinstance(error, (WorkerLostError, DeviceFaultError)) and instance is self._instance:
                self._on_broken(error)

    def statistics(self) -> InstanceStatistics:
        """Counters since the pool was started."""
        self._fold()
        total = self._past
        for instance in (*self._leaving, *([self._instance] if self._instance is not None else ())):
            total = _sum(total, instance.statistics())
        return total

    def status(self, pid: int) -> MemberStatus:
        """A snapshot; `pid` is that of its worker process."""
        return MemberStatus(
            statistics=self.statistics(),
            state=self.state,
            since_ns=self.since_ns,
            reason=self.reason,
            restarts=self.restarts,
            pid=pid,
        )

    def seat(self, instance: ThreadInstance) -> None:
        """A started instance executes its batches from now on."""
        self._instance = instance
        self.turn(MemberState.READY)

    def unseat(self) -> ThreadInstance | None:
        """Take the instance away, which keeps answering what it has; its counters stay."""
        instance, self._instance = self._instance, None
        if instance is not None:
            self._fold()
            self._leaving.append(instance)
        return instance

    def _fold(self) -> None:
        """Keep the final counters of instances that have ended, and forget them."""
        for instance in [instance for instance in self._leaving if instance.has_stopped]:
            self._leaving.remove(instance)
            self._past = _sum(self._past, instance.statistics())

    def turn(self, state: MemberState, reason: str = "") -> None:
        """Change the state; nothing happens if it is that already."""
        self.reason = reason
        if state is not self.state:
            self.state = state
            self.since_ns = self._clock.now_ns()
            self._on_turn()


def _sum(past: InstanceStatistics, now: InstanceStatistics) -> InstanceStatistics:
    return replace(
        now,
        executions=past.executions + now.executions,
        failed_executions=past.failed_executions + now.failed_executions,
        rows=past.rows + now.rows,
        padding_rows=past.padding_rows + now.padding_rows,
        busy_ns=past.busy_ns + now.busy_ns,
        memory_failures=past.memory_failures + now.memory_failures,
        non_finite_rows=past.non_finite_rows + now.non_finite_rows,
    )


async def close_all(instances: Sequence[ThreadInstance]) -> None:
    """Close instances: none takes a batch any more, and each running one ends."""
    for instance in instances:
        instance.stop_nowait()
    for instance in instances:
        await instance.aclose()


async def all_or_error(steps: Iterable[Awaitable[None]]) -> None:
    """Wait for all, then raise the first error if there is one."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def start_all(instances: Sequence[ThreadInstance], sizes: Sequence[int]) -> None:
    """Load and warm up instances at the same time: all of them become ready, or all are closed again.

    Raises:
        BackendError: One cannot be made ready.
    """
    try:
        await all_or_error(instance.start(sizes) for instance in instances)
    except BaseException:
        await close_all(instances)
        raise
