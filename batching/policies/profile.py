"""How long a batch takes, as measured before: what the policies of the research papers plan with.

Nexus, Symphony and SHEPHERD are given a latency profile of every model; they do not learn one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from batching.core.batches import CloseReason
from batching.core.tickets import Ticket

MICROSECOND_NS = 1_000
NEVER_NS = 1 << 62


class ServiceProfile:
    """Time of a batch by its rows, "ell" in the papers: linear between the given points, and beyond the last two.

    A batch with fewer rows than the first point takes as long as that, and none is faster than a smaller one, which
    padding could always imitate: so times ascend.

    Args:
        batch_us: Times in microseconds by rows; two points of an affine function give that function.

    Raises:
        ValueError: No points, rows below 1 or times that are not positive.
    """

    def __init__(self, batch_us: Mapping[int, float]) -> None:
        if not batch_us or min(batch_us) < 1 or min(batch_us.values()) <= 0:
            expected = "rows from 1 on with positive times"
            raise ValueError(f"profile_us must give times of batches, found {dict(batch_us)}, expected {expected}")
        self._rows = sorted(batch_us)
        self._times_ns = list(accumulate((round(batch_us[rows] * MICROSECOND_NS) for rows in self._rows), max))

    def batch_ns(self, rows: int) -> int:
        """Time of a batch of `rows` rows."""
        place = bisect_right(self._rows, rows)
        if place == 0:
            return self._times_ns[0]
        if len(self._rows) == 1:
            return -(-self._times_ns[0] * rows // self._rows[0])
        high = min(place, len(self._rows) - 1)
        low_rows, high_rows = self._rows[high - 1], self._rows[high]
        low_ns, high_ns = self._times_ns[high - 1], self._times_ns[high]
        return low_ns + -(-(rows - low_rows) * (high_ns - low_ns) // (high_rows - low_rows))

    def largest_rows(self, within_ns: int, most_rows: int) -> int:
        """The largest batch that takes at most `within_ns`; 0 if not even one row does."""
        low, high = 0, most_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self.batch_ns(middle) <= within_ns:
                low = middle
            else:
                high = middle - 1
        return low


def due_ns(ticket: Ticket, slo_us: int | None) -> int:
    """A request's deadline or its arrival plus the objective, whatever is first; `NEVER_NS` if there is neither.

    It is the order of the queue, too.
    """
    deadline_ns = NEVER_NS if ticket.deadline_ns is None else ticket.deadline_ns
    return deadline_ns if slo_us is None else min(deadline_ns, ticket.arrival_ns + slo_us * MICROSECOND_NS)


class TimelyPrefix(NamedTuple):
    """The first `requests` of some requests, of `rows` rows, the earliest due at `due_ns`, and why no more."""

    requests: int
    rows: int
    due_ns: int
    reason: CloseReason


def timely_prefix(
    tickets: Iterable[Ticket], max_rows: int, due_ns: Callable[[Ticket], int], end_ns: Callable[[int], int]
) -> TimelyPrefix:
    """The longest prefix that may run as one batch so that nobody in it is late; the first one is never examined.

    Args:
        tickets: In service order, at least one.
        max_rows: The largest batch.
        due_ns: When a request must have ended; mostly ascending.
        end_ns: When a batch of so many rows would end.
    """
    requests = rows = 0
    earliest_ns, shape_key, reason = NEVER_NS, None, CloseReason.EAGER
    for ticket in tickets:
        within_ns = min(earliest_ns, due_ns(ticket))
        if not requests:
            shape_key = ticket.shape_key
        elif rows >= max_rows:
            reason = CloseReason.FULL
        elif ticket.shape_key != shape_key:
            reason = CloseReason.SHAPE
        elif rows + ticket.rows > max_rows:
            reason = CloseReason.OVERFLOW
        elif end_ns(rows + ticket.rows) > within_ns:
            reason = CloseReason.DEADLINE
        if reason is not CloseReason.EAGER:
            return TimelyPrefix(requests, rows, earliest_ns, reason)
        requests += 1
        rows += ticket.rows
        earliest_ns = within_ns
    return TimelyPrefix(requests, rows, earliest_ns, CloseReason.FULL if rows >= max_rows else reason)
