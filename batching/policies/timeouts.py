"""Queue timeouts that run from admission and are the same for all requests, as most servers have them."""

import heapq
from collections.abc import Iterable, Sequence

from batching.core.news import News
from batching.core.policy import View
from batching.core.tickets import Place, Ticket

_PENDING = frozenset({Place.WAITING, Place.STAGED})


class Timeouts:
    """Who has waited too long and has not started.

    A heap by moment of admission. Requests start about in the order of their admission, so what has started is soon at
    the top and removed there.

    Args:
        timeout_ns: How long after its admission a request times out; None: never.
    """

    def __init__(self, timeout_ns: int | None) -> None:
        self._timeout_ns = timeout_ns
        self._heap: list[tuple[int, int, Ticket]] = []

    def notice(self, view: View, news: News) -> None:
        """Watch what has arrived; to be called with all news."""
        if self._timeout_ns is None:
            return
        if news.fleet:  # this policy may just have taken over from another
            self._heap.clear()
            self._watch(self._timeout_ns, view.queue)
            for batch in view.batches:
                self._watch(self._timeout_ns, batch.tickets)
        elif news.arrived:
            self._watch(self._timeout_ns, news.arrived)

    def nearest_ns(self) -> int | None:
        """When the next request times out, or None."""
        heap = self._heap
        while heap and not _is_pending(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ns: int) -> Sequence[Ticket]:
        """Take out the requests that time out now or earlier: each is given once."""
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return ()
        due: list[Ticket] = []
        while heap and heap[0][0] <= now_ns:
            ticket = heapq.heappop(heap)[2]
            if _is_pending(ticket):
                due.append(ticket)
        return due

    def _watch(self, timeout_ns: int, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            heapq.heappush(self._heap, (ticket.admitted_ns + timeout_ns, ticket.id, ticket))


def _is_pending(ticket: Ticket) -> bool:
    return ticket.place in _PENDING and not ticket.is_answered
