"""What handlers measure: TorchServe's `context.metrics`, summed up in the worker and told in its log."""

import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from batching.clock import SECOND_NS, Clock

logger = logging.getLogger(__name__)

_MAX_SERIES = 1_000
_REPORT_EVERY_NS = 60 * SECOND_NS
_TIME_UNITS = ("ms", "s")
_SIZE_UNITS = ("B", "kB", "MB", "GB")


class MetricTypes(enum.Enum):
    """What the values of a metric mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Dimension:
    """A name and a value by which the values of a metric are told apart."""

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value

    @override
    def __str__(self) -> str:
        return f"{self.name}:{self.value}"


@dataclass(slots=True)
class Series:
    """The values of one metric with the same dimensions.

    Attributes:
        values: How many there were.
        total: Their sum.
        last: The latest one.
    """

    values: int = 0
    total: float = 0
    last: float = 0


_Key = tuple[str, str, MetricTypes, str]


class Metric:
    """One metric of `HandlerMetrics`, for handlers that keep it."""

    def __init__(
        self, metrics: "HandlerMetrics", name: str, unit: str, dimension_names: Sequence[str], metric_type: MetricTypes
    ) -> None:
        self.metric_name = name
        self.unit = unit
        self.metric_type = metric_type
        self.dimension_names = list(dimension_names)
        self._metrics = metrics

    def add_or_update(self, value: float, dimension_values: Sequence[object] = (), request_id: str = "") -> None:  # noqa: ARG002 - TorchServe's signature
        """Add a value; the values of the dimensions are in the order of their names."""
        if len(dimension_values) != len(self.dimension_names):
            found = f"{len(dimension_values)} values for the dimensions {self.dimension_names}"
            raise ValueError(f"metric '{self.metric_name}': found {found}, expected one for each")
        pairs = zip(self.dimension_names, dimension_values, strict=True)
        dimensions = [Dimension(name, each) for name, each in pairs]
        self._metrics.add_metric(self.metric_name, value, self.unit, None, dimensions, self.metric_type)

    def update(self, value: float, request_id: str = "", dimensions: Sequence[Dimension] = ()) -> None:  # noqa: ARG002 - TorchServe's signature
        """Add a value with these dimensions."""
        self._metrics.add_metric(self.metric_name, value, self.unit, None, dimensions, self.metric_type)


class HandlerMetrics:
    """Counts under TorchServe's names. Values are summed up over requests, so `idx` makes no difference.

    Args:
        model_name: For the log.
        clock: Says when a report is due.
    """

    def __init__(self, model_name: str, clock: Clock) -> None:
        self.model_name = model_name
        self._clock = clock
        self._reported_ns = clock.now_ns()
        self._series: dict[_Key, Series] = {}
        self._metrics: dict[tuple[str, MetricTypes], Metric] = {}
        self._is_full = False

    def add_metric(
        self,
        name: str,
        value: object,
        unit: str = "",
        idx: object = None,  # noqa: ARG002
        dimensions: Sequence[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        """Add a value. One that is no number, and a negative step of a counter, are logged and left out."""
        if not isinstance(value, int | float) or (metric_type is MetricTypes.COUNTER and value < 0):
            logger.error("model '%s': metric '%s' got the value %r, which is left out", self.model_name, name, value)
            return
        series = self._series_of((name, unit, metric_type, ",".join(map(str, dimensions or ()))))
        if series is not None:
            series.values += 1
            series.total += value
            series.last = value

    def add_counter(
        self, name: str, value: float, idx: object = None, dimensions: Sequence[Dimension] | None = None
    ) -> None:
        """Add to a counter."""
        self.add_metric(name, value, "count", idx, dimensions)

    def add_time(
        self,
        name: str,
        value: float,
        idx: object = None,
        unit: str = "ms",
        dimensions: Sequence[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Add a time in ``ms`` or ``s``. Raises ValueError for another unit."""
        _check(name, unit, _TIME_UNITS)
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: object = None,
        unit: str = "MB",
        dimensions: Sequence[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Add a size in ``B``, ``kB``, ``MB`` or ``GB``. Raises ValueError for another unit."""
        _check(name, unit, _SIZE_UNITS)
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self,
        name: str,
        value: float,
        idx: object = None,
        dimensions: Sequence[Dimension] | None = None,
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Add a percentage."""
        self.add_metric(name, value, "percent", idx, dimensions, metric_type)

    def add_error(self, name: str, value: object, dimensions: Sequence[Dimension] | None = None) -> None:
        """Count errors; a text counts as one."""
        self.add_metric(name, value if isinstance(value, int | float) else 1, "", None, dimensions)

    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str,
        dimension_names: Sequence[str] = (),
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> Metric:
        """Make a metric with named dimensions, to be kept by the handler."""
        metric = Metric(self, metric_name, unit, dimension_names, metric_type)
        self._metrics[metric_name, metric_type] = metric
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> Metric:
        """One that `add_metric_to_cache` has made. Raises KeyError if it has not."""
        return self._metrics[metric_name, metric_type]

    def report_if_due(self) -> None:
        """Log everything, once a minute."""
        if self._clock.now_ns() - self._reported_ns >= _REPORT_EVERY_NS:
            self.report()

    def report(self) -> None:
        """Log everything that was added since the model was loaded, on one line."""
        self._reported_ns = self._clock.now_ns()
        if self._series:
            told = "; ".join(_told(key, series) for key, series in sorted(self._series.items(), key=_name_of))
            logger.info("model '%s': metrics of its handler since it was loaded: %s", self.model_name, told)

    def _series_of(self, key: _Key) -> Series | None:
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= _MAX_SERIES:
                if not self._is_full:
                    self._is_full = True
                    text = "model '%s': its handler has made %d metrics, new ones like '%s' are left out"
                    logger.warning(text, self.model_name, _MAX_SERIES, key[0])
                return None
            series = self._series[key] = Series()
        return series


def _check(name: str, unit: str, expected: Sequence[str]) -> None:
    if unit not in expected:
        raise ValueError(f"metric '{name}' has the unit '{unit}', expected one of {', '.join(expected)}")


def _name_of(item: tuple[_Key, Series]) -> tuple[str, str]:
    return item[0][0], item[0][3]


def _told(key: _Key, series: Series) -> str:
    name, unit, metric_type, dimensions = key
    where = f"{name}[{dimensions}]" if dimensions else name
    unit = "" if unit == "count" else f" {unit}"
    if metric_type is MetricTypes.COUNTER:
        return f"{where} {series.total:g}{unit}"
    return f"{where} {series.values} values, mean {series.total / series.values:.4g}{unit}, last {series.last:g}{unit}"
