"""The nearest deadline among many that mostly do not come to pass."""

import heapq

from batching.core.tickets import Place, Ticket


class Deadlines:
    """A heap with lazy deletion: tickets that are gone stay until they reach the top or outnumber the others."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ticket]] = []
        self._compact_at = 64

    def add(self, ticket: Ticket) -> None:
        """Watch a ticket; without a deadline it is ignored."""
        if ticket.deadline_ns is None:
            return
        heapq.heappush(self._heap, (ticket.deadline_ns, ticket.id, ticket))
        if len(self._heap) >= self._compact_at:
            self._compact()

    def nearest_ns(self) -> int | None:
        """The nearest deadline of a ticket that is still here."""
        heap = self._heap
        while heap and _is_over(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ns: int) -> list[Ticket]:
        """Take out the tickets whose deadline is now or earlier, in order of deadline."""
        due: list[Ticket] = []
        while (nearest := self.nearest_ns()) is not None and nearest <= now_ns:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def _compact(self) -> None:
        """Drop what is gone; the next time when the rest has doubled, so that the cost per ticket is constant."""
        self._heap = [entry for entry in self._heap if not _is_over(entry[2])]
        heapq.heapify(self._heap)
        self._compact_at = max(64, 2 * len(self._heap))


def _is_over(ticket: Ticket) -> bool:
    return ticket.place is Place.GONE or ticket.is_answered
