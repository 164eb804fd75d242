"""BentoML's estimate of how long a batch takes (`Optimizer` in bentoml, `_internal/marshal/dispatcher.py`)."""

from collections import deque
from typing import NamedTuple

_SECOND_NS = 1_000_000_000
_KEPT_SAMPLES = 50
_SKIPPED_BATCHES = 2  # the first ones run on a cold model
_REFRESH_EVERY_NS = 5 * _SECOND_NS
_LEAST_SLOPE_NS = 1_000.0


class _Sample(NamedTuple):
    jobs: int
    duration_ns: int
    wait_ns: int


class Optimizer:
    """A straight line through the durations of recent batches, and how long their first requests waited.

    Attributes:
        slope_ns: Duration of one more request ("o_a").
        base_ns: Duration of an empty batch ("o_b").
        wait_ns: Mean wait of the first request of a batch ("wait").
    """

    def __init__(self, max_latency_ns: int) -> None:
        self.slope_ns = min(2.0 * _SECOND_NS, max_latency_ns * 2 / 30)
        self.base_ns = min(1.0 * _SECOND_NS, max_latency_ns / 30)
        self.wait_ns = 0.0
        self._samples: deque[_Sample] = deque(maxlen=_KEPT_SAMPLES)
        self._skipped = 0
        self._refreshed_ns: int | None = None

    def duration_ns(self, jobs: int) -> float:
        """Estimate for a batch of so many requests."""
        return self.slope_ns * jobs + self.base_ns

    def note(self, jobs: int, duration_ns: int, wait_ns: int, now_ns: int) -> None:
        """Learn from a batch that has ended; the line follows at most every five seconds."""
        if self._skipped < _SKIPPED_BATCHES:
            self._skipped += 1
            return
        self._samples.append(_Sample(jobs, duration_ns, wait_ns))
        if self._refreshed_ns is None or now_ns - self._refreshed_ns >= _REFRESH_EVERY_NS:
            self._refreshed_ns = now_ns
            self.refresh()

    def refresh(self) -> None:
        """Fit the line by least squares; if all batches were equal, the fit of least norm."""
        samples = self._samples
        if not samples:
            return
        jobs = sum(sample.jobs for sample in samples) / len(samples)
        duration_ns = sum(sample.duration_ns for sample in samples) / len(samples)
        spread = sum((sample.jobs - jobs) ** 2 for sample in samples)
        if spread:
            slope_ns = sum((sample.jobs - jobs) * (sample.duration_ns - duration_ns) for sample in samples) / spread
            base_ns = duration_ns - slope_ns * jobs
        else:
            base_ns = duration_ns / (jobs * jobs + 1)
            slope_ns = base_ns * jobs
        self.slope_ns = max(_LEAST_SLOPE_NS, slope_ns)
        self.base_ns = max(0.0, base_ns)
        self.wait_ns = sum(sample.wait_ns for sample in samples) / len(samples)


class FixedOptimizer(Optimizer):
    """Knows the three numbers, in seconds, and learns nothing."""

    def __init__(self, slope_s: float, base_s: float, wait_s: float) -> None:
        super().__init__(0)
        self.slope_ns = float(round(slope_s * _SECOND_NS))
        self.base_ns = float(round(base_s * _SECOND_NS))
        self.wait_ns = float(round(wait_s * _SECOND_NS))
