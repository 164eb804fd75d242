"""Triton's dynamic batcher in its default, prefetching form.

The rule is that of `DynamicBatchScheduler` (triton-inference-server/core, `dynamic_batch_scheduler.cc`: BatcherThread,
GetDynamicBatch; `rate_limiter.cc`: PayloadSlotAvailable; `instance_queue.cc`: Dequeue) for a model without priority
levels and queue policies, with its quirks:

* batches ("payloads", here buffers) are formed ahead of time: up to two per instance wait behind those that run;
* the newest payload stays *open*: while it waits it may grow, until it is saturated or starts;
* with a delay, an instance that takes the front payload absorbs followers that have waited longer than the delay;
* a single arrival wakes the batcher only if it can complete a preferred size, so a request may sit behind a staged
  payload until something else happens (at the latest the batcher's 500 ms poll).

After a completion the instance takes its next payload before the batcher looks at the queue, as in the real server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from batching.core.actions import Action, Merge, StartBatch, Take
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder

_MICROSECOND_NS = 1_000
_POLL_NS = 500_000_000  # the batcher looks at its queue at least this often
_PAYLOADS_PER_INSTANCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonSettings:
    """The parameters of `dynamic_batching` in config.pbtxt.

    Attributes:
        preferred_batch_size: Ascending sizes in rows; empty means the largest batch only.
        max_queue_delay_ns: How long the oldest request may wait for a preferred size.
        check_shapes: Whether rows may differ in shape (a variable dimension besides the batch one).
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_ns: int = 0
    check_shapes: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if any(size < 1 for size in self.preferred_batch_size):
            raise ValueError(f"preferred_batch_size must be positive, found {list(self.preferred_batch_size)}")
        if any(low >= high for low, high in pairwise(self.preferred_batch_size)):
            raise ValueError(f"preferred_batch_size must ascend, found {list(self.preferred_batch_size)}")
        if self.max_queue_delay_ns < 0:
            raise ValueError(f"max_queue_delay_ns must not be negative, found {self.max_queue_delay_ns}")


@dataclass(slots=True)
class _Walk:
    """What one pass over the queue found, for an open payload of `open_rows`."""

    open_rows: int
    count: int = 0
    rows: int = 0
    best: int = 0  # requests up to the best place to cut
    marked: bool = False  # the largest preferred size was passed
    send_now: CloseReason | None = None  # the next request cannot join: nothing to wait for

    @property
    def total_rows(self) -> int:
        return self.open_rows + self.rows


