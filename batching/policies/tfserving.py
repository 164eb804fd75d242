"""TensorFlow Serving's batching, for one model and signature.

The rule is that of `SharedBatchScheduler` (tensorflow, `batching_util/shared_batch_scheduler.h`: Queue::Schedule,
ScheduleBatch, GetNextWorkItem_Locked) below `BatchingSession` (tensorflow/serving, `batching/batching_session.cc`):

* requests are cut into batches when they arrive: the newest batch is *open*; a request that does not fit closes it for
  good and opens the next;
* a free thread takes the oldest closed batch, else the open one once it is full or `batch_timeout_micros` have passed
  since its first request; with a timeout of 0 an idle server starts every request at once;
* `max_enqueued_batches` counts batches, the open one too; a request that would need one more is refused;
* with large batch splitting a request fills the open batch and goes on in the next ones;
* a request's own timeout matters only to a batch in which all have passed theirs.

Not modelled: batches of several models on the same threads, and `BatchSchedulerRetrier`, which the server never uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from batching.core.actions import Action, Drop, RefusalReason, Seal, StartBatch, Take
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.form_ahead import being_formed
from batching.policies.prefix import fitting_prefix
from batching.policies.timeouts import Timeouts, as_requested

_MICROSECOND_NS = 1_000
_POSITIVE = ("max_batch_size", "max_enqueued_batches", "num_batch_threads", "max_execution_batch_size")
_NOT_NEGATIVE = ("batch_timeout_micros", "poll_quantum_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class TFServingSettings:
    """`BatchingParameters`, under their own names.

    Attributes:
        max_batch_size: Most rows of a request, and of a batch unless requests are split.
        batch_timeout_micros: How long an open batch waits for more, from its first request.
        max_enqueued_batches: Batches that may wait, the open one included.
        num_batch_threads: Batches that may run at once; None for one per instance slot (the original: one per CPU).
        allowed_batch_sizes: Ascending sizes in rows to which the executor pads; see `padded_rows`.
        enable_large_batch_splitting: Cut requests that do not fit.
        max_execution_batch_size: Most rows of a batch when requests are split; None for `max_batch_size`.
        poll_quantum_us: How often an idle thread looks at the clock; 1000 is the original's, 0 is always on time.
        faithful: Look at queue limit and requests' timeouts when the original does, at arrival and when a batch starts.
            Otherwise refuse before decoding, and drop each request at its timeout.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None
    poll_quantum_us: int = 0
    faithful: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in (*_POSITIVE, *_NOT_NEGATIVE):
            value, least = getattr(self, name), int(name in _POSITIVE)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, found {value}")
        rows, sizes = self.execution_rows, self.allowed_batch_sizes
        if rows > self.max_batch_size:
            raise ValueError(
                f"max_execution_batch_size must not be above max_batch_size {self.max_batch_size}, found {rows}"
            )
        if any(low >= high for low, high in pairwise((0, *sizes))):
            raise ValueError(f"allowed_batch_sizes must be positive and ascend, found {list(sizes)}")
        if sizes and sizes[-1] != rows:
            raise ValueError(f"allowed_batch_sizes must end with the largest batch, {rows}, found {list(sizes)}")

    @property
    def execution_rows(self) -> int:
        """Most rows of a batch."""
        if self.enable_large_batch_splitting and self.max_execution_batch_size is not None:
            return self.max_execution_batch_size
        return self.max_batch_size

    def padded_rows(self, rows: int) -> int:
        """Rows that the executor computes for a batch of `rows`: the smallest allowed size that holds them."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


class TFServing:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: TFServingSettings) -> None:
        self._settings = settings
        self._splits = settings.enable_large_batch_splitting
        self._timeout_ns = settings.batch_timeout_micros * _MICROSECOND_NS
        self._quantum_ns = settings.poll_quantum_us * _MICROSECOND_NS
        self._notified = False  # an enqueue lets a thread look at the clock without waiting for its poll
        self._timeouts = Timeouts(None if settings.faithful else as_requested)

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:  # noqa: ARG002
        """Refuse what is too large, and without `faithful` what would find no room if it arrived now."""
        if rows > self._settings.max_batch_size:
            return RefusalReason.TOO_MANY_ROWS
        batch = being_formed(view)
        fits = rows <= self._room_rows(view, batch) + self._free_rows(view)
        return None if fits or self._settings.faithful else RefusalReason.QUEUE_FULL

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Fill the open batch, let a free thread take one, then open another batch."""
        if news:
            self._notified = bool(news.arrived)
            self._timeouts.notice(view, news)
            if late := self._timeouts.pop_due(view.now_ns):
                return (Drop(late, RefusalReason.TIMEOUT),)
        batch, first = being_formed(view), view.queue.first
        return self._join(view, batch, first) or self._start(view) or self._open(view, batch, first)

    def wake_at_ns(self, view: View) -> int | None:
        """When a thread finds the open batch old enough, or the next request's timeout."""
        timeout_ns = self._timeouts.nearest_ns()
        batches = view.batches
        if len(batches) == 1 and batches[0].sealed_ns is None and self._has_thread(view):
            due_ns = self._found_old_ns(view, batches[0])
            return due_ns if timeout_ns is None else min(due_ns, timeout_ns)
        return timeout_ns

    def _join(self, view: View, batch: Batch | None, first: Ticket | None) -> Sequence[Action]:
        """What has arrived fills the open batch."""
        if batch is None or first is None:
            return ()
        prefix = fitting_prefix(view.queue, self._largest_rows(view), joins=batch)
        if prefix.count:
            return (Take(prefix.count, batch.id),)
        room = self._room_rows(view, batch)
        if self._splits and prefix.reason is CloseReason.OVERFLOW and first.rows <= room + self._free_rows(view):
            return (Take(1, batch.id, rows_of_last=room), Seal(batch.id, CloseReason.SPLIT))
        return ()

    def _open(self, view: View, batch: Batch | None, first: Ticket | None) -> Sequence[Action]:
        """The next request does not fit into the open batch: close it and open another, if there may be one."""
        if first is None:
            return ()
        largest = self._largest_rows(view)
        if first.rows > (self._settings.max_batch_size if self._splits else largest):
            return (Drop((first,), RefusalReason.TOO_MANY_ROWS),)
        if first.rows > self._free_rows(view):
            return (Drop((first,), RefusalReason.QUEUE_FULL),)
        closing = () if batch is None else (Seal(batch.id, fitting_prefix(view.queue, largest, joins=batch).reason),)
        if first.rows > largest:
            return (*closing, Take(1, rows_of_last=largest), Seal(view.next_batch, CloseReason.SPLIT))
        return (*closing, Take(fitting_prefix(view.queue, largest).count))

    def _largest_rows(self, view: View) -> int:
        return min(self._settings.execution_rows, view.max_batch_rows)

    def _room_rows(self, view: View, batch: Batch | None) -> int:
        return 0 if batch is None else self._largest_rows(view) - batch.rows

    def _free_rows(self, view: View) -> int:
        return (self._settings.max_enqueued_batches - len(view.batches)) * self._largest_rows(view)

    def _start(self, view: View) -> Sequence[Action]:
        """A free thread takes the front batch."""
        batches = view.batches
        if not batches or not self._has_thread(view):
            return ()
        front = batches[0]
        reason = front.reason if front.sealed_ns is not None else self._ripe(view, front)
        if reason is None:
            return ()
        if self._settings.faithful and all(_is_late(ticket, view.now_ns) for ticket in front.tickets):
            requests = {(ticket.of or ticket).id: ticket for ticket in front.tickets}
            return (Drop(tuple(requests.values()), RefusalReason.TIMEOUT),)
        return (StartBatch(front.id, reason),)

    def _has_thread(self, view: View) -> bool:
        threads = self._settings.num_batch_threads
        return view.idle_slots > 0 and (threads is None or len(view.running) < threads)

    def _ripe(self, view: View, batch: Batch) -> CloseReason | None:
        """Why the open batch may start now, or None."""
        if batch.rows >= self._largest_rows(view):
            return CloseReason.FULL
        if self._timeout_ns == 0:
            return CloseReason.EAGER
        found_ns = batch.opened_ns + self._timeout_ns if self._notified else self._found_old_ns(view, batch)
        return CloseReason.DELAY if view.now_ns >= found_ns else None

    def _found_old_ns(self, view: View, batch: Batch) -> int:
        """The first poll of an idle thread at or after the batch's timeout; it polls from when it became idle."""
        due_ns = batch.opened_ns + self._timeout_ns
        if not self._quantum_ns:
            return due_ns
        idle = [worker.idle_since_ns for worker in view.instances if worker.busy < worker.slots]
        return min(due_ns + (since_ns - due_ns) % self._quantum_ns for since_ns in idle)


def _is_late(ticket: Ticket, now_ns: int) -> bool:
    due_ns = as_requested(ticket)
    return due_ns is not None and due_ns <= now_ns
