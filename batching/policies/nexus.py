"""Nexus: a batch of the target size for as many requests as can be saved, the oldest given up first.

Whenever an instance is idle, its batch is chosen over the requests in order of deadline. "window" (the original's
default): a batch of the target size, or of all that wait, would end at some time; whoever is due before that is
dropped, and only when so many are dropped that the batch becomes smaller, its end comes nearer. So old requests are
sacrificed for the batch to keep its size. "earliest": only who cannot be served even alone is dropped, and the batch
has the largest size that serves the first request in time.

The rule is that of Nexus (uwsampl/nexus, `model_exec.cpp`: GetBatchTaskSlidingWindow, GetBatchTaskEarliest;
`gpu_executor.cpp`), without its cluster scheduler: a target that is not given is the one of a saturated session, the
largest batch that takes half of the objective. Its round-robin over models is `batching.core.arbiter`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar, Literal

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.profile import MICROSECOND_NS, ServiceProfile, due_ns, timely_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class NexusSettings:
    """What Nexus knows about a session.

    Attributes:
        profile_us: Measured times of batches by their rows, see `ServiceProfile`.
        slo_us: The deadline of requests that bring none, counted from their arrival; None: they have none.
        target_batch: Rows that a batch aims at; None: the largest batch within half of `slo_us`, or at all.
        drop: Who is dropped: "window" or "earliest".
    """

    profile_us: Mapping[int, float]
    slo_us: int | None = None
    target_batch: int | None = None
    drop: Literal["window", "earliest"] = "window"

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        ServiceProfile(self.profile_us)
        for name in ("slo_us", "target_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if self.drop not in ("window", "earliest"):
            raise ValueError(f"drop must be 'window' or 'earliest', found {self.drop!r}")


class Nexus:
    """The policy; one object per model version.

    Args:
        settings: Of the session.
        max_batch_rows: The largest batch.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.DEADLINE

    def __init__(self, settings: NexusSettings, max_batch_rows: int) -> None:
        self.objective_ns = None if settings.slo_us is None else settings.slo_us * MICROSECOND_NS
        self._profile = ServiceProfile(settings.profile_us)
        self._slo_us = settings.slo_us
        self._choose = self._window if settings.drop == "window" else self._earliest
        target_rows = settings.target_batch or max_batch_rows
        if settings.target_batch is None and settings.slo_us is not None:
            target_rows = self._profile.largest_rows(settings.slo_us * MICROSECOND_NS // 2, max_batch_rows) or 1
        self._target_rows = min(target_rows, max_batch_rows)

    def decide(self, view: View, news: News) -> Sequence[Action]:  # noqa: ARG002 - all is in the view
        """While there is an idle slot and something to run, drop who must be and launch the rest."""
        if not view.idle_slots or not len(view.queue):
            return ()
        return self._choose(view, min(self._target_rows, view.max_batch_rows))

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """Never: nobody waits or is dropped while no instance is idle."""
        return None

    def _window(self, view: View, target_rows: int) -> Sequence[Action]:
        plan = _Plan(target_rows, left_rows=view.queue.rows)
        for ticket in view.queue:
            if not plan.has_room_for(ticket):
                break
            end_ns = view.now_ns + self._profile.batch_ns(max(plan.size_rows, ticket.rows))
            if due_ns(ticket, self._slo_us) < end_ns:
                plan.drop(ticket)
            else:
                plan.take(ticket)
        actions: list[Action] = [Drop(plan.dropped, RefusalReason.HOPELESS)] if plan.dropped else []
        if plan.count:
            actions.append(Launch(plan.count, plan.reason))
        return actions

    def _earliest(self, view: View, target_rows: int) -> Sequence[Action]:
        hopeless = list(takewhile(lambda ticket: self._is_hopeless(ticket, view.now_ns), view.queue))
        if hopeless:
            return (Drop(hopeless, RefusalReason.HOPELESS),)
        prefix = timely_prefix(
            view.queue,
            target_rows,
            lambda ticket: due_ns(ticket, self._slo_us) - 1,  # a larger batch must end before, not at, the deadline
            lambda rows: view.now_ns + self._profile.batch_ns(rows),
        )
        return (Launch(prefix.requests, prefix.reason),)

    def _is_hopeless(self, ticket: Ticket, now_ns: int) -> bool:
        return due_ns(ticket, self._slo_us) < now_ns + self._profile.batch_ns(ticket.rows)


@dataclass(slots=True)
class _Plan:
    """A batch under construction."""

    target_rows: int
    left_rows: int  # of requests that are neither taken nor dropped
    rows: int = 0
    count: int = 0
    dropped: list[Ticket] = field(default_factory=list)
    shape_key: object = None
    reason: CloseReason = CloseReason.EAGER

    @property
    def size_rows(self) -> int:
        """What the batch will have if nobody else is dropped."""
        return min(self.target_rows, self.rows + self.left_rows)

    def has_room_for(self, ticket: Ticket) -> bool:
        """Whether the batch goes on to this request; the first one joins whatever its size."""
        if not self.count or self.reason is CloseReason.FULL:
            return not self.count
        if ticket.shape_key != self.shape_key:
            self.reason = CloseReason.SHAPE
        elif self.rows + ticket.rows > self.target_rows:
            self.reason = CloseReason.OVERFLOW
        return self.reason is CloseReason.EAGER

    def drop(self, ticket: Ticket) -> None:
        self.dropped.append(ticket)
        self.left_rows -= ticket.rows

    def take(self, ticket: Ticket) -> None:
        self.rows += ticket.rows
        self.left_rows -= ticket.rows
        self.count += 1
        self.shape_key = ticket.shape_key
        if self.rows >= self.target_rows:
            self.reason = CloseReason.FULL
