"""Compares simulated runs with the recorded one."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from loadtest.fidelity.limits import Family, Limit, Measure
from loadtest.fidelity.metrics import binned, earth_movers_rows, pattern_distance, total_variation
from loadtest.fidelity.recordings import Figures


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure against its limit.

    Attributes:
        measure: Which figure.
        real: The recorded value; 0 for distances between histograms.
        ours: The simulated value.
        distance: Difference; relative unless the limit is absolute.
        limit: What is allowed.
    """

    measure: Measure
    real: float
    ours: float
    distance: float
    limit: float

    @property
    def severity(self) -> float:
        """Distance in limits: above 1 the figure is outside."""
        return self.distance / self.limit


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one case.

    Attributes:
        findings: All figures that were asked for.
        rate_band: Smallest and largest simulated rate over the real one, over all runs.
        batch_band: The same for the mean batch.
    """

    findings: Sequence[Finding]
    rate_band: tuple[float, float]
    batch_band: tuple[float, float]

    @property
    def worst(self) -> Finding:
        """The figure nearest to its limit, or farthest beyond."""
        return max(self.findings, key=lambda finding: finding.severity)

    @property
    def is_inside(self) -> bool:
        """Whether all figures keep their limits."""
        return self.worst.severity <= 1


def judge(asked: Family, real: Figures, runs: Sequence[Figures]) -> Judgement:
    """Hold the runs against what the family asks.

    Limits of `typical` apply to the median over the runs. Those of `best` apply together to one run, the one that
    keeps them best; `slowest` to all. A figure that the real server did not report is not asked for.
    """
    findings = [
        _finding(limit, real, statistics.median(_values(limit, real, runs))) for limit in _known(asked.typical, real)
    ]
    best = _known(asked.best, real)
    if best:
        candidates = [[_finding(limit, real, _value(limit.measure, real, run)) for limit in best] for run in runs]
        findings += min(candidates, key=_worst_first)
    if asked.slowest is not None:
        rate = min(run.answers_per_s for run in runs)
        missing = max(1 - rate / real.answers_per_s, 0.0)
        findings.append(Finding(Measure.SLOWEST, real.answers_per_s, rate, missing, asked.slowest))
    return Judgement(
        findings=findings,
        rate_band=_band([run.answers_per_s / real.answers_per_s for run in runs]),
        batch_band=_band([run.mean_batch_rows / real.mean_batch_rows for run in runs]),
    )


def _worst_first(findings: Iterable[Finding]) -> list[float]:
    return sorted((finding.severity for finding in findings), reverse=True)


def _band(ratios: Sequence[float]) -> tuple[float, float]:
    return min(ratios), max(ratios)


def _known(asked: Sequence[Limit], real: Figures) -> list[Limit]:
    return [limit for limit in asked if limit.measure is not Measure.QUEUE or real.mean_queue_ms is not None]


def _values(limit: Limit, real: Figures, runs: Sequence[Figures]) -> list[float]:
    return [_value(limit.measure, real, run) for run in runs]


def _value(measure: Measure, real: Figures, ours: Figures) -> float:
    figure = _FIGURES.get(measure)
    return _DISTANCES[measure](real, ours) if figure is None else figure(ours)


def _finding(limit: Limit, real: Figures, ours: float) -> Finding:
    figure = _FIGURES.get(limit.measure)
    if figure is None:
        return Finding(limit.measure, 0.0, ours, ours, limit.share)
    value = figure(real)
    if limit.measure is Measure.REFUSED:
        return Finding(limit.measure, value, ours, abs(ours - value), limit.share)
    scale = value or 1.0
    return Finding(limit.measure, value, ours, abs(ours - value) / scale, max(limit.share, limit.floor / scale))


_FIGURES: Mapping[Measure, Callable[[Figures], float]] = MappingProxyType(
    {
        Measure.RATE: lambda figures: figures.answers_per_s,
        Measure.MEAN_BATCH: lambda figures: figures.mean_batch_rows,
        Measure.QUEUE: lambda figures: figures.mean_queue_ms or 0.0,
        Measure.MEAN: lambda figures: figures.mean_ms,
        Measure.P50: lambda figures: figures.p50_ms,
        Measure.P99: lambda figures: figures.p99_ms,
        Measure.REFUSED: lambda figures: figures.refused_share,
    }
)

_DISTANCES: Mapping[Measure, Callable[[Figures, Figures], float]] = MappingProxyType(
    {
        Measure.EMD: lambda real, ours: earth_movers_rows(real.histogram, ours.histogram) / real.mean_batch_rows,
        Measure.BINS: lambda real, ours: total_variation(binned(real.histogram), binned(ours.histogram)),
        Measure.PATTERN: lambda real, ours: pattern_distance(real.histogram, ours.histogram),
    }
)
