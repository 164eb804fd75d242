"""LitServe's batching loop.

An idle worker collects in windows of `batch_timeout` that follow one another from the moment at which it *enters* its
collector, not from a request's arrival: a lone request on an idle server waits between nothing and a whole window,
depending on its phase. The batch starts with `max_batch_size` requests, or at the end of a window that has any. A
request that comes at the very end of a window belongs to the next one. Without a `batch_timeout`, or with single
requests, a worker takes what is there and starts at once. Requests count one, whatever their rows.

A request older than `timeout` is refused when a worker takes it out of the queue, never before, and does not count
(`faithful`); once taken it is safe.

All workers pull from one queue at the same time; in the real server they race. Here the one that has waited longest
since it entered, or took its last request, is next: they take turns.

Departures: the scheduler's cap in rows and a change of shape close a batch, and who leaves makes room.

Source: Lightning-AI/LitServe, `loops/base.py` (`collate_requests`), `loops/simple_loops.py`, `server.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

from batching.core.actions import Action, Drop, Launch, RefusalReason, StartBatch, Take
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.prefix import Prefix, fitting_prefix
from batching.policies.pull import Receiver, can_receive, longest_waiting, receivers
from batching.policies.timeouts import Timeouts, after_admission

_MICROSECOND_NS = 1_000
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LitServeSettings:
    """The parameters of `LitAPI` and `LitServer`.

    Attributes:
        max_batch_size: Requests in one batch; 1 turns batching off.
        batch_timeout: The window in seconds.
        timeout: Seconds after which a request is refused; None, False, -1 and 0: never.
        faithful: It is refused when a worker takes it; otherwise on time, also within a window.
        get_us: What taking one request out of the queue costs a worker, within its window (about 50 in the real one).
        answer_us: What one answer costs a worker before it enters its next window (about 50 in the real one).
    """

    max_batch_size: int = 1
    batch_timeout: float = 0.0
    timeout: float | Literal[False] | None = 30.0
    faithful: bool = True
    get_us: int = 0
    answer_us: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name, least in (("max_batch_size", 1), ("batch_timeout", 0), ("get_us", 0), ("answer_us", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        if self.timeout is not None and self.timeout < 0 and self.timeout != -1:
            raise ValueError(f"timeout must be positive, or None, False or -1 for none, found {self.timeout}")
        timeout_ns = self.timeout_ns
        if timeout_ns is not None and self.batch_timeout * _SECOND_NS > timeout_ns:
            raise ValueError(f"batch_timeout must not be above timeout ({self.timeout} s), found {self.batch_timeout}")

    @property
    def timeout_ns(self) -> int | None:
        """How long after its admission a request is too late, or None."""
        return round(self.timeout * _SECOND_NS) if self.timeout is not None and self.timeout > 0 else None

    @property
    def window_ns(self) -> int:
        """Of a worker that collects; 0 if it does not wait."""
        return round(self.batch_timeout * _SECOND_NS) if self.max_batch_size > 1 else 0


class LitServe:
    """The policy; one object per API.

    Empty windows are not timed: when a request arrives, the window that it falls into is found by dividing.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: LitServeSettings) -> None:
        self._max_requests = settings.max_batch_size
        self._window_ns = settings.window_ns
        self._get_ns = settings.get_us * _MICROSECOND_NS
        self._answer_ns = settings.answer_us * _MICROSECOND_NS
        self._late_ns = settings.timeout_ns if settings.faithful else None
        self._timeouts = Timeouts(None if settings.faithful else after_admission(settings.timeout_ns))
        self._entered_ns: dict[str, int] = {}  # by instance: after its last batch
        self._ends_ns: dict[int, int] = {}  # by staged batch: of its window

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Start the batches whose window is over or that are full; let the workers that are ready take requests."""
        self._timeouts.notice(view, news)
        for batch in news.freed:
            self._entered_ns[batch.instance or ""] = view.now_ns + self._answer_ns * len(batch.tickets)
        late = self._timeouts.pop_due(view.now_ns)
        if late:
            return (Drop(late, RefusalReason.TIMEOUT),)
        return (self._start(view) or self._receive(view)) if can_receive(view) else ()

    def wake_at_ns(self, view: View) -> int | None:
        """The next end of a window that has requests, of a get, or of answering; or the next timeout."""
        if not can_receive(view):
            return self._timeouts.nearest_ns()
        moments = [self._timeouts.nearest_ns()]
        for batch in view.batches:
            moments += self._ready_ns(batch), self._ends_ns[batch.id]
        if len(view.queue):
            moments += (self._enters_ns(receiver) for receiver in receivers(view) if receiver.batch is None)
        return min((moment for moment in moments if moment is not None and moment > view.now_ns), default=None)

    def _ready_ns(self, batch: Batch) -> int:
        """When the worker has got the last request of its batch out of the queue."""
        return batch.tickets[-1].taken_ns + self._get_ns

    def _enters_ns(self, receiver: Receiver) -> int:
        return max(self._entered_ns.get(receiver.instance, 0), receiver.since_ns)

    def _is_ready(self, view: View, receiver: Receiver) -> bool:
        ready_ns = self._enters_ns(receiver) if receiver.batch is None else self._ready_ns(receiver.batch)
        return ready_ns <= view.now_ns

    def _start(self, view: View) -> Sequence[Action]:
        reasons = [(batch, self._reason(view, batch)) for batch in view.batches]
        return [StartBatch(batch.id, reason) for batch, reason in reasons if reason is not None]

    def _reason(self, view: View, batch: Batch) -> CloseReason | None:
        if self._ready_ns(batch) > view.now_ns:
            return None
        if len(batch.tickets) >= self._max_requests or batch.rows >= view.max_batch_rows:
            return CloseReason.FULL
        if self._window_ns:
            return CloseReason.DELAY if self._ends_ns[batch.id] <= view.now_ns else None
        return None if len(view.queue) else CloseReason.EAGER

    def _receive(self, view: View) -> Sequence[Action]:
        if not len(view.queue):
            return ()
        ready = [receiver for receiver in receivers(view) if self._is_ready(view, receiver)]
        receiver = longest_waiting(ready)
        if receiver is None:
            return ()
        takes_turns = self._get_ns or (self._window_ns and len(ready) > 1)
        held = len(receiver.batch.tickets) if receiver.batch else 0
        most = min(self._max_requests, held + 1) if takes_turns else self._max_requests
        prefix = fitting_prefix(view.queue, view.max_batch_rows, most, joins=receiver.batch)
        late = [ticket for ticket in islice(view.queue, max(prefix.count, 1)) if self._is_late(view, ticket)]
        return (Drop(late, RefusalReason.TIMEOUT),) if late else (self._take(view, receiver, prefix),)

    def _is_late(self, view: View, ticket: Ticket) -> bool:
        return self._late_ns is not None and view.now_ns - ticket.admitted_ns > self._late_ns

    def _take(self, view: View, receiver: Receiver, prefix: Prefix) -> Action:
        if receiver.batch is not None:
            number = receiver.batch.id
            return Take(prefix.count, number) if prefix.count else StartBatch(number, prefix.reason)
        if not self._window_ns and not self._get_ns:
            return Launch(prefix.count, prefix.reason, receiver.instance)
        entered_ns = self._enters_ns(receiver)
        windows = (view.now_ns - entered_ns) // self._window_ns + 1 if self._window_ns else 0
        staged = {batch.id: self._ends_ns[batch.id] for batch in view.batches}
        self._ends_ns = staged | {view.next_batch: entered_ns + windows * self._window_ns}
        return Take(prefix.count, instance=receiver.instance)
