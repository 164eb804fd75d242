"""One scheduler with instances of its own, as the kernel keeps it."""

from collections.abc import Sequence

from batching.core.commands import Start
from batching.core.events import Event
from batching.core.scheduler import Scheduler
from batching.simulation.observers import Entry, Run
from batching.simulation.service import Occupy


class Replica:
    """A scheduler and what belongs to it.

    Args:
        scheduler: Fresh; the simulation drives it from time 0.
        occupy: How long its instances are busy.
        number: Its place among the replicas.

    Attributes:
        entries: Requests that have not ended, by ticket.
        runs: Batches whose instance is not free again, by id.
        events: What happened at this instant, for the next `handle`.
        held: With `preserve_ordering`, by ticket, the batch whose end computed an answer that may not leave yet.
    """

    __slots__ = ("_occupy", "_rows_left", "entries", "events", "held", "number", "runs", "scheduler")

    def __init__(self, scheduler: Scheduler, occupy: Occupy, number: int = 0) -> None:
        self.scheduler = scheduler
        self.number = number
        self.entries: dict[int, Entry] = {}
        self.runs: dict[int, Run] = {}
        self.events: list[Event] = []
        self.held: dict[int, Run] = {}
        self._occupy = occupy
        self._rows_left: dict[int, int] = {}  # of requests in parts, by ticket

    def start(self, command: Start, now_ns: int) -> Run:
        """A batch begins."""
        entries = self.entries
        members = [entries[ticket] for ticket in command.tickets]
        occupancy = self._occupy(command.rows, now_ns, command.instance)
        run = Run(self.number, command, members, now_ns, occupancy)
        self.runs[command.batch] = run
        return run

    def finish(self, command: Start) -> list[int]:
        """A batch has ended: the tickets of its members that are still here and have no rows left to compute."""
        entries = self.entries
        if command.parts is None:
            return [ticket for ticket in command.tickets if ticket in entries]
        return [
            ticket
            for ticket, part in zip(command.tickets, command.parts, strict=True)
            if ticket in entries and self._count_down(ticket, part.rows)
        ]

    def pop(self, tickets: Sequence[int]) -> list[Entry]:
        """Forget requests that end."""
        if self._rows_left:
            for ticket in tickets:
                self._rows_left.pop(ticket, None)
        return list(map(self.entries.pop, tickets))

    def _count_down(self, ticket: int, rows: int) -> bool:
        left = self._rows_left.get(ticket, self.entries[ticket][1].rows) - rows
        self._rows_left[ticket] = left
        return left == 0
