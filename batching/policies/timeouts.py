"""Queue timeouts of the original servers: of all requests alike, or brought along by a request."""

from collections.abc import Callable, Iterable, Sequence

from batching.core.deadlines import Deadlines
from batching.core.news import News
from batching.core.policy import View
from batching.core.tickets import Place, Ticket

TimesOut = Callable[[Ticket], int | None]
"""When a request times out, or None."""


def after_admission(timeout_ns: int | None) -> TimesOut | None:
    """The same time for all, from their admission on, as most servers have it; None: never."""
    return None if timeout_ns is None else lambda ticket: ticket.admitted_ns + timeout_ns


def as_requested(ticket: Ticket) -> int | None:
    """The time that the request brings along, from its arrival on."""
    return None if ticket.timeout_ns is None else ticket.arrival_ns + ticket.timeout_ns


class Timeouts:
    """Who has waited too long and has not started; each is told once.

    Args:
        times_out: For each request that arrives; None: nobody does.
    """

    def __init__(self, times_out: TimesOut | None) -> None:
        self._times_out = times_out
        self._deadlines = Deadlines(_has_started)

    def notice(self, view: View, news: News) -> None:
        """Watch what has arrived; to be called with all news."""
        if self._times_out is None:
            return
        if news.fleet:  # this policy may just have taken over from another
            self._deadlines.clear()
            self._watch(self._times_out, view.queue)
            for batch in view.batches:
                self._watch(self._times_out, batch.tickets)
        elif news.arrived:
            self._watch(self._times_out, news.arrived)

    def nearest_ns(self) -> int | None:
        """When the next request times out, or None."""
        return self._deadlines.nearest_ns()

    def pop_due(self, now_ns: int) -> Sequence[Ticket]:
        """Take out the requests that time out now or earlier."""
        return self._deadlines.pop_due(now_ns) if self._times_out else ()

    def _watch(self, times_out: TimesOut, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            due_ns = times_out(ticket) if ticket.of is None else None  # a part goes with its request
            if due_ns is not None:
                self._deadlines.add(ticket, due_ns)


_PENDING = frozenset({Place.WAITING, Place.STAGED})


def _has_started(ticket: Ticket) -> bool:
    return ticket.place not in _PENDING or ticket.is_answered
