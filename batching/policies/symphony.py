"""Symphony: start a batch as late as its first deadline allows, so that it is as large as it can be.

The candidate batch is planned anew at every event. Its first request must end in time; of a queue that cannot be
served whole, the newest requests that can form a batch of the target size set its end, and older ones that are due
before that end are dropped. Then the batch takes in as many requests as its first deadline allows. It starts when one
more row would make its first request late ("frontrun"), so a request waits although an instance is idle; or at once
when it has the target size ("target"), always at once ("immediate"), or at the last moment ("latest"). While no
instance is idle, the plan is made anew at the moment at which it would become too late.

The rule is that of Symphony (abcdabcd987/nexuslb, `dispatcher/batch_policy.cpp`, `rankmt/model_thread.cpp`,
`rankmt/rank_thread.cpp`). Its network and jitter terms are 0 here unless given; a live server needs `jitter_us`, the
time by which its wake-ups are late. Without a given target, the target follows the measured rate of arrivals. The rank
between models is `batching.core.arbiter`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import QueueView, View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.profile import MICROSECOND_NS, ServiceProfile, TimelyPrefix, due_ns, timely_prefix

Mode = Literal["frontrun", "target", "immediate", "latest"]

_REQUESTS_PER_RATE = 64  # arrivals between two measurements of their rate


@dataclass(frozen=True, slots=True, kw_only=True)
class SymphonySettings:
    """What Symphony knows about a model; in parentheses, what the original plans with.

    Attributes:
        profile_us: Measured times of batches by their rows, see `ServiceProfile`.
        slo_us: The deadline of requests that bring none, counted from their arrival.
        mode: When a batch starts: "frontrun", "target", "immediate" or "latest".
        target_batch: Rows that a batch aims at; None: as the rate of arrivals needs it.
        ctrl_us: Time that a command takes to an instance (100).
        data_us: Time that a row takes to an instance (50).
        response_us: Time that an answer takes to the caller (2000).
        jitter_us: How much earlier than necessary batches start (100).
    """

    profile_us: Mapping[int, float]
    slo_us: int
    mode: Mode = "frontrun"
    target_batch: int | None = None
    ctrl_us: int = 0
    data_us: int = 0
    response_us: int = 0
    jitter_us: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        ServiceProfile(self.profile_us)
        if self.slo_us < 1:
            raise ValueError(f"slo_us must be at least 1, found {self.slo_us}")
        if (target := self.target_batch) is not None and target < 1:
            raise ValueError(f"target_batch must be at least 1, found {target}")
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, found {self.mode!r}")
        for name in ("ctrl_us", "data_us", "response_us", "jitter_us"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} must not be negative, found {value}")


class _Candidate(NamedTuple):
    """The batch that would start next."""

    requests: int
    reason: CloseReason
    start_ns: int
    latest_ns: int  # of its start; later it is too large for its deadlines


class Symphony:
    """The policy; one a model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.DEADLINE

    def __init__(self, settings: SymphonySettings, max_batch_rows: int) -> None:
        self._settings = settings
        self.objective_ns = settings.slo_us * MICROSECOND_NS
        self._profile = ServiceProfile(settings.profile_us)
        self._largest_rows = max_batch_rows
        half_ns = settings.slo_us * MICROSECOND_NS // 2
        self._target_rows = settings.target_batch or self._profile.largest_rows(half_ns, max_batch_rows) or 1
        self._fixed_ns = (settings.ctrl_us + settings.response_us) * MICROSECOND_NS
        self._row_ns = settings.data_us * MICROSECOND_NS
        self._measured_from_ns: int | None = None
        self._arrived_requests = self._arrived_rows = 0
        self._wake_ns: int | None = None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Drop who cannot be saved; launch the candidate when its time has come."""
        if news.arrived and self._settings.target_batch is None:
            self._measure(view.now_ns, news.arrived)
        self._wake_ns = None
        if not len(view.queue):
            return ()
        hopeless = self._hopeless(view.queue, view.now_ns)
        if hopeless:
            return (Drop(hopeless, RefusalReason.HOPELESS),)
        batch = self._candidate(view)
        if not view.idle_slots:
            self._wake_ns = max(batch.latest_ns, view.now_ns) + 1
            return ()
        if batch.start_ns <= view.now_ns:
            return (Launch(batch.requests, batch.reason),)
        self._wake_ns = batch.start_ns
        return ()

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002 - planned by the last `decide`
        """When the candidate starts; while no instance is idle, when it has become too large."""
        return self._wake_ns

    def _cost_ns(self, rows: int) -> int:
        """From the decision to start a batch to its answers at the callers."""
        return self._profile.batch_ns(rows) + self._fixed_ns + self._row_ns * rows

    def _due_ns(self, ticket: Ticket) -> int:
        return due_ns(ticket, self._settings.slo_us)

    # Who is dropped

    def _hopeless(self, queue: QueueView, now_ns: int) -> list[Ticket]:
        first = next(iter(queue))
        if self._is_in_time(first, min(self._target_rows, queue.rows), now_ns):
            return []  # then all others are as well
        tickets = list(queue)
        newest, rows = 0, 0  # requests at the end that can run together; more than the target need not be known
        for ticket in reversed(tickets):
            if rows >= self._target_rows or not self._is_in_time(ticket, rows + ticket.rows, now_ns):
                break
            newest += 1
            rows += ticket.rows
        size_rows = min(self._target_rows, rows)
        older = tickets[: len(tickets) - newest]
        return [ticket for ticket in older if not self._is_in_time(ticket, size_rows, now_ns)]

    def _is_in_time(self, ticket: Ticket, size_rows: int, now_ns: int) -> bool:
        return now_ns + self._cost_ns(max(size_rows, ticket.rows)) <= self._due_ns(ticket)

    # Which batch starts when

    def _candidate(self, view: View) -> _Candidate:
        """The longest prefix that ends before its earliest deadline."""
        prefix = timely_prefix(
            view.queue, view.max_batch_rows, self._due_ns, lambda rows: view.now_ns + self._cost_ns(rows)
        )
        latest_ns = prefix.due_ns - self._cost_ns(prefix.rows)
        start_ns = min(self._start_ns(prefix, view.now_ns), latest_ns)
        return _Candidate(prefix.requests, prefix.reason, start_ns, latest_ns)

    def _start_ns(self, prefix: TimelyPrefix, now_ns: int) -> int:
        mode = self._settings.mode
        if mode == "immediate" or (mode == "target" and prefix.rows >= self._target_rows):
            return now_ns
        larger_rows = prefix.rows if mode == "latest" else prefix.rows + 1
        return prefix.due_ns - self._cost_ns(larger_rows) - self._settings.jitter_us * MICROSECOND_NS

    # Which size the rate of arrivals needs

    def _measure(self, now_ns: int, arrived: Sequence[Ticket]) -> None:
        if self._measured_from_ns is None:
            self._measured_from_ns = now_ns
        self._arrived_requests += len(arrived)
        self._arrived_rows += sum(ticket.rows for ticket in arrived)
        passed_ns = now_ns - self._measured_from_ns
        if self._arrived_requests >= _REQUESTS_PER_RATE and passed_ns:
            self._target_rows = self._needed_rows(self._arrived_rows, passed_ns)
            self._measured_from_ns, self._arrived_requests, self._arrived_rows = now_ns, 0, 0

    def _needed_rows(self, arrived_rows: int, passed_ns: int) -> int:
        """The largest batch that leaves each request time to wait: for its batch to fill, or for an instance.

        As many instances as the rate keeps busy with such batches start them at even intervals.
        """
        budget_ns = self._settings.slo_us * MICROSECOND_NS - self._fixed_ns
        for rows in range(self._largest_rows, 1, -1):
            batch_ns = self._profile.batch_ns(rows)
            instances = -(-arrived_rows * batch_ns // (passed_ns * rows))
            wait_ns = rows * passed_ns // arrived_rows if instances <= 1 else batch_ns // instances
            if batch_ns + wait_ns <= budget_ns - self._row_ns * rows:
                return rows
        return 1
