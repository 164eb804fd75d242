"""SHEPHERD: the largest batch that keeps its earliest deadline, and preemption for one that is much larger.

An idle instance starts at once, with requests in order of deadline as long as the earliest of them still ends in time;
who cannot be served even alone is dropped. When a request arrives while all instances are busy, the same choice is
made over the waiting requests and those of a running batch together: if the result has at least `preemption_factor`
times the rows of the running batch, that batch is aborted, its requests go back to the queue, and its work is lost.
Where batches cannot be aborted, the factor is infinite.

The rule is that of SHEPHERD (NSDI'23) as re-implemented in abcdabcd987/nexuslb, `tools/shepherd/flex_scheduler.cpp`,
with one correction: that code looks for hopeless requests at the wrong end of the queue. The choice between models
(there: the largest batch) is `batching.core.arbiter`'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from typing import ClassVar

from batching.core.actions import Action, Drop, Launch, Preempt, RefusalReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Place, Ticket
from batching.policies.profile import MICROSECOND_NS, ServiceProfile, TimelyPrefix, due_ns, timely_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class ShepherdSettings:
    """What SHEPHERD knows about a model.

    Attributes:
        profile_us: Measured times of batches by their rows, see `ServiceProfile`.
        slo_us: The deadline of requests that bring none, counted from their arrival; None: they have none.
        preemption_factor: Lambda: how many times larger a batch must be to replace a running one.
    """

    profile_us: Mapping[int, float]
    slo_us: int | None = None
    preemption_factor: float = 3.03

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        ServiceProfile(self.profile_us)
        if self.slo_us is not None and self.slo_us < 1:
            raise ValueError(f"slo_us must be at least 1, found {self.slo_us}")
        if not self.preemption_factor > 1:
            raise ValueError(f"preemption_factor must be above 1, found {self.preemption_factor}")


class Shepherd:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.DEADLINE

    def __init__(self, settings: ShepherdSettings) -> None:
        self.objective_ns = None if settings.slo_us is None else settings.slo_us * MICROSECOND_NS
        self._profile = ServiceProfile(settings.profile_us)
        self._slo_us = settings.slo_us
        self._factor = settings.preemption_factor

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Drop the hopeless, then launch; on an arrival, perhaps preempt."""
        if not len(view.queue) or not (view.idle_slots or news.arrived):
            return ()
        now_ns = view.now_ns
        hopeless = list(takewhile(lambda ticket: self._due_ns(ticket) < self._end_ns(ticket.rows, now_ns), view.queue))
        if view.idle_slots and not hopeless:
            prefix = self._largest(view.queue, view)
            return (Launch(prefix.requests, prefix.reason),)
        actions: list[Action] = [Drop(hopeless, RefusalReason.HOPELESS)] if hopeless else []
        if not view.idle_slots and view.can_abort:
            actions += self._preemptions(view, len(hopeless))
        return actions

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """Never: only arrivals and ends of batches give it something to do."""
        return None

    def _preemptions(self, view: View, hopeless: int) -> Sequence[Action]:
        """One at most: the freed instance is then filled, and the next arrival looks at the others.

        Who runs and could not be served in time from now on is first in its new batch, which then has its size only:
        so nobody loses an answer that is on its way.
        """
        waiting = list(view.queue)[hopeless:]
        for batch in view.running:
            if not batch.is_running or not waiting:
                continue
            members = [ticket for ticket in batch.tickets if ticket.place is Place.RUNNING]
            prefix = self._largest(merge(members, waiting, key=self._order), view)
            if prefix.rows >= self._factor * batch.rows:
                return (Preempt(batch.id),)
        return ()

    def _largest(self, tickets: Iterable[Ticket], view: View) -> TimelyPrefix:
        return timely_prefix(tickets, view.max_batch_rows, self._due_ns, lambda rows: self._end_ns(rows, view.now_ns))

    def _end_ns(self, rows: int, now_ns: int) -> int:
        return now_ns + self._profile.batch_ns(rows)

    def _due_ns(self, ticket: Ticket) -> int:
        return due_ns(ticket, self._slo_us)

    def _order(self, ticket: Ticket) -> tuple[int, int, int, int]:
        """That of the queue."""
        return ticket.priority, self._due_ns(ticket), ticket.arrival_ns, ticket.id
