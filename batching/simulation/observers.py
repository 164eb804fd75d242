"""The port through which a simulation is watched."""

from collections.abc import Collection, Sequence

from batching.core.actions import RefusalReason
from batching.core.commands import Command, Start
from batching.core.errors import BatchingError
from batching.simulation.arrivals import Arrival
from batching.simulation.service import Occupancy

Entry = tuple[int, Arrival]
"""When a request entered the queue, and the request."""


class Run:
    """A batch that an instance executes.

    Attributes:
        replica: Number of the replica.
        command: What the scheduler commanded.
        entries: Its members in order, those included that have left or expired while it runs.
        taken_ns: The instance took it.
        begins_ns: Its model begins.
        ends_ns: Its model ends.
        free_ns: The instance is free again.
        is_aborted: It was preempted: nobody gets an answer from it.
    """

    __slots__ = ("begins_ns", "command", "ends_ns", "entries", "free_ns", "is_aborted", "replica", "taken_ns")

    def __init__(self, replica: int, command: Start, entries: list[Entry], taken_ns: int, occupancy: Occupancy) -> None:
        self.replica = replica
        self.command = command
        self.entries = entries
        self.taken_ns = taken_ns
        self.begins_ns, self.ends_ns, self.free_ns = occupancy
        self.is_aborted = False


class Observer:
    """Is told what happens, in order of time. A subclass overrides what it wants to know; the rest costs nothing."""

    def arrived(self, now_ns: int, replica: int, arrival: Arrival) -> None:
        """A request entered the queue of a replica."""

    def refused(self, now_ns: int, arrival: Arrival, error: BatchingError) -> None:
        """A request was not admitted."""

    def expired(self, now_ns: int, entry: Entry) -> None:
        """The scheduler ended a request whose deadline passed."""

    def dropped(self, now_ns: int, entry: Entry, reason: RefusalReason) -> None:
        """The policy ended a request without an answer."""

    def withdrawn(self, now_ns: int, entry: Entry) -> None:
        """A caller gave up."""

    def started(self, run: Run) -> None:
        """A batch started, at `run.taken_ns`."""

    def ended(self, run: Run) -> None:
        """The model of a batch has ended, at `run.ends_ns`."""

    def answered(self, now_ns: int, run: Run, entries: Sequence[Entry], answers_ns: Sequence[int]) -> None:
        """Answers leave the server: as the batch ends or, with `preserve_ordering`, when they are released.

        Args:
            now_ns: When they leave.
            run: The batch, for a request in parts the last one.
            entries: Whose answers.
            answers_ns: When each caller has its own.
        """

    def freed(self, run: Run) -> None:
        """The instance of a batch is free again, at `run.free_ns`."""

    def aborted(self, now_ns: int, run: Run) -> None:
        """A batch was preempted; its members are back in the queue."""

    def commanded(self, now_ns: int, replica: int, command: Command) -> None:
        """A scheduler commanded something."""

    def finished(self, now_ns: int, running: Collection[Run]) -> None:
        """The simulation is over; `running` are batches whose instance is not free again."""
