"""One request on its way through the scheduler."""

import enum
from collections.abc import Hashable
from typing import NamedTuple, Optional


class Place(enum.Enum):
    """Where a ticket is; it moves down this list and leaves at any point."""

    RESERVED = "reserved"  # admitted, its rows are still being decoded
    WAITING = "waiting"  # in the queue
    STAGED = "staged"  # in a batch that has not started
    RUNNING = "running"  # in a started batch
    ENDED = "ended"  # computed, but held back: other parts of it, or answers before it, are not out yet
    GONE = "gone"  # answered, expired, refused or withdrawn


# Python 3.11 takes ten times as long to find a member through its class as a module's name, and each request has its
# place set and compared some ten times.
RESERVED, WAITING, STAGED, RUNNING, ENDED, GONE = Place


class Sequence(NamedTuple):
    """What ties a request to others of one stateful conversation.

    Attributes:
        correlation: Names the sequence; any hashable value but 0 and "".
        start: This is its first request.
        end: This is its last request.
    """

    correlation: Hashable
    start: bool = False
    end: bool = False


class Ticket:
    """An admitted request, or a part of one that was cut. Policies read it; only the scheduler changes it.

    Attributes:
        id: Unique within the scheduler, ascending in order of admission; negative for a part.
        rows: Rows along the batch axis.
        priority: Level, lower is served first.
        deadline_ns: When the caller stops waiting, or None.
        timeout_ns: The request's own queue timeout, for policies that know such a parameter, or None.
        shape_key: Requests share a batch only if their keys are equal.
        sequence: Its sequence, for stateful models.
        admitted_ns: When it was admitted.
        arrival_ns: When it entered the queue; before that, when it was admitted.
        taken_ns: When it joined its batch.
        place: Where it is.
        holder: The batch that holds it while it is staged or running.
        first_row: Where this part begins in the request's rows; 0 for a whole one.
        of: The request that this was cut from, or None.
        parts: What was cut from this request and has not ended.
        is_delayed: It was moved behind the others of its level.
        is_answered: Answered while it keeps its place.
        note: For the policy's own use.
    """

    # Defaults of what most tickets never get, on the class: half the cost of making a ticket.
    timeout_ns: int | None = None
    sequence: Sequence | None = None
    taken_ns = 0
    holder: int | None = None
    first_row = 0
    of: Optional["Ticket"] = None
    parts: list["Ticket"] | None = None
    is_delayed = False
    is_answered = False
    note: object = None

    def __init__(
        self,
        number: int,
        rows: int,
        admitted_ns: int,
        deadline_ns: int | None = None,
        priority: int = 0,
        shape_key: Hashable = None,
    ) -> None:
        self.id = number
        self.rows = rows
        self.priority = priority
        self.deadline_ns = deadline_ns
        self.shape_key = shape_key
        self.admitted_ns = self.arrival_ns = admitted_ns
        self.place = RESERVED

    def cut(self, number: int, rows: int) -> "Ticket":
        """Cut the first `rows` rows off as a part of their own; this one keeps the rest."""
        part = Ticket(number, rows, self.admitted_ns, self.deadline_ns, self.priority, self.shape_key)
        part.arrival_ns = self.arrival_ns
        part.place = self.place
        part.is_delayed = self.is_delayed
        part.first_row = self.first_row
        part.is_answered = self.is_answered
        part.timeout_ns = self.timeout_ns
        part.sequence = self.sequence
        part.of = request = self.of or self
        request.parts = [*(request.parts or ()), part]
        self.first_row += rows
        self.rows -= rows
        return part
