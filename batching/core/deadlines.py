"""The nearest of many moments that mostly do not come to pass."""

import heapq
from collections.abc import Callable

from batching.core.tickets import GONE, Ticket


def _has_ended(ticket: Ticket) -> bool:
    return ticket.place is GONE or ticket.is_answered


class Deadlines:
    """A heap with lazy deletion: what is over stays until it reaches the top or outnumbers the others.

    Args:
        is_over: Whether a ticket's deadline means nothing any more; never back to False.
    """

    def __init__(self, is_over: Callable[[Ticket], bool] = _has_ended) -> None:
        self._is_over = is_over
        self._heap: list[tuple[int, int, Ticket]] = []
        self._compact_at = 64

    def add(self, ticket: Ticket, due_ns: int) -> None:
        """Watch a ticket."""
        heapq.heappush(self._heap, (due_ns, ticket.id, ticket))
        if len(self._heap) >= self._compact_at:
            self._compact()

    def nearest_ns(self) -> int | None:
        """The nearest deadline that still means something."""
        heap = self._heap
        while heap and self._is_over(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ns: int) -> list[Ticket]:
        """Take out the tickets whose deadline is now or earlier, in order of deadline."""
        due: list[Ticket] = []
        while (nearest := self.nearest_ns()) is not None and nearest <= now_ns:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def clear(self) -> None:
        """Watch nobody."""
        self._heap.clear()

    def _compact(self) -> None:
        """Drop what is over; the next time when the rest has doubled, so that the cost per ticket is constant."""
        self._heap = [entry for entry in self._heap if not self._is_over(entry[2])]
        heapq.heapify(self._heap)
        self._compact_at = max(64, 2 * len(self._heap))
