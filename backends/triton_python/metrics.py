"""`MetricFamily` and `Metric`: they count in the worker process, where the code can read them; nothing exports them."""

import bisect
import itertools
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from backends.triton_python.tensors import TritonModelException

_log = logging.getLogger(__name__)


class Metric:
    """One time series. Made by `MetricFamily.Metric`.

    Args:
        kind: Of the family.
        buckets: Upper bounds of a histogram, ascending.
    """

    def __init__(self, kind: int, buckets: Sequence[float] = ()) -> None:
        self._kind = kind
        self._bounds = list(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._value = 0.0
        self._lock = threading.Lock()

    def increment(self, value: float) -> None:
        """Add to a counter, or to a gauge. Raises TritonModelException for less than nothing, or a histogram."""
        if self._kind == MetricFamily.HISTOGRAM or (self._kind == MetricFamily.COUNTER and value < 0):
            raise TritonModelException("increment: expected a gauge, or a counter and no negative value")
        with self._lock:
            self._value += value

    def set(self, value: float) -> None:
        """Set a gauge. Raises TritonModelException for another kind."""
        if self._kind != MetricFamily.GAUGE:
            raise TritonModelException("set: expected a gauge")
        with self._lock:
            self._value = value

    def observe(self, value: float) -> None:
        """Count a value in a histogram. Raises TritonModelException for another kind."""
        if self._kind != MetricFamily.HISTOGRAM:
            raise TritonModelException("observe: expected a histogram")
        with self._lock:
            self._value += value
            self._counts[bisect.bisect_left(self._bounds, value)] += 1

    def value(self) -> float:
        """What has been counted; of a histogram the sum of the values."""
        return self._value

    def bucket_counts(self) -> list[int]:
        """Of a histogram: how many values were at most each bound, and all of them."""
        return list(itertools.accumulate(self._counts))


class MetricFamily:
    """Time series of one name.

    Args:
        name: Of the metric.
        description: For humans.
        kind: One of the constants of this class.
    """

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    _has_warned = False

    def __init__(self, name: str, description: str, kind: int) -> None:
        self._name = name
        self._description = description
        self._kind = kind
        self._metrics: dict[tuple[tuple[str, str], ...], Metric] = {}
        if not MetricFamily._has_warned:
            MetricFamily._has_warned = True
            _log.warning("metric '%s': metrics of model code are counted in its process and not exported", name)

    def Metric(self, labels: Mapping[str, Any] | None = None, buckets: Sequence[float] = ()) -> Metric:  # noqa: N802
        """The time series with these labels; asked for again, it is the same one."""
        key = tuple(sorted((name, str(value)) for name, value in (labels or {}).items()))
        return self._metrics.setdefault(key, Metric(self._kind, buckets))
