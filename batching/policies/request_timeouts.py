"""Queue timeouts that requests bring along (`Ticket.timeout_ns`), for policies that know such a parameter."""

import heapq
from collections.abc import Iterable

from batching.core.tickets import Place, Ticket

_PENDING = frozenset({Place.WAITING, Place.STAGED})


class RequestTimeouts:
    """Ends each exactly on time. A heap by moment of the timeout; who has started or gone is skipped when the heap comes to them."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ticket]] = []

    def watch(self, arrived: Iterable[Ticket]) -> None:
        """Note requests that entered the queue; those without a timeout are ignored."""
        for ticket in arrived:
            if ticket.timeout_ns is not None:
                heapq.heappush(self._heap, (ticket.arrival_ns + ticket.timeout_ns, ticket.id, ticket))

    def nearest_ns(self) -> int | None:
        """The next timeout of a request that has not started."""
        heap = self._heap
        while heap and heap[0][2].place not in _PENDING:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ns: int) -> list[Ticket]:
        """Take out the requests that have not started and whose timeout is now or earlier."""
        due: list[Ticket] = []
        while (nearest_ns := self.nearest_ns()) is not None and nearest_ns <= now_ns:
            due.append(heapq.heappop(self._heap)[2])
        return due


def is_late(ticket: Ticket, now_ns: int) -> bool:
    """Whether the timeout of a request, or of the request that a part was cut from, is now or earlier."""
    timeout_ns = (ticket.of or ticket).timeout_ns
    return timeout_ns is not None and ticket.arrival_ns + timeout_ns <= now_ns
