"""The policy interface: when does a batch start, and which requests are in it.

A policy is a deterministic state machine without clock or IO. On every event the scheduler calls `decide` with what
happened, performs the actions, and calls it again with no news until it returns none (a fix-point); then it asks
`wake_at_ns` once. So a policy is a list of rules of the form "if ... then one step" and cannot forget a follow-up.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from batching.core.actions import Action, RefusalReason
from batching.core.batches import Batch
from batching.core.news import News
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.core.workers import Worker


class QueueView(Protocol):
    """The waiting requests in service order: by priority level, then as the policy's `queue_order` says."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ticket]: ...

    @property
    def rows(self) -> int:
        """Rows of all waiting requests."""
        ...

    @property
    def first(self) -> Ticket | None:
        """The next in service order."""
        ...

    def level_requests(self, priority: int) -> int:
        """How many of one priority level wait."""
        ...


class View(Protocol):
    """What a policy may look at. Valid during the call only."""

    @property
    def now_ns(self) -> int:
        """The time."""
        ...

    @property
    def queue(self) -> QueueView:
        """Waiting requests; expired and withdrawn ones are gone."""
        ...

    @property
    def batches(self) -> Sequence[Batch]:
        """Batches that have not started, in the order in which they were opened; none is empty."""
        ...

    @property
    def next_batch(self) -> int:
        """The id that the next batch will get."""
        ...

    @property
    def running(self) -> Collection[Batch]:
        """Started batches whose instance is not free again."""
        ...

    @property
    def reserved_requests(self) -> int:
        """Admitted requests that are not in the queue yet."""
        ...

    @property
    def idle_slots(self) -> int:
        """How many batches could start now."""
        ...

    @property
    def instances(self) -> Sequence[Worker]:
        """The instances that take batches, busy or idle, in the order in which they joined."""
        ...

    @property
    def max_batch_rows(self) -> int:
        """The largest batch that every instance takes."""
        ...

    @property
    def can_abort(self) -> bool:
        """Whether running batches can be preempted."""
        ...


class Policy(Protocol):
    """See the module's docstring."""

    queue_order: ClassVar[QueueOrder]
    """Who is first within a priority level."""

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """The next steps.

        Args:
            view: The state, with the news already in it.
            news: What happened at this instant, all of one kind; empty when asked again.
        """
        ...

    def wake_at_ns(self, view: View) -> int | None:
        """When to be asked again if nothing happens before; later than now, or None."""
        ...


@runtime_checkable
class Planning(Protocol):
    """A policy in order of deadline that has an objective for requests without one, or with a later one."""

    @property
    def objective_ns(self) -> int | None:
        """How long after its arrival such a request is due; None: it is served last."""
        ...


@runtime_checkable
class Admitting(Protocol):
    """A policy with a queue limit of its own."""

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:
        """Why a request is refused before it is admitted, or None. Those in `reserved_requests` are still to come."""
        ...
