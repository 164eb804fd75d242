"""Answers in the order in which their requests were taken from the queue (Triton's `preserve_ordering`)."""

from collections import deque

from batching.core.tickets import ENDED, GONE, Ticket


class ReleaseOrder:
    """A reorder buffer. The order is that of `take`; who is gone holds nobody up."""

    def __init__(self) -> None:
        self._held: deque[Ticket] = deque()
        self._known: set[int] = set()

    def take(self, request: Ticket) -> None:
        """The request, or its first part, has left the queue."""
        if request.id not in self._known:
            self._known.add(request.id)
            self._held.append(request)

    def release(self) -> list[Ticket]:
        """The requests whose answers may leave now, in order."""
        released: list[Ticket] = []
        while self._held and (_is_gone(self._held[0]) or has_ended(self._held[0])):
            first = self._held.popleft()
            self._known.discard(first.id)
            if not _is_gone(first):
                released.append(first)
        return released


def _is_gone(request: Ticket) -> bool:
    return request.place is GONE or request.is_answered


def has_ended(request: Ticket) -> bool:
    """Whether all rows of a request have been computed."""
    return request.place is ENDED and not request.parts
