"""Counters of one model version: filled by the main path and the runner, read as an immutable snapshot."""

from bisect import bisect_left
from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from batching.callers import BatchReport
from batching.clock import MILLISECOND_NS, SECOND_NS, Clock, WallClock
from batching.core.statistics import SchedulerStatistics
from gateway.engine import BatchSizeStatistics, Duration, Histogram, VersionStatistics
from models.inference import Timing

STAGE_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_BOUNDS_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
STAGES = ("decode", "queue", "compute", "total")
_FOLD_AT = 256
FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")


class _Sum:
    """A count and a total time."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0

    def add(self, ns: int, count: int = 1) -> None:
        self.count += count
        self.ns += ns * count

    def add_all(self, times_ns: NDArray[np.int64]) -> None:
        self.count += len(times_ns)
        self.ns += int(times_ns.sum())

    def snapshot(self) -> Duration:
        return Duration(self.count, self.ns)


class _Buckets:
    """A histogram under construction."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, values: NDArray[np.float64]) -> None:
        counts = np.bincount(np.searchsorted(self.bounds, values), minlength=len(self.counts))
        self.counts = [before + new for before, new in zip(self.counts, counts.tolist(), strict=True)]
        self.total += float(values.sum())

    def snapshot(self) -> Histogram:
        return Histogram(self.bounds, tuple(self.counts), self.total)


class _BatchSize:
    """Executions of one batch size."""

    __slots__ = ("infer", "input", "output")

    def __init__(self) -> None:
        self.input = _Sum()
        self.infer = _Sum()
        self.output = _Sum()


class Recorder:
    """Not thread-safe; lives on the event loop."""

    def __init__(self, wall_clock: Clock | None = None) -> None:
        self._wall_clock = wall_clock or WallClock()
        self._last_batch_ns = 0
        self._answered: list[Timing] = []  # not yet in the sums below
        self._rows = 0
        self._executions = 0
        self._padding_rows = 0
        self._success = _Sum()
        self._fail = _Sum()
        self._queue = _Sum()
        self._compute_input = _Sum()
        self._compute_infer = _Sum()
        self._compute_output = _Sum()
        self._failures: Counter[str] = Counter()
        self._sizes: dict[int, _BatchSize] = defaultdict(_BatchSize)
        self._stages = {stage: _Buckets(STAGE_BOUNDS_S) for stage in STAGES}
        self._batch_rows = _Buckets(BATCH_BOUNDS_ROWS)

    def batch(self, report: BatchReport) -> None:
        """A batch was executed. As in Triton its times are charged in full to each request that did not fail.

        A batch that failed counts as well, with no time: what it was on is lost with its answer.
        """
        input_ns = infer_ns = output_ns = 0
        if report.times is not None:
            times = report.times
            input_ns = times.gathered_ns - times.started_ns
            infer_ns = times.computed_ns - times.gathered_ns
            output_ns = times.ended_ns - times.computed_ns
        self._last_batch_ns = self._wall_clock.now_ns()
        self._executions += 1
        self._padding_rows += report.padding_rows
        self._batch_rows.add(report.rows)
        self._charge(report.requests - report.failed_requests, input_ns, infer_ns, output_ns)
        size = self._sizes[report.rows]
        size.input.add(input_ns)
        size.infer.add(infer_ns)
        size.output.add(output_ns)

    def _charge(self, requests: int, input_ns: int = 0, infer_ns: int = 0, output_ns: int = 0) -> None:
        self._compute_input.add(input_ns, requests)
        self._compute_infer.add(infer_ns, requests)
        self._compute_output.add(output_ns, requests)

    def success(self, rows: int, timing: Timing) -> None:
        """A request was answered."""
        self._rows += rows
        self._answered.append(timing)
        if len(self._answered) >= _FOLD_AT:
            self._fold()

    def error_response(self, rows: int, total_ns: int) -> None:
        """The model's code answered with an error of its own: a success in Triton's counters, whose times are lost."""
        self.success(rows, Timing(total_ns=total_ns))
        self._charge(1)

    def _fold(self) -> None:
        """Add up what was answered: many at once cost a quarter of one at a time."""
        if not self._answered:
            return
        columns = [np.array(column, np.int64) for column in zip(*self._answered, strict=True)]
        self._answered.clear()
        decode_ns, queue_ns, compute_ns, total_ns, _ = columns
        self._success.add_all(total_ns)
        self._queue.add_all(queue_ns)
        for stage, times_ns in zip(STAGES, (decode_ns[decode_ns > 0], queue_ns, compute_ns, total_ns), strict=True):
            self._stages[stage].add_all(times_ns / SECOND_NS)

    def failure(self, reason: str, total_ns: int) -> None:
        """An admitted request failed; `reason` is one of FAILURE_REASONS."""
        self._fail.add(total_ns)
        self._failures[reason] += 1

    def snapshot(self, model: str, version: int, scheduler: SchedulerStatistics) -> VersionStatistics:
        """Everything, with the scheduler's gauges."""
        self._fold()
        return VersionStatistics(
            model=model,
            version=version,
            last_inference_ms=self._last_batch_ns // MILLISECOND_NS,
            inference_count=self._rows,
            execution_count=self._executions,
            success=self._success.snapshot(),
            fail=self._fail.snapshot(),
            queue=self._queue.snapshot(),
            compute_input=self._compute_input.snapshot(),
            compute_infer=self._compute_infer.snapshot(),
            compute_output=self._compute_output.snapshot(),
            failures={reason: self._failures[reason] for reason in FAILURE_REASONS},
            batches=tuple(
                BatchSizeStatistics(
                    rows=rows,
                    compute_input=size.input.snapshot(),
                    compute_infer=size.infer.snapshot(),
                    compute_output=size.output.snapshot(),
                )
                for rows, size in sorted(self._sizes.items())
            ),
            close_reasons=scheduler.close_reasons,
            drop_reasons=scheduler.drop_reasons,
            stages={stage: buckets.snapshot() for stage, buckets in self._stages.items()},
            batch_rows=self._batch_rows.snapshot(),
            waiting_requests=scheduler.waiting_requests,
            waiting_rows=scheduler.waiting_rows,
            reserved_requests=scheduler.reserved_requests,
            running_batches=scheduler.running_batches,
            pending_requests=scheduler.reserved_requests + scheduler.waiting_requests,
            admitted_requests=scheduler.admitted_requests,
            refused_requests=scheduler.refused_requests,
            expired_requests=scheduler.expired_requests,
            withdrawn_requests=scheduler.withdrawn_requests,
            padding_rows=self._padding_rows,
            instances=scheduler.instances,
        )
