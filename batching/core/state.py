"""What a policy looks at, and the staging area behind it. The laws about batches are enforced here."""

from collections.abc import Collection, Iterable, Sequence

from batching.core.actions import Where
from batching.core.batches import Batch, StagedBatches
from batching.core.errors import PolicyError
from batching.core.limits import Limits
from batching.core.queue import WaitingQueue
from batching.core.tickets import STAGED, WAITING, Ticket
from batching.core.workers import Worker, Workers


class State:
    """The scheduler's state as a `View`; only the scheduler changes it."""

    def __init__(self, limits: Limits, queue: WaitingQueue, *, can_abort: bool) -> None:
        self.now_ns = 0
        self.queue = queue
        self.workers = Workers(limits.max_batch_rows)
        self.next_batch = 1
        self.reserved_requests = 0
        self.can_abort = can_abort
        self.started: dict[int, Batch] = {}  # until the instance is free again
        self.has_parts = False  # a request was cut at some time
        self.batches = StagedBatches()  # those that have not started; none is empty
        self._next_part = -1

    @property
    def running(self) -> Collection[Batch]:
        """Started batches whose instance is not free again."""
        return self.started.values()

    @property
    def idle_slots(self) -> int:
        """How many batches could start now."""
        return self.workers.idle_slots

    @property
    def instances(self) -> Sequence[Worker]:
        """Instances that take batches."""
        return self.workers.staying

    @property
    def max_batch_rows(self) -> int:
        """The largest batch."""
        return self.workers.max_batch_rows

    @property
    def waiting_requests(self) -> int:
        """Requests that have not started, whole or in part."""
        staged = [ticket for batch in self.batches for ticket in batch.tickets]
        if not self.has_parts:
            return len(self.queue) + len(staged)
        return len({(ticket.of or ticket).id for ticket in (*self.queue, *staged)})

    def staged(self, number: int) -> Batch:
        """A batch that has not started, by id; raises PolicyError if it is not there."""
        batch = self.batches.find(number)
        if batch is None:
            raise PolicyError(f"batch {number} is not staged")
        return batch

    def new_batch(self, instance: str | None = None) -> Batch:
        """A new batch that is not staged."""
        batch = Batch(self.next_batch, self.now_ns, instance)
        self.next_batch += 1
        return batch

    def open(self, instance: str | None) -> Batch:
        """A new staged batch, bound to an instance if there is one; tickets must follow."""
        batch = self.new_batch(instance)
        if instance is not None:
            self.workers.acquire(instance)
        self.batches.add(batch)
        return batch

    def take(self, count: int, batch: Batch, rows_of_last: int | None) -> list[Ticket]:
        """Move the first waiting tickets into a batch, staged or not. Returns them."""
        if count < 1 or count > len(self.queue):
            raise PolicyError(f"cannot take {count} of {len(self.queue)} waiting requests")
        if batch.sealed_ns is not None:
            raise PolicyError(f"batch {batch.id} is sealed")
        taken = self.queue.take(count if rows_of_last is None else count - 1)
        if rows_of_last is not None:
            taken.append(self._cut_first(rows_of_last))
        self._put(taken, batch)
        return taken

    def take_chosen(self, tickets: Sequence[Ticket], batch: Batch) -> Sequence[Ticket]:
        """Move these waiting tickets into a batch, staged or not. Returns them."""
        if not tickets or len({ticket.id for ticket in tickets}) < len(tickets):
            raise PolicyError(f"cannot take {len(tickets)} chosen requests: there are none, or one comes twice")
        if batch.sealed_ns is not None:
            raise PolicyError(f"batch {batch.id} is sealed")
        for ticket in tickets:
            if ticket.place is not WAITING:
                raise PolicyError(f"ticket {ticket.id} cannot be taken: it is {ticket.place.value}")
            self.queue.remove(ticket)
        self._put(tickets, batch)
        return tickets

    def merge(self, into: Batch, source: Batch) -> None:
        """Append all tickets of one staged batch to another."""
        if into is source:
            raise PolicyError(f"batch {into.id} cannot be merged with itself")
        if into.sealed_ns is not None:
            raise PolicyError(f"batch {into.id} is sealed")
        self._unstage(source)
        self._put(source.tickets, into)

    def start(self, batch: Batch, instance: str | None) -> None:
        """Give a batch, staged or new, its slot and note that it runs."""
        was_staged = self.batches.discard(batch)
        if not was_staged or batch.instance is None:
            batch.instance = self.workers.acquire(instance).name
        batch.started_ns = self.now_ns
        if batch.sealed_ns is None:
            batch.sealed_ns = self.now_ns
        batch.is_running = True
        self.started[batch.id] = batch

    def free(self, batch: Batch) -> None:
        """The instance of a started batch is free again."""
        del self.started[batch.id]
        if batch.instance is not None and batch.started_ns is not None:
            before_ns = self.workers.release(batch.instance, self.now_ns)
            batch.busy_ns = self.now_ns - max(batch.started_ns, before_ns)

    def dissolve(self, batch: Batch) -> None:
        """Give up a batch that has no members to start."""
        self._unstage(batch)

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting or staged ticket out; a batch that becomes empty is gone."""
        if ticket.place is WAITING:
            self.queue.remove(ticket)
        elif ticket.place is STAGED and ticket.holder is not None:
            batch = self.staged(ticket.holder)
            batch.tickets.remove(ticket)
            batch.rows -= ticket.rows
            if not batch.tickets:
                self._unstage(batch)

    def requeue(self, tickets: Iterable[Ticket], where: Where) -> None:
        """Put waiting, staged or preempted tickets back into the queue."""
        moved = list(tickets)
        for ticket in moved:
            self.remove(ticket)
            ticket.place = WAITING
            ticket.holder = None
            ticket.is_delayed = ticket.is_delayed or where is Where.DELAYED
        if where is Where.FRONT:
            self.queue.push_front(moved)
        else:
            for ticket in moved:
                self.queue.append(ticket)

    def requeue_staged(self, batches: Iterable[Batch]) -> None:
        """Put the members of whole batches back to the front of the queue."""
        self.requeue([ticket for batch in batches for ticket in batch.tickets], Where.FRONT)

    def move_to(self, queue: WaitingQueue) -> None:
        """Move all that wait to another, empty queue with an order of its own."""
        waiting = sorted(self.queue, key=lambda ticket: (ticket.arrival_ns, ticket.id))
        self.queue = queue
        for ticket in waiting:
            ticket.note = None  # of the policy before
            self.queue.append(ticket)

    def _cut_first(self, rows: int) -> Ticket:
        first = self.queue.first
        if first is None or not 0 < rows < first.rows:
            raise PolicyError(f"cannot cut {rows} rows off a request of {first.rows if first else 0}")
        self._next_part -= 1
        self.has_parts = True
        return self.queue.cut_first(self._next_part, rows)

    def _put(self, tickets: Sequence[Ticket], batch: Batch) -> None:
        rows = batch.rows
        members = batch.tickets
        shape_key = (members or tickets)[0].shape_key
        now_ns = self.now_ns
        for ticket in tickets:
            if ticket.shape_key != shape_key:
                raise PolicyError("a batch mixes shapes")
            ticket.place = STAGED
            ticket.holder = batch.id
            ticket.taken_ns = now_ns
            rows += ticket.rows
        if rows > self.workers.max_batch_rows:
            raise PolicyError(f"a batch of {rows} rows passes the cap of {self.workers.max_batch_rows}")
        members += tickets
        batch.rows = rows

    def _unstage(self, batch: Batch) -> None:
        if self.batches.discard(batch) and batch.instance is not None:
            self.workers.unbind(batch.instance)
