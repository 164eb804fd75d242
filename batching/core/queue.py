"""The waiting requests."""

from collections import OrderedDict
from collections.abc import Iterator

from batching.core.tickets import Ticket


class WaitingQueue:
    """Requests by priority level (lower first), then arrival. Every operation but iteration is O(1) in the length.

    `OrderedDict` rather than `dict`: taking from the front of a dict scans the slots of what was taken before.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._levels: dict[int, OrderedDict[int, Ticket]] = {}
        self._order: list[OrderedDict[int, Ticket]] = []  # the levels' queues, most urgent first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Ticket]:
        for level in self._order:
            yield from level.values()

    def append(self, ticket: Ticket) -> None:
        """Put a ticket at the end of its level."""
        level = self._levels.get(ticket.priority)
        if level is None:
            level = self._levels[ticket.priority] = OrderedDict()
            self._order = [self._levels[priority] for priority in sorted(self._levels)]
        level[ticket.id] = ticket
        self._length += 1
        self.rows += ticket.rows

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out from wherever it is."""
        del self._levels[ticket.priority][ticket.id]
        self._length -= 1
        self.rows -= ticket.rows

    def take(self, count: int) -> list[Ticket]:
        """Take the first `count` tickets; fewer if there are not as many."""
        taken: list[Ticket] = []
        for level in self._order:
            while level and len(taken) < count:
                taken.append(level.popitem(last=False)[1])
        self._length -= len(taken)
        self.rows -= sum(ticket.rows for ticket in taken)
        return taken
