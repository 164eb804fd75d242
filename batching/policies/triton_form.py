"""How Triton forms a batch: how far the queue goes into the open payload, and how much of that is sent now.

The rule of `DynamicBatchScheduler::GetDynamicBatch` (triton-inference-server/core, `dynamic_batch_scheduler.cc`). The
original waits in whole microseconds and takes a rest below one for nothing; its threads wake later than that anyway.
Here waits are exact.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from batching.core.batches import Batch, CloseReason
from batching.core.policy import QueueView
from batching.core.tickets import Ticket

_NEVER_NS = 1 << 62


class Walk:
    """What a pass over the queue found.

    Attributes:
        open_rows: Rows of the open payload; 0 for a fresh one.
        count: Requests that could join it ("pending").
        rows: Their rows.
        best: Requests up to the best place to cut; 0 if there is none.
        oldest_ns: When the oldest of the pending ones arrived.
        stop: Why the next request cannot join, so that there is nothing to wait for; None at the end of the queue.
        saturates: The largest preferred size was passed: the payload grows once more at most.
    """

    __slots__ = ("best", "count", "oldest_ns", "open_rows", "rows", "saturates", "stop")

    def __init__(self, open_rows: int) -> None:
        self.open_rows = open_rows
        self.count = 0
        self.rows = 0
        self.best = 0
        self.oldest_ns = _NEVER_NS
        self.stop: CloseReason | None = None
        self.saturates = False


class Choice(NamedTuple):
    """What to do with the pending requests.

    Attributes:
        requests: How many join the payload now; 0: none.
        reason: Why as many.
        saturates: The payload must not grow any more.
        next_preferred: So many queued rows are worth a look; None: as before.
        due_ns: Wait until then; None: do not wait.
    """

    requests: int
    reason: CloseReason | None = None
    saturates: bool = False
    next_preferred: int | None = None
    due_ns: int | None = None


class Form:
    """The rule for one configuration.

    Args:
        preferred: Preferred sizes in rows, ascending, at least one.
        delay_ns: How long the oldest request may wait for a preferred size.
    """

    def __init__(self, preferred: Sequence[int], delay_ns: int) -> None:
        self.delay_ns = delay_ns
        self._configured = preferred
        self.cap(preferred[-1])

    def cap(self, max_rows: int) -> None:
        """The largest batch is this one now: a preferred size that cannot be reached any more counts as this."""
        self._ascending = sorted({min(size, max_rows) for size in self._configured})
        self._preferred = frozenset(self._ascending)
        self._largest = self._ascending[-1]

    def quiet_rows(self, open_rows: int, max_rows: int) -> int:
        """Below so many, waiting rows of one shape all join the payload and reach no size that matters."""
        return min(self._next_preferred(open_rows), max_rows + 1) - open_rows

    def glance(self, queue: QueueView, open_rows: int, max_rows: int) -> Walk | None:
        """What `walk` finds in a queue of one shape and level, if that can be told without walking; else None."""
        waiting, first = len(queue), queue.first
        if first is None:
            return None
        walk = Walk(open_rows)
        walk.oldest_ns = first.arrival_ns
        if queue.rows < self.quiet_rows(open_rows, max_rows):
            walk.count = waiting
            walk.rows = queue.rows
        elif queue.rows == waiting:
            self._count_single_rows(walk, waiting, max_rows)
        else:
            return None
        return walk

    def _count_single_rows(self, walk: Walk, waiting: int, max_rows: int) -> None:
        room = max_rows - walk.open_rows
        if waiting > room:
            walk.stop = CloseReason.OVERFLOW
        walk.count = walk.rows = waiting if waiting <= room else max(room, 0)
        passed = bisect_right(self._ascending, walk.open_rows + walk.count)
        if walk.open_rows >= self._largest:
            walk.best = 1 if walk.count and waiting > 1 else 0  # the first one does not count as a mark: it is at 0
            walk.saturates = True
        elif passed and self._ascending[passed - 1] > walk.open_rows:
            walk.best = self._ascending[passed - 1] - walk.open_rows

    def walk(self, waiting: Iterable[Ticket], payload: Batch | None, max_rows: int) -> Walk:
        """Pass over the requests in service order, up to the first that cannot join; none is overtaken."""
        walk = Walk(payload.rows if payload else 0)
        shape_key = payload.tickets[0].shape_key if payload else None
        total = walk.open_rows
        for ticket in waiting:
            if total:  # the first request of an empty payload is taken whatever its size
                walk.stop = self._stop(walk, total + ticket.rows, max_rows)
                if walk.stop is None and ticket.shape_key != shape_key:
                    walk.stop = CloseReason.SHAPE
                if walk.stop is not None:
                    break
            shape_key = ticket.shape_key
            total += ticket.rows
            walk.count += 1
            walk.oldest_ns = min(walk.oldest_ns, ticket.arrival_ns)
            if total in self._preferred:
                walk.best = walk.count
        walk.rows = total - walk.open_rows
        return walk

    def choose(self, walk: Walk, now_ns: int, timeout_ns: int | None, *, is_saturated: bool) -> Choice:
        """How much of the pending requests to send.

        Args:
            walk: Over the queue as it is.
            now_ns: The time.
            timeout_ns: When the first of the pending requests times out, or None.
            is_saturated: The payload was saturated before.
        """
        exceeded = 0 < self.delay_ns <= now_ns - walk.oldest_ns
        if walk.best and not exceeded:
            return Choice(walk.best, CloseReason.PREFERRED, walk.saturates or not self.delay_ns)
        if not walk.count:
            return Choice(0, None, walk.saturates)
        if walk.stop or walk.open_rows + walk.rows >= self._largest:
            return Choice(walk.count, walk.stop or CloseReason.FULL, saturates=True)
        if exceeded or not self.delay_ns:
            return Choice(walk.count, CloseReason.DELAY if exceeded else CloseReason.EAGER, walk.saturates)
        return self._grow_or_wait(walk, timeout_ns, may_grow=not is_saturated)

    def _grow_or_wait(self, walk: Walk, timeout_ns: int | None, *, may_grow: bool) -> Choice:
        """A staged payload grows at once unless it has a preferred size; what nobody waits for may wait for more."""
        next_preferred = self._next_preferred(walk.open_rows + walk.rows) - walk.open_rows
        if walk.open_rows and may_grow and walk.open_rows not in self._preferred:
            return Choice(walk.count, CloseReason.EAGER, next_preferred=next_preferred)
        due_ns = walk.oldest_ns + self.delay_ns
        if timeout_ns is not None and timeout_ns <= due_ns:
            due_ns = timeout_ns + 1  # only then it is late; a thread that sleeps until a timeout wakes after it
        return Choice(0, None, next_preferred=next_preferred, due_ns=due_ns)

    def _stop(self, walk: Walk, total: int, max_rows: int) -> CloseReason | None:
        """Whether a request that makes it `total` is too much; marks where the largest preferred size is passed."""
        if total > self._largest and not walk.best:
            walk.best = walk.count
            walk.saturates = True
        return CloseReason.OVERFLOW if total > max_rows else None

    def _next_preferred(self, rows: int) -> int:
        """The smallest preferred size above so many rows; 0 above all of them."""
        index = bisect_right(self._ascending, rows)
        return self._ascending[index] if index < len(self._ascending) else 0
