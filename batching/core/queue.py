"""The waiting requests."""

import enum
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from batching.core.tickets import Ticket

_NO_DEADLINE = 1 << 62


class QueueOrder(enum.Enum):
    """Who is first within a priority level."""

    ARRIVAL = "arrival"
    DEADLINE = "deadline"  # earliest deadline first, see `WaitingQueue`; then by arrival


class _Level(Protocol):
    """The requests of one priority level."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Ticket]: ...
    @property
    def first(self) -> Ticket | None: ...
    def append(self, ticket: Ticket) -> None: ...
    def push_front(self, ticket: Ticket) -> None: ...
    def remove(self, ticket: Ticket) -> None: ...
    def pop_first(self, count: int) -> list[Ticket]: ...


class _ByArrival:
    """`OrderedDict` rather than `dict`: taking from the front of a dict scans the slots of what was taken before."""

    def __init__(self) -> None:
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    @property
    def first(self) -> Ticket | None:
        return next(iter(self._tickets.values()), None)

    def append(self, ticket: Ticket) -> None:
        self._tickets[ticket.id] = ticket

    def push_front(self, ticket: Ticket) -> None:
        self._tickets[ticket.id] = ticket
        self._tickets.move_to_end(ticket.id, last=False)

    def remove(self, ticket: Ticket) -> None:
        del self._tickets[ticket.id]

    def pop_first(self, count: int) -> list[Ticket]:
        pop = self._tickets.popitem
        return [pop(last=False)[1] for _ in range(min(count, len(self._tickets)))]


class _ByDeadline:
    """A sorted list: inserting moves memory, which for thousands of entries is faster than a tree in Python."""

    def __init__(self, objective_ns: int | None) -> None:
        self._objective_ns = _NO_DEADLINE if objective_ns is None else objective_ns
        # Due time, arrival, id; as ids are unique, tickets are never compared.
        self._entries: list[tuple[int, int, int, Ticket]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ticket]:
        return (entry[3] for entry in self._entries)

    @property
    def first(self) -> Ticket | None:
        return self._entries[0][3] if self._entries else None

    def append(self, ticket: Ticket) -> None:
        insort(self._entries, self._entry(ticket))

    push_front = append  # the order is by deadline whatever the wish

    def remove(self, ticket: Ticket) -> None:
        del self._entries[bisect_left(self._entries, self._entry(ticket))]

    def pop_first(self, count: int) -> list[Ticket]:
        first, self._entries[:count] = self._entries[:count], []
        return [entry[3] for entry in first]

    def _entry(self, ticket: Ticket) -> tuple[int, int, int, Ticket]:
        due_ns = ticket.arrival_ns + self._objective_ns
        if ticket.deadline_ns is not None and ticket.deadline_ns < due_ns:
            due_ns = ticket.deadline_ns
        return due_ns, ticket.arrival_ns, ticket.id, ticket


class WaitingQueue:
    """Requests by priority level (lower first; behind each level those that were delayed), then by `order`.

    Args:
        order: Who is first within a level.
        objective_ns: In order of deadline, how long after its arrival a request is due that has no earlier deadline;
            None: last.
    """

    def __init__(self, order: QueueOrder, objective_ns: int | None = None) -> None:
        self.rows = 0
        self._new_level: Callable[[], _Level] = (
            _ByArrival if order is QueueOrder.ARRIVAL else lambda: _ByDeadline(objective_ns)
        )
        self._levels: dict[int, _Level] = {}  # by twice the priority, one more for those that were delayed
        self._order: list[_Level] = []  # the levels' queues, most urgent first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Ticket]:
        for level in self._order:
            yield from level

    @property
    def first(self) -> Ticket | None:
        """The next in service order."""
        for level in self._order:
            first = level.first
            if first is not None:
                return first
        return None

    def level_requests(self, priority: int) -> int:
        """How many of one priority level wait, delayed ones included."""
        return sum(len(self._levels.get(2 * priority + delayed, ())) for delayed in (False, True))

    def append(self, ticket: Ticket) -> None:
        """Put a ticket at the end of its level."""
        self._level(ticket).append(ticket)
        self._length += 1
        self.rows += ticket.rows

    def push_front(self, tickets: Iterable[Ticket]) -> None:
        """Put tickets before all others of their levels, in the given order."""
        for ticket in reversed(list(tickets)):
            self._level(ticket).push_front(ticket)
            self._length += 1
            self.rows += ticket.rows

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out from wherever it is."""
        self._level(ticket).remove(ticket)
        self._length -= 1
        self.rows -= ticket.rows

    def cut_first(self, number: int, rows: int) -> Ticket:
        """Take the first `rows` rows of the first ticket out as a part of its own; the rest keeps its place."""
        whole = self.first
        assert whole is not None  # noqa: S101 - the caller has counted
        self.rows -= rows
        return whole.cut(number, rows)

    def take(self, count: int) -> list[Ticket]:
        """Take the first `count` tickets; fewer if there are not as many."""
        taken: list[Ticket] = []
        for level in self._order:
            taken += level.pop_first(count - len(taken))
        self._length -= len(taken)
        self.rows -= sum([ticket.rows for ticket in taken])
        return taken

    def _level(self, ticket: Ticket) -> _Level:
        key = 2 * ticket.priority + ticket.is_delayed
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = self._new_level()
            self._order = [self._levels[known] for known in sorted(self._levels)]
        return level
