"""What a policy looks at, and the staging area behind it. The laws about batches are enforced here."""

from collections.abc import Sequence

from batching.core.errors import PolicyError
from batching.core.limits import Limits
from batching.core.policy import CloseReason
from batching.core.queue import WaitingQueue
from batching.core.tickets import Place, Ticket
from batching.core.workers import Workers


class Buffer:
    """A batch that has not started."""

    __slots__ = ("id", "reason", "rows", "tickets")

    def __init__(self, number: int) -> None:
        self.id = number
        self.tickets: list[Ticket] = []
        self.rows = 0
        self.reason = CloseReason.EAGER


class State:
    """The scheduler's state as a `View`; only the scheduler changes it."""

    def __init__(self, limits: Limits) -> None:
        self.now_ns = 0
        self.queue = WaitingQueue()
        self.workers = Workers()
        self.next_buffer = 1
        self.max_batch_rows = limits.max_batch_rows
        self._staged: dict[int, Buffer] = {}  # in the order in which they were opened; none is empty

    @property
    def buffers(self) -> Sequence[Buffer]:
        """Staged batches, oldest first."""
        return tuple(self._staged.values())

    @property
    def idle_slots(self) -> int:
        """How many batches could start now."""
        return self.workers.idle_slots

    @property
    def instances(self) -> int:
        """Instances that take batches."""
        return len(self.workers)

    def staged(self, number: int) -> Buffer:
        """A buffer by id; raises PolicyError if it is not there."""
        try:
            return self._staged[number]
        except KeyError:
            raise PolicyError(f"buffer {number} is not staged") from None

    def open_buffer(self) -> Buffer:
        """A new buffer in the staging area; tickets must follow."""
        buffer = Buffer(self.next_buffer)
        self.next_buffer += 1
        self._staged[buffer.id] = buffer
        return buffer

    def take(self, count: int, buffer: Buffer) -> None:
        """Move the first waiting tickets into a buffer, staged or not."""
        if count < 1 or count > len(self.queue):
            raise PolicyError(f"cannot take {count} of {len(self.queue)} waiting requests")
        for ticket in self.queue.take(count):
            self._put(ticket, buffer)

    def merge(self, into: Buffer, source: Buffer) -> None:
        """Append all tickets of one staged buffer to another."""
        del self._staged[source.id]
        for ticket in source.tickets:
            self._put(ticket, into)

    def unstage(self, number: int) -> Buffer:
        """Take a buffer out of the staging area in order to start it."""
        buffer = self.staged(number)
        del self._staged[number]
        return buffer

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting or staged ticket out; a buffer that becomes empty is gone."""
        if ticket.place is Place.WAITING:
            self.queue.remove(ticket)
        elif ticket.place is Place.STAGED and ticket.holder is not None:
            buffer = self._staged[ticket.holder]
            buffer.tickets.remove(ticket)
            buffer.rows -= ticket.rows
            if not buffer.tickets:
                del self._staged[buffer.id]

    def _put(self, ticket: Ticket, buffer: Buffer) -> None:
        if buffer.rows + ticket.rows > self.max_batch_rows:
            raise PolicyError(f"a batch of {buffer.rows + ticket.rows} rows passes the cap of {self.max_batch_rows}")
        if buffer.tickets and buffer.tickets[0].shape_key != ticket.shape_key:
            raise PolicyError("a batch mixes shapes")
        ticket.place = Place.STAGED
        ticket.holder = buffer.id
        buffer.tickets.append(ticket)
        buffer.rows += ticket.rows
