"""Mosec's dynamic batching, of one stage.

Every idle worker waits at one channel and is served in the order of waiting. The first request that a worker receives
opens its window of `max_wait_time`; the worker goes on receiving, in turn with the others that wait, until it has
`max_batch_size` requests or the window ends, and then runs them. So a request that queued behind a busy worker still
waits for a whole window unless enough others do, and trickling arrivals are dealt out over all idle workers (a
convention: in the real server the scheduling of its tasks decides). Requests count one, whatever their rows.

A request that is not answered `timeout` after its admission is answered with an error at that moment, but its place in
the channel and in the batch stays taken until the batch is sent (`faithful`); a batch of nothing but such requests does
not run. What has started is answered by its batch, however late: this policy has no hand in it.

Departures: the scheduler's cap in rows and a change of shape close a batch, and who leaves makes room at once.

Source: mosecorg/mosec, `src/protocol.rs` (`get_batch`), `src/tasks.rs` (`get_multi_tasks_data`), `src/routes.rs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batching.core.actions import Action, Drop, Launch, RefusalReason, StartBatch, Take
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.prefix import fitting_prefix
from batching.policies.pull import Receiver, can_receive, longest_waiting, receivers
from batching.policies.timeouts import Timeouts, after_admission

_MICROSECOND_NS = 1_000
_MILLISECOND_NS = 1_000_000
_DEFAULT_WAIT_MS = 10  # of the command line's --wait, which a wait below 1 ms falls back to


@dataclass(frozen=True, slots=True, kw_only=True)
class MosecSettings:
    """The parameters of `Server.append_worker` and of the command line.

    Attributes:
        max_batch_size: Requests in one batch; 1 turns batching off.
        max_wait_time: The window in milliseconds; below 1 means 10.
        capacity: Requests that may wait in the channel, dead ones included.
        timeout: Milliseconds after which a request is given up.
        faithful: A request that has timed out keeps its place; otherwise it makes room at once.
        timer_slack_us: The window ends so much later (about 900 in the real server, whose timer ticks in ms).
    """

    max_batch_size: int = 1
    max_wait_time: int = 0
    capacity: int = 1024
    timeout: int = 3000
    faithful: bool = True
    timer_slack_us: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name, least in (
            ("max_batch_size", 1), ("max_wait_time", 0), ("capacity", 1), ("timeout", 1), ("timer_slack_us", 0),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")

    @property
    def window_ns(self) -> int:
        """How long a worker goes on receiving."""
        return (self.max_wait_time or _DEFAULT_WAIT_MS) * _MILLISECOND_NS + self.timer_slack_us * _MICROSECOND_NS


class Mosec:
    """The policy; one object per stage."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: MosecSettings) -> None:
        self._max_requests = settings.max_batch_size
        self._capacity = settings.capacity
        self._window_ns = settings.window_ns
        self._keeps_place = settings.faithful
        self._timeouts = Timeouts(after_admission(settings.timeout * _MILLISECOND_NS))

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:  # noqa: ARG002 - requests count
        """Refuse when the channel is full; what workers have received does not count."""
        waiting = len(view.queue) + view.reserved_requests
        return RefusalReason.QUEUE_FULL if waiting >= self._capacity else None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Give up who is late, start what is complete, hand out what waits."""
        self._timeouts.notice(view, news)
        late = self._timeouts.pop_due(view.now_ns)
        if late:
            return (Drop(late, RefusalReason.TIMEOUT, keeps_place=self._keeps_place),)
        return (self._start(view) or self._receive(view)) if can_receive(view) else ()

    def wake_at_ns(self, view: View) -> int | None:
        """The end of the first window, or the next timeout."""
        moments = [batch.opened_ns + self._window_ns for batch in view.batches]
        timeout_ns = self._timeouts.nearest_ns()
        if timeout_ns is not None:
            moments.append(timeout_ns)
        return min(moments, default=None)

    def _start(self, view: View) -> Sequence[Action]:
        reasons = [(batch, self._reason(view, batch)) for batch in view.batches]
        return [StartBatch(batch.id, reason) for batch, reason in reasons if reason is not None]

    def _reason(self, view: View, batch: Batch) -> CloseReason | None:
        if len(batch.tickets) >= self._max_requests or batch.rows >= view.max_batch_rows:
            return CloseReason.FULL
        if batch.opened_ns + self._window_ns <= view.now_ns and not len(view.queue):
            return CloseReason.DELAY
        return None

    def _receive(self, view: View) -> Sequence[Action]:
        first = view.queue.first
        waiting = receivers(view) if first is not None else ()
        receiver = longest_waiting(waiting)
        if first is None or receiver is None:
            return ()
        # Who finds requests takes what fits; those that come while several workers wait are dealt out one by one.
        is_dealt = len(waiting) > 1 and first.arrival_ns >= receiver.since_ns
        return self._take(view, receiver, 1 if is_dealt else self._max_requests)

    def _take(self, view: View, receiver: Receiver, most: int) -> Sequence[Action]:
        batch = receiver.batch
        if self._max_requests == 1:
            return (Launch(1, CloseReason.FULL, receiver.instance),)
        if batch is None:
            prefix = fitting_prefix(view.queue, view.max_batch_rows, most)
            return (Take(prefix.count, instance=receiver.instance),)
        largest = min(self._max_requests, len(batch.tickets) + most)
        prefix = fitting_prefix(view.queue, view.max_batch_rows, largest, joins=batch)
        return (Take(prefix.count, batch.id),) if prefix.count else (StartBatch(batch.id, prefix.reason),)