class TritonPrefetch:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: TritonSettings, max_batch_rows: int) -> None:
        self._preferred = settings.preferred_batch_size or (max_batch_rows,)
        if self._preferred[-1] > max_batch_rows:
            raise ValueError(f"preferred_batch_size {self._preferred[-1]} is above max_batch_size {max_batch_rows}")
        self._delay_ns = settings.max_queue_delay_ns
        self._check_shapes = settings.check_shapes
        self._open: int | None = None  # the open payload's buffer; None while it is empty
        self._saturated = False  # open a new payload before the next look at the queue
        self._frozen: set[int] = set()  # staged payloads that must not grow any more
        self._mixed: set[int] = set()  # staged payloads whose follower has another shape: never merged
        self._next_preferred = 0  # rows in the queue that wake the batcher
        self._awake = False
        self._slept_ns = 0
        self._due_ns: int | None = None  # when the oldest request has waited long enough

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """An idle instance takes a staged payload; otherwise the batcher, if awake, forms one."""
        self._notice(view, news)
        return self._hand_over(view) or self._form(view)

    def wake_at_ns(self, view: View) -> int | None:
        """The end of the delay, else the batcher's poll while requests wait and a payload slot is free."""
        if self._awake or not len(view.queue) or not self._has_slot(view):
            return None  # only an event can change anything
        return self._slept_ns + _POLL_NS if self._due_ns is None else self._due_ns

    # Who wakes the batcher

    def _notice(self, view: View, news: News) -> None:
        if not news or self._awake:
            return
        arrivals = len(news.arrived)
        if self._due_ns is not None:
            self._awake = view.now_ns >= self._due_ns
        else:
            self._awake = self._poll(view) and len(view.queue) > arrivals
        if arrivals:
            self._awake = self._awake or (self._has_slot(view) and self._arrival_matters(view))
        elif news.answered or news.freed or news.fleet:
            self._awake = True

    def _poll(self, view: View) -> bool:
        """Whether a poll was due since the last look; keeps the grid of polls that began when the batcher slept."""
        polls = (view.now_ns - self._slept_ns) // _POLL_NS
        self._slept_ns += polls * _POLL_NS
        return polls > 0

    def _arrival_matters(self, view: View) -> bool:
        return self._check_shapes or self._saturated or self._is_stale(view) or view.queue.rows >= self._next_preferred

    def _has_slot(self, view: View) -> bool:
        return len(view.batches) < _PAYLOADS_PER_INSTANCE * len(view.instances)

    def _is_stale(self, view: View) -> bool:
        """Whether the open payload has started, so that it cannot take more."""
        return self._open is not None and (self._open in self._frozen or self._open_buffer(view) is None)

    def _open_buffer(self, view: View) -> Batch | None:
        return next((buffer for buffer in view.batches if buffer.id == self._open), None)

    # An instance takes the front payload

    def _hand_over(self, view: View) -> Sequence[Action]:
        if not view.idle_slots or not view.batches:
            return ()
        front, *followers = view.batches
        merges = self._merges(view, front, followers)
        staged = {buffer.id for buffer in followers}
        self._frozen &= staged
        self._mixed &= staged
        self._awake = True
        return (*merges, StartBatch(front.id))

    def _merges(self, view: View, front: Batch, followers: Sequence[Batch]) -> list[Action]:
        """Followers to absorb: overdue, of the same shape, within the cap; the first that is not ends the search."""
        merges: list[Action] = []
        if self._delay_ns == 0 or view.max_batch_rows == 1 or front.id in self._mixed:
            return merges
        rows = front.rows
        for follower in followers:
            overdue = view.now_ns - follower.tickets[0].arrival_ns > self._delay_ns
            if follower.id in self._mixed or not overdue:
                break
            if rows + follower.rows > view.max_batch_rows or _shape(follower) != _shape(front):
                self._frozen.add(follower.id)  # examined in vain, it is left marked as executing
                break
            merges.append(Merge(front.id, follower.id))
            rows += follower.rows
        return merges

    # The batcher forms a payload

    def _form(self, view: View) -> Sequence[Action]:
        while self._awake:
            if self._saturated or self._is_stale(view):
                self._open, self._saturated, self._next_preferred = None, False, 0
            if not len(view.queue) or not self._has_slot(view):
                self._sleep(view, None)
                return ()
            walk = self._walk(view)
            action = self._choose(view, walk)
            if action is not None:
                self._open = view.next_batch if self._open is None else self._open
                return (action,)
            if not self._saturated:
                return ()  # asleep until the delay is over, or blocked by a shape until the payload starts
        return ()

    def _sleep(self, view: View, due_ns: int | None) -> None:
        self._awake = False
        self._slept_ns = view.now_ns
        self._due_ns = due_ns

    def _walk(self, view: View) -> _Walk:
        """Steps 2a to 2f: how far the queue could go into the open payload, and the best place to cut."""
        buffer = self._open_buffer(view)
        walk = _Walk(open_rows=buffer.rows if buffer else 0)
        shape_key = _shape(buffer) if buffer else None
        for ticket in view.queue:
            total = walk.total_rows + ticket.rows
            if walk.total_rows:  # the first request of an empty payload is taken whatever its size
                if total > self._preferred[-1] and not walk.marked:
                    walk.best, walk.marked, self._saturated = walk.count, True, True
                if total > view.max_batch_rows:
                    walk.send_now = CloseReason.OVERFLOW
                    break
                if ticket.shape_key != shape_key:
                    walk.send_now = CloseReason.SHAPE
                    break
            shape_key = ticket.shape_key
            walk.count += 1
            walk.rows += ticket.rows
            if total in self._preferred:
                walk.best = walk.count
        if walk.send_now is CloseReason.SHAPE:
            self._mixed.add(buffer.id if buffer else view.next_batch)
        return walk

    def _choose(self, view: View, walk: _Walk) -> Take | None:
        """Steps 3i to 3vii: how much to take now, or None after having gone to sleep."""
        if not walk.count:
            return None
        due_ns = next(iter(view.queue)).arrival_ns + self._delay_ns
        exceeded = self._delay_ns > 0 and due_ns - view.now_ns < _MICROSECOND_NS  # waits are whole microseconds
        if walk.best and not exceeded:
            self._saturated = self._saturated or self._delay_ns == 0
            return Take(walk.best, self._open, reason=CloseReason.PREFERRED)
        if walk.send_now or walk.total_rows >= self._preferred[-1]:
            self._saturated = True
            return self._take_all(walk, walk.send_now or CloseReason.FULL)
        if exceeded or self._delay_ns == 0:
            return self._take_all(walk, CloseReason.DELAY if exceeded else CloseReason.EAGER)
        larger = [size for size in self._preferred if size > walk.total_rows]
        self._next_preferred = (larger or self._preferred)[0] - walk.open_rows
        if walk.open_rows and not self._saturated and walk.open_rows not in self._preferred:
            return self._take_all(walk, CloseReason.EAGER)
        wait_ns = (due_ns - view.now_ns) // _MICROSECOND_NS * _MICROSECOND_NS
        self._sleep(view, view.now_ns + wait_ns)
        return None

    def _take_all(self, walk: _Walk, reason: CloseReason) -> Take:
        return Take(walk.count, self._open, reason=reason)


def _shape(buffer: Batch) -> object:
    return buffer.tickets[0].shape_key
