"""Which requests are here, and how many of them wait."""

from collections import Counter
from collections.abc import Hashable, Iterable

from batching.core.deadlines import Deadlines
from batching.core.errors import (
    BatchingError,
    DeadlineExceededError,
    QueueFullError,
    ShuttingDownError,
    TooManyRowsError,
)
from batching.core.limits import Limits
from batching.core.ordering import ReleaseOrder, has_ended
from batching.core.state import State
from batching.core.tickets import ENDED, GONE, RESERVED, RUNNING, STAGED, WAITING, Ticket


class Ledger:
    """All requests that have not ended. Every exit goes through `end` or `finish`, so each ends once."""

    def __init__(self, limits: Limits, state: State, *, preserve_ordering: bool) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.deadlines = Deadlines()
        self.order = ReleaseOrder() if preserve_ordering else None
        self.counts: Counter[str] = Counter()
        self.is_closed = False
        self._limits = limits
        self._state = state
        self._last = 0
        self._pending_requests = 0  # admitted and not started: what the limits count
        self._pending_rows = 0

    @property
    def admitted_requests(self) -> int:
        """Counter since the start."""
        return self._last

    def refusal(self, rows: int, now_ns: int, deadline_ns: int | None) -> BatchingError | None:
        """Why a request cannot be admitted, or None."""
        limits = self._limits
        largest = self._state.workers.max_batch_rows
        if self.is_closed:
            return ShuttingDownError()
        if rows > largest:
            return TooManyRowsError(rows=rows, limit_rows=largest)
        if deadline_ns is not None and deadline_ns <= now_ns:
            return DeadlineExceededError(admitted=False)
        if self._pending_requests >= limits.max_requests:
            return QueueFullError(limit=limits.max_requests, unit="requests")
        if self._pending_rows + rows > limits.max_rows:
            return QueueFullError(limit=limits.max_rows, unit="rows")
        return None

    def admit(
        self,
        rows: int,
        now_ns: int,
        deadline_ns: int | None,
        priority: int,
        shape_key: Hashable,
    ) -> Ticket:
        """Note a request that is not refused."""
        self._last += 1
        ticket = Ticket(self._last, rows, now_ns, deadline_ns, priority, shape_key)
        self.tickets[ticket.id] = ticket
        self._pending_requests += 1
        self._pending_rows += rows
        self._state.reserved_requests += 1
        return ticket

    def start(self, tickets: Iterable[Ticket]) -> None:
        """Tickets run: the limits count them no more."""
        for ticket in tickets:
            ticket.place = RUNNING
            self._pending_rows -= ticket.rows
            if ticket.of is None:
                self._pending_requests -= 1

    def restart(self, ticket: Ticket) -> None:
        """A running ticket waits again, after its batch was preempted."""
        self._pending_rows += ticket.rows
        if ticket.of is None:
            self._pending_requests += 1

    def finish(self, tickets: Iterable[Ticket]) -> None:
        """Tickets' rows are computed. A whole request ends with its last part, and when the order allows it."""
        is_ordered, known = self.order is not None, self.tickets
        for ticket in tickets:
            if ticket.place is GONE:
                continue
            if is_ordered or ticket.of is not None or ticket.parts is not None:
                self._finish_part(ticket)
            else:  # almost always
                ticket.place = GONE
                del known[ticket.id]

    def _finish_part(self, ticket: Ticket) -> None:
        ticket.place = ENDED
        request = ticket
        if ticket.of is not None:
            request = ticket.of
            ticket.place = GONE
            if request.parts:
                request.parts.remove(ticket)
        if self.order is None and has_ended(request):
            self._forget(request)

    def release(self) -> list[Ticket]:
        """End the requests whose turn it is; without an order there are none."""
        released = self.order.release() if self.order is not None else []
        for request in released:
            self._forget(request)
        return released

    def end(self, request: Ticket, counter: str) -> None:
        """Forget a request and all its parts, wherever they are. What runs stays in its batch, unheard."""
        self.counts[counter] += 1
        for piece in (request, *(request.parts or ())):
            if piece.place is RESERVED:
                self._state.reserved_requests -= 1
            if piece.place in _PENDING:
                self._state.remove(piece)
                self._leave_pending(piece)
            piece.place = GONE
        request.parts = None
        del self.tickets[request.id]

    def end_in_place(self, request: Ticket, counter: str) -> None:
        """Forget a request that goes on counting where it is."""
        self.counts[counter] += 1
        for piece in (request, *(request.parts or ())):
            piece.is_answered = True
            if piece.place not in _PENDING:
                piece.place = GONE
        request.parts = None
        del self.tickets[request.id]

    def bury(self, ticket: Ticket) -> None:
        """Take a ticket out that was answered while it kept its place."""
        self._state.remove(ticket)
        self._leave_pending(ticket)
        ticket.place = GONE

    def _leave_pending(self, ticket: Ticket) -> None:
        self._pending_rows -= ticket.rows
        if ticket.of is None:
            self._pending_requests -= 1

    def _forget(self, request: Ticket) -> None:
        request.place = GONE
        del self.tickets[request.id]


_PENDING = frozenset({RESERVED, WAITING, STAGED})
