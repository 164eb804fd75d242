"""Quantiles of very many times in little memory."""

import math
from collections.abc import Iterable

import numpy as np

_GROWTH = 1.0198  # from one bucket to the next; its square root is the largest relative error: 0.99 %
_LOG_GROWTH = math.log(_GROWTH)
_BUCKETS = 2200  # up to 5e18 ns, more than a century
_PENDING = 16_384


class TimeHistogram:
    """Counts times in buckets that grow geometrically (as in HdrHistogram); mean and largest value are exact."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._pending: list[int] = []
        self._count = 0
        self._sum_ns = 0
        self._largest_ns = 0

    def add(self, times_ns: Iterable[int]) -> None:
        """Count these times, whole nanoseconds, not negative."""
        self._pending += times_ns
        if len(self._pending) >= _PENDING:
            self._flush()

    @property
    def count(self) -> int:
        """How many."""
        return self._count + len(self._pending)

    @property
    def mean_ns(self) -> float:
        """Exact mean; nan if there is none."""
        self._flush()
        return self._sum_ns / self._count if self._count else math.nan

    @property
    def largest_ns(self) -> int:
        """Exact; 0 if there is none."""
        self._flush()
        return self._largest_ns

    def quantile_ns(self, share: float) -> float:
        """The smallest value that at least this share of all does not exceed, within 1 %; nan if there is none.

        Args:
            share: Between 0 and 1.
        """
        self._flush()
        if not self._count:
            return math.nan
        rank = max(1, math.ceil(share * self._count - 1e-9))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(math.exp((bucket + 0.5) * _LOG_GROWTH), float(self._largest_ns)) if bucket else 0.0

    def _flush(self) -> None:
        """Into the buckets; bucket 0 holds zeros and single nanoseconds."""
        if not self._pending:
            return
        times_ns = np.array(self._pending, np.int64)
        self._pending.clear()
        buckets = (np.log(np.maximum(times_ns, 1)) / _LOG_GROWTH).astype(np.int64)
        self._counts += np.bincount(buckets, minlength=_BUCKETS)
        self._count += len(times_ns)
        self._sum_ns += int(times_ns.sum())
        self._largest_ns = max(self._largest_ns, int(times_ns.max()))
