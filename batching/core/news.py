"""What happened, as a policy is told."""

from batching.core.batches import Batch
from batching.core.tickets import Ticket


class News:
    """What happened at this instant, all of one kind. One object is used again and again: read it during the call.

    Attributes:
        arrived: Requests that entered the queue, in order.
        gone: Requests that were withdrawn or have expired, wherever they were.
        answered: Batches whose answers are out.
        freed: Batches whose instance is free again, with the time that they took.
        fleet: Instances joined, left or changed their cap, or this policy has just taken over.
        timer: The time is what `wake_at_ns` said, or a deadline came.
    """

    __slots__ = ("answered", "arrived", "fleet", "freed", "gone", "timer")

    def __init__(self) -> None:
        self.arrived: list[Ticket] = []
        self.gone: list[Ticket] = []
        self.answered: list[Batch] = []
        self.freed: list[Batch] = []
        self.fleet = False
        self.timer = False

    def __bool__(self) -> bool:
        """Whether anything happened; False when a policy is asked again."""
        return bool(self.arrived or self.answered or self.freed or self.gone or self.timer or self.fleet)

    def clear(self) -> None:
        """Forget everything."""
        self.arrived.clear()
        if self.gone or self.answered or self.freed or self.fleet or self.timer:
            self.gone.clear()
            self.answered.clear()
            self.freed.clear()
            self.fleet = self.timer = False


NOTHING = News()
"""For asking again; never changed."""
