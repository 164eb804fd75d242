"""The policy interface: when does a batch start, and which requests are in it.

A policy is a deterministic state machine without clock or IO. On every event the scheduler calls `decide` with what
happened, performs the actions, and calls it again with no events until it returns none (a fix-point); then it asks
`wake_at_ns` once. So a policy is a list of rules of the form "if ... then one step" and cannot forget a follow-up.

Two ways to start a batch:

* late binding: `Launch` takes the first requests of the queue and starts them on an idle instance;
* staging: `Stage` moves requests into a buffer that may grow, be merged, and wait for an instance; `StartStaged`
  starts it. Servers that form batches ahead of time need this.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from batching.core.events import Event
from batching.core.tickets import Ticket


class CloseReason(enum.Enum):
    """Why a batch was closed with the size that it has."""

    FULL = "full"  # no further row fits
    PREFERRED = "preferred"  # a preferred size was reached
    OVERFLOW = "overflow"  # the next request does not fit
    SHAPE = "shape"  # the next request has another shape
    DELAY = "delay"  # the oldest request has waited long enough
    EAGER = "eager"  # nothing more was there and waiting was not wanted


class QueueView(Protocol):
    """The waiting requests in service order: by priority level, then by arrival."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ticket]: ...

    @property
    def rows(self) -> int:
        """Rows of all waiting requests."""
        ...


class BufferView(Protocol):
    """A batch that has not started."""

    @property
    def id(self) -> int:
        """Names the buffer in actions."""
        ...

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Members in order, at least one."""
        ...

    @property
    def rows(self) -> int:
        """Rows of the members."""
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
    def buffers(self) -> Sequence[BufferView]:
        """Staged batches in the order in which they were opened."""
        ...

    @property
    def next_buffer(self) -> int:
        """The id that the next `Stage` into a new buffer will give it."""
        ...

    @property
    def idle_slots(self) -> int:
        """How many batches could start now."""
        ...

    @property
    def instances(self) -> int:
        """How many instances there are, busy or idle."""
        ...

    @property
    def max_batch_rows(self) -> int:
        """The largest batch."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the first `count` waiting requests on an idle instance."""

    count: int
    reason: CloseReason


@dataclass(frozen=True, slots=True)
class Stage:
    """Move the first `count` waiting requests into a buffer: `into`, or a new one."""

    count: int
    reason: CloseReason
    into: int | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """Append the members of the buffer `source` to the buffer `into`; `source` is gone."""

    into: int
    source: int


@dataclass(frozen=True, slots=True)
class StartStaged:
    """Start a buffer on an idle instance."""

    buffer: int


Action = Launch | Stage | Merge | StartStaged


class Policy(Protocol):
    """See the module's docstring."""

    def decide(self, view: View, events: Sequence[Event]) -> Sequence[Action]:
        """The next steps.

        Args:
            view: The state, with `events` already applied.
            events: What happened at this instant, all of one kind; empty when asked again.
        """
        ...

    def wake_at_ns(self, view: View) -> int | None:
        """When to be asked again if nothing happens before; later than now, or None."""
        ...
