"""One request on its way through the scheduler."""

import enum
from collections.abc import Hashable


class Place(enum.Enum):
    """Where a ticket is; it moves down this list and leaves at any point."""

    RESERVED = "reserved"  # admitted, its rows are still being decoded
    WAITING = "waiting"  # in the queue
    STAGED = "staged"  # in a buffer, a batch that has not started
    RUNNING = "running"  # in a started batch
    GONE = "gone"  # answered, expired or withdrawn


class Ticket:
    """An admitted request. Policies read it; only the scheduler changes it.

    Attributes:
        id: Unique within the scheduler, ascending in order of admission.
        rows: Rows along the batch axis; never cut.
        priority: Level, lower is served first.
        deadline_ns: When the caller stops waiting, or None.
        shape_key: Requests share a batch only if their keys are equal.
        arrival_ns: When it entered the queue; before that, when it was admitted.
        place: Where it is.
        holder: The buffer that holds it while it is staged.
    """

    __slots__ = ("arrival_ns", "deadline_ns", "holder", "id", "place", "priority", "rows", "shape_key")

    def __init__(
        self, number: int, rows: int, admitted_ns: int, deadline_ns: int | None, priority: int, shape_key: Hashable
    ) -> None:
        self.id = number
        self.rows = rows
        self.arrival_ns = admitted_ns
        self.deadline_ns = deadline_ns
        self.priority = priority
        self.shape_key = shape_key
        self.place = Place.RESERVED
        self.holder: int | None = None
