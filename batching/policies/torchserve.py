"""TorchServe's batching of one model version.

Idle workers queue for one lock, here in the order in which they became idle, and only its holder collects. It takes
the first request whatever its age, then polls for up to `batch_size - 1` more, for `max_batch_delay_ms` in all: the
window begins when the worker takes its first request, not when that one arrived, so a request that has queued behind a
busy worker still waits for a whole window unless enough others do. After each request the time that has passed is
deducted in whole milliseconds, so a window may end up to 1 ms late. A poll that finds a request of an expired client
drops it, but the poll is used up. Requests count one, whatever their rows.

So with N workers capacity lies idle while one of them collects; and without delay one further poll is made that does
not wait: batches have two requests at most.

Departures: the scheduler's cap in rows and a change of shape close a batch; a request that leaves gives its ticket
back (the original knows no cancellation); clients that expire later than their batch was formed are answered.

Source: pytorch/serve, `Model.pollBatch`, `Model.addJob`, `BatchAggregator`, `WorkerThread`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from batching.core.actions import Action, Drop, Launch, RefusalReason, StartBatch, Take
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.job_tickets import JobTickets
from batching.policies.pull import longest_waiting, receivers
from batching.policies.timeouts import Timeouts, after_admission

_MICROSECOND_NS = 1_000
_MILLISECOND_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchServeSettings:
    """The parameters of model-config.yaml.

    Attributes:
        batch_size: Requests in one batch.
        max_batch_delay_ms: The window of a worker.
        job_queue_size: Requests that may wait; those that workers have taken do not count.
        client_timeout_in_mills: How long after its admission a request expires; 0: never.
        use_job_ticket: Admit a request only if a worker has come for one since, see `JobTickets`.
        faithful: Expiry is noticed when a worker polls; otherwise it happens on time, also within a window.
        timer_slack_us: A window ends so much later (about 350 in the real server).
        exact_clock: Deduct the time that has passed exactly.
    """

    batch_size: int = 1
    max_batch_delay_ms: int = 100
    job_queue_size: int = 100
    client_timeout_in_mills: int = 0
    use_job_ticket: bool = False
    faithful: bool = True
    timer_slack_us: int = 0
    exact_clock: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name, least in (
            ("batch_size", 1), ("max_batch_delay_ms", 0), ("job_queue_size", 1), ("client_timeout_in_mills", 0),
            ("timer_slack_us", 0),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")

    @property
    def timeout_ns(self) -> int | None:
        """How long after its admission a request expires, or None."""
        return self.client_timeout_in_mills * _MILLISECOND_NS or None


@dataclass(slots=True)
class _Window:
    """The polls of the worker that collects.

    Attributes:
        polls: How many are left.
        remaining_ns: How long the next one waits.
        polled_ns: When the last one ended.
        reason: Why the batch is closed when no polls are left.
    """

    polls: int
    remaining_ns: int
    polled_ns: int
    reason: CloseReason = CloseReason.FULL


class TorchServe:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: TorchServeSettings) -> None:
        self._settings = settings
        self._delay_ns = settings.max_batch_delay_ms * _MILLISECOND_NS
        self._slack_ns = settings.timer_slack_us * _MICROSECOND_NS if self._delay_ns else 0
        self._tick_ns = 1 if settings.exact_clock else _MILLISECOND_NS
        self._timed_out = CloseReason.DELAY if self._delay_ns else CloseReason.EAGER
        self._timeouts = Timeouts(None if settings.faithful else after_admission(settings.timeout_ns))
        self._expires_ns = settings.timeout_ns if settings.faithful else None
        self._job_tickets = JobTickets() if settings.use_job_ticket else None
        self._window = _Window(0, 0, 0)

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:  # noqa: ARG002 - requests count
        """Refuse when the queue is full or no worker has come for this request."""
        waiting = len(view.queue) + view.reserved_requests
        no_ticket = self._job_tickets is not None and not self._job_tickets.available(view)
        return RefusalReason.QUEUE_FULL if no_ticket or waiting >= self._settings.job_queue_size else None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """The worker that collects polls or starts its batch; else the next idle one takes a first request."""
        self._timeouts.notice(view, news)
        if self._job_tickets is not None:
            self._job_tickets.notice(view, news)
        late = self._timeouts.pop_due(view.now_ns)
        if late:
            return (Drop(late, RefusalReason.TIMEOUT),)
        return self._collect(view, view.batches[0]) if view.batches else self._open(view)

    def wake_at_ns(self, view: View) -> int | None:
        """The end of the window, or, if not faithful, the next expiry."""
        moments = [moment for moment in (self._timeouts.nearest_ns(),) if moment is not None]
        if view.batches:
            moments.append(self._ends_ns())
        return min(moments, default=None)

    def _ends_ns(self) -> int:
        return self._window.polled_ns + self._window.remaining_ns + self._slack_ns

    def _open(self, view: View) -> Sequence[Action]:
        worker = longest_waiting(receivers(view)) if len(view.queue) and view.idle_slots else None
        if worker is None:
            return ()
        if self._settings.batch_size == 1:
            return (Launch(1, CloseReason.FULL, worker.instance),)
        self._window = _Window(self._settings.batch_size - 1, self._delay_ns, view.now_ns)
        return (Take(1, instance=worker.instance),)

    def _collect(self, view: View, batch: Batch) -> Sequence[Action]:
        window = self._window
        if not window.polls:
            return (StartBatch(batch.id, window.reason),)
        if batch.rows >= view.max_batch_rows:
            return (StartBatch(batch.id, CloseReason.FULL),)
        if len(view.queue):
            return self._poll(view, batch)
        return (StartBatch(batch.id, self._timed_out),) if self._ends_ns() <= view.now_ns else ()

    def _poll(self, view: View, batch: Batch) -> Sequence[Action]:
        """All polls of this moment that find something: only the first of them takes time off the window."""
        window = self._window
        passed_ns = (view.now_ns // self._tick_ns - window.polled_ns // self._tick_ns) * self._tick_ns
        polls = window.polls if window.remaining_ns > passed_ns else 1
        expired, joining, reason = self._find(view, batch, polls)
        if not expired and not joining:
            return (StartBatch(batch.id, reason),)
        window.remaining_ns -= passed_ns
        window.polled_ns = view.now_ns
        window.polls -= len(expired) + joining
        if window.remaining_ns <= 0:
            window.polls, window.reason = 0, self._timed_out
        actions: list[Action] = [Drop(expired, RefusalReason.TIMEOUT)] if expired else []
        return [*actions, Take(joining, batch.id)] if joining else actions

    def _find(self, view: View, batch: Batch, polls: int) -> tuple[list[Ticket], int, CloseReason]:
        """What so many polls find: who has expired, how many join, and why no more do."""
        expired: list[Ticket] = []
        joining, rows = 0, batch.rows
        for ticket in islice(view.queue, polls):
            if self._expires_ns is not None and view.now_ns - ticket.admitted_ns > self._expires_ns:
                expired.append(ticket)
                continue
            if ticket.shape_key != batch.tickets[0].shape_key:
                return expired, joining, CloseReason.SHAPE
            rows += ticket.rows
            if rows > view.max_batch_rows:
                return expired, joining, CloseReason.OVERFLOW
            joining += 1
        return expired, joining, CloseReason.FULL
