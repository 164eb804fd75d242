"""What the `shoal` policy does about deadlines: smaller batches, refusals, and doubts about its own estimates."""

from collections.abc import Callable, Sequence

from batching.core.tickets import Ticket
from batching.policies.shoal_sizes import Scene

_FIRST_GAP, _LARGEST_GAP = 8, 256

Deadline = Callable[[Ticket], float]


def is_hopeless(ticket: Ticket, scene: Scene, since_ns: int) -> bool:
    """Whether a request could not be answered in time even if it had started alone at `since_ns`."""
    if ticket.deadline_ns is None:
        return False
    least_ns = (1 - scene.times.error) * scene.times.of(ticket.rows)
    return ticket.deadline_ns < since_ns + least_ns


def size_of_two(scene: Scene, most: int, free_ns: float, deadline_of: Deadline) -> int:
    """The most rows to start now so that they, and all others in one batch after them, are in time.

    Args:
        scene: The first request would be late in a batch of `most` rows.
        most: Rows.
        free_ns: When another instance can take the second batch.
        deadline_of: Of a request.

    Returns:
        Rows up to the end of a request; 0 if there is no such size.
    """
    largest = scene.view.max_batch_rows
    if scene.rows > 2 * largest:
        return 0
    best = first = 0
    for ticket in scene.view.queue:  # the first one of the second batch
        end_ns = scene.end_ns(first)
        if first > most or end_ns > scene.deadline_ns:
            break
        second = scene.rows - first
        if first and second <= largest and min(end_ns, free_ns) + scene.safe_ns(second) <= deadline_of(ticket):
            best = first
        first += ticket.rows
    return best


def size_in_time(scene: Scene, most: int) -> int:
    """The most rows with which the first request is in time; 0 if it cannot be."""
    return next((size for size in range(most, 0, -1) if scene.end_ns(size) <= scene.deadline_ns), 0)


def sacrificed(scene: Scene, most: int) -> Sequence[Ticket]:
    """The first requests that must go so that the first of the rest is in time. The very last one stays."""
    left = scene.rows
    gone: list[Ticket] = []
    for ticket in scene.view.queue:
        if ticket.deadline_ns is None or ticket.deadline_ns >= scene.end_ns(min(most, left)) or ticket.rows == left:
            break
        gone.append(ticket)
        left -= ticket.rows
    return gone


class Refusals:
    """How hard refusing goes on, and when to doubt the estimate that says so.

    A request whose deadline was hopeless from the beginning is refused without being run, so nothing is learned from
    it: a wrong estimate would refuse for ever. Now and then such a request is run as a probe.

    Attributes:
        pressure: Between 0 (none lately) and 1.
    """

    def __init__(self) -> None:
        self.pressure = 0.0
        self._rows = 0  # refused since the last start
        self._hopeless = 0
        self._gap = _FIRST_GAP
        self._probe: tuple[int, int] | None = None  # batch and deadline

    def refused(self, rows: int) -> None:
        """So many rows have been refused."""
        self._rows += rows

    def started(self) -> None:
        """A batch starts."""
        self.pressure = min(0.95 * self.pressure + 0.1 * min(self._rows, 5), 1.0)
        self._rows = 0

    def wants_probe(self) -> bool:
        """One more request is hopeless from the beginning; whether to run it nevertheless if nothing else runs."""
        self._hopeless += 1
        return self._hopeless >= self._gap

    def probe(self, batch: int, deadline_ns: int) -> None:
        """It runs, as this batch. The next probe is farther away, unless this one makes its deadline."""
        self._probe = batch, deadline_ns
        self._hopeless = 0
        self._gap = min(2 * self._gap, _LARGEST_GAP)

    def ended(self, batch: int, now_ns: int) -> None:
        """A batch has ended."""
        if self._probe is not None and self._probe[0] == batch:
            if now_ns <= self._probe[1]:
                self._gap = _FIRST_GAP
            self._probe = None
