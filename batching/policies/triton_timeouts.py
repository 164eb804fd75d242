"""Which waiting requests have waited longer than Triton's queue policies allow.

The original (triton-inference-server/core, `scheduler_utils.cc`: ApplyPolicyAtCursor, IsCursorValid) notices late
requests only where its batcher passes them: that is `Sieve`. `Punctual` finds them at the moment when they become late.
"""

from collections.abc import Iterable, Iterator

from batching.core.actions import Action
from batching.core.deadlines import Deadlines
from batching.core.policy import QueueView
from batching.core.tickets import WAITING, Ticket
from batching.policies.triton_queue import QueuePolicies


class Sieve:
    """One pass over the queue that leaves late tickets out, as the original's cursor does: only up to where it stops.

    Attributes:
        late: The late tickets that were passed.
        nearest_ns: When the first of the others times out, or None.
    """

    def __init__(self, policies: QueuePolicies, queue: QueueView, now_ns: int) -> None:
        self.late: list[Ticket] = []
        self.nearest_ns: int | None = None
        self._policies = policies
        self._queue = queue
        self._now_ns = now_ns

    def __iter__(self) -> Iterator[Ticket]:
        """Tickets in service order; those that are delayed in this pass come at the end of their level."""
        delayed: list[Ticket] = []
        for ticket in self._queue:
            if delayed and delayed[0].priority != ticket.priority:
                yield from delayed
                delayed = []
            latest_ns = self._policies.latest_ns(ticket)
            if latest_ns is None or self._now_ns <= latest_ns:
                self.nearest_ns = earlier(self.nearest_ns, latest_ns)
                yield ticket
                continue
            self.late.append(ticket)
            if self._policies.of(ticket.priority).delays:
                delayed.append(ticket)
        yield from delayed


class Punctual:
    """Finds late tickets at the very moment when they become late."""

    def __init__(self, policies: QueuePolicies) -> None:
        self._policies = policies
        self._deadlines = Deadlines(lambda ticket: ticket.place is not WAITING or ticket.is_delayed)

    def watch(self, tickets: Iterable[Ticket]) -> None:
        """Watch waiting tickets; twice does no harm."""
        for ticket in tickets:
            latest_ns = self._policies.latest_ns(ticket)
            if latest_ns is not None:
                self._deadlines.add(ticket, latest_ns)

    def pop_late(self, now_ns: int) -> list[Action]:
        """What is to be done with those that are late now."""
        late = {ticket.id: ticket for ticket in self._deadlines.pop_due(now_ns)}
        return self._policies.actions(late.values())

    def nearest_ns(self) -> int | None:
        """When the next waiting ticket times out."""
        return self._deadlines.nearest_ns()


def earlier(one_ns: int | None, other_ns: int | None) -> int | None:
    """The earlier of two moments, either of which may be missing."""
    if one_ns is None or other_ns is None:
        return other_ns if one_ns is None else one_ns
    return min(one_ns, other_ns)
