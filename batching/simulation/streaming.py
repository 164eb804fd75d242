"""Statistics of a simulation of any length in constant memory."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import sub

from typing_extensions import override

from batching.clock import MILLISECOND_NS, SECOND_NS
from batching.core.actions import RefusalReason
from batching.core.errors import BatchingError
from batching.simulation.arrivals import Arrival
from batching.simulation.histogram import TimeHistogram
from batching.simulation.observers import Entry, Observer, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Times from a caller's sending to its answer, in milliseconds; nan without answers.

    Mean and maximum are exact, quantiles within 1 %.
    """

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What happened between the end of the warm-up and the end.

    Attributes:
        window_s: Length of this time.
        answered: Requests whose answer left the server.
        in_time: Those that had no deadline or were answered by it.
        answered_rows: Rows of the answered requests.
        refused: Requests that were not admitted, by error.
        dropped: Requests that the policy ended, by reason.
        expired: Requests whose deadline passed.
        withdrawn: Requests whose caller gave up.
        batches: Batches that started, preempted ones included.
        rows: Rows of these batches.
        aborted_batches: Batches that were preempted.
        batch_rows: How many batches had how many rows.
        close_reasons: How many batches were closed why.
        mean_queue_ms: Mean time of answered requests from entering the queue until an instance takes their batch.
        latency: Of answered requests.
        utilisation: Share of time in which a slot of an instance was busy, by instance; summed over its slots. With
            several replicas the name is `replica/instance`.
    """

    window_s: float
    answered: int
    in_time: int
    answered_rows: int
    refused: Mapping[str, int]
    dropped: Mapping[str, int]
    expired: int
    withdrawn: int
    batches: int
    rows: int
    aborted_batches: int
    batch_rows: Mapping[int, int]
    close_reasons: Mapping[str, int]
    mean_queue_ms: float
    latency: Latency
    utilisation: Mapping[str, float]

    @property
    def throughput_per_s(self) -> float:
        """Answered requests per second."""
        return self.answered / self.window_s

    @property
    def goodput_per_s(self) -> float:
        """Requests answered in time per second."""
        return self.in_time / self.window_s

    @property
    def in_time_share(self) -> float:
        """Requests answered in time of all that ended; nan if none did."""
        ended = self.answered + self.expired + self.withdrawn + sum(self.refused.values()) + sum(self.dropped.values())
        return self.in_time / ended if ended else float("nan")

    @property
    def rows_per_s(self) -> float:
        """Rows of answered requests per second."""
        return self.answered_rows / self.window_s

    @property
    def mean_batch_rows(self) -> float:
        """Rows per batch; nan if there was none."""
        return self.rows / self.batches if self.batches else float("nan")


class StreamingStatistics(Observer):
    """Counts what happens from `from_ns` on; `result` after the end.

    Args:
        from_ns: End of the warm-up.
        replicas: How many there are, for the names of instances.
    """

    def __init__(self, from_ns: int = 0, replicas: int = 1) -> None:
        self._from_ns = from_ns
        self._until_ns = from_ns
        self._replicas = replicas
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._batch_rows: Counter[int] = Counter()
        self._close_reasons: Counter[str] = Counter()
        self._busy_ns: Counter[str] = Counter()
        self._answered = 0
        self._late = 0
        self._answered_rows = 0
        self._queue_ns = 0
        self._latencies = TimeHistogram()

    def result(self) -> Statistics:
        """The statistics; only after the end."""
        window_ns = max(self._until_ns - self._from_ns, 1)
        rows = sum(rows * count for rows, count in self._batch_rows.items())
        return Statistics(
            window_s=window_ns / SECOND_NS,
            answered=self._answered,
            in_time=self._answered - self._late,
            answered_rows=self._answered_rows,
            refused=dict(self._refused),
            dropped=dict(self._dropped),
            expired=self._counts["expired"],
            withdrawn=self._counts["withdrawn"],
            batches=self._batch_rows.total(),
            rows=rows,
            aborted_batches=self._counts["aborted"],
            batch_rows=dict(sorted(self._batch_rows.items())),
            close_reasons=dict(self._close_reasons),
            mean_queue_ms=self._queue_ns / self._answered / MILLISECOND_NS if self._answered else float("nan"),
            latency=self._latency(),
            utilisation={name: busy_ns / window_ns for name, busy_ns in sorted(self._busy_ns.items())},
        )

    def _latency(self) -> Latency:
        times = self._latencies
        p50_ms, p90_ms, p95_ms, p99_ms = (times.quantile_ns(share) / MILLISECOND_NS for share in (0.5, 0.9, 0.95, 0.99))
        return Latency(
            mean_ms=times.mean_ns / MILLISECOND_NS,
            p50_ms=p50_ms,
            p90_ms=p90_ms,
            p95_ms=p95_ms,
            p99_ms=p99_ms,
            max_ms=times.largest_ns / MILLISECOND_NS,
        )

    @override
    def started(self, run: Run) -> None:
        if run.taken_ns >= self._from_ns:
            self._batch_rows[run.command.rows] += 1
            self._close_reasons[run.command.reason.value] += 1

    @override
    def answered(self, now_ns: int, run: Run, entries: Sequence[Entry], answers_ns: Sequence[int]) -> None:
        if now_ns < self._from_ns:
            return
        entered_ns, arrivals = zip(*entries, strict=True)
        _, sent_ns, rows, patience_ns = islice(zip(*arrivals, strict=True), 4)  # columns: no line runs for each request
        self._answered += len(entries)
        self._answered_rows += sum(rows)
        self._queue_ns += len(entries) * run.taken_ns - sum(entered_ns)
        self._latencies.add(map(sub, answers_ns, sent_ns))
        if any(patience_ns):
            self._late += sum(
                patience is not None and now_ns - entered > patience
                for entered, patience in zip(entered_ns, patience_ns, strict=True)
            )

    @override
    def freed(self, run: Run) -> None:
        self._occupied(run, run.free_ns)

    @override
    def aborted(self, now_ns: int, run: Run) -> None:
        self._count("aborted", now_ns)
        self._occupied(run, now_ns)

    @override
    def finished(self, now_ns: int, running: Collection[Run]) -> None:
        self._until_ns = now_ns
        for run in running:
            self._occupied(run, now_ns)

    @override
    def refused(self, now_ns: int, arrival: Arrival, error: BatchingError) -> None:
        if now_ns >= self._from_ns:
            self._refused[type(error).__name__] += 1

    @override
    def dropped(self, now_ns: int, entry: Entry, reason: RefusalReason) -> None:
        if now_ns >= self._from_ns:
            self._dropped[reason.value] += 1

    @override
    def expired(self, now_ns: int, entry: Entry) -> None:
        self._count("expired", now_ns)

    @override
    def withdrawn(self, now_ns: int, entry: Entry) -> None:
        self._count("withdrawn", now_ns)

    def _count(self, what: str, now_ns: int) -> None:
        if now_ns >= self._from_ns:
            self._counts[what] += 1

    def _occupied(self, run: Run, until_ns: int) -> None:
        instance = run.command.instance
        name = instance if self._replicas == 1 else f"{run.replica}/{instance}"
        self._busy_ns[name] += max(until_ns - max(run.taken_ns, self._from_ns), 0)
