"""How long instances are busy: the model's time by batch size, and what surrounds it."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapreplace
from statistics import fmean
from typing import NamedTuple, Protocol

from numpy.random import Generator

from batching.clock import MILLISECOND_NS, SECOND_NS, seconds_to_ns
from batching.simulation.draws import CHUNK, endless, factors


class Occupancy(NamedTuple):
    """One batch on its instance, absolute times.

    Attributes:
        begins_ns: The model begins.
        ends_ns: The model ends: answers leave.
        free_ns: The instance can take the next batch.
    """

    begins_ns: int
    ends_ns: int
    free_ns: int


Occupy = Callable[[int, int, str], Occupancy]
"""What happens to a batch of so many rows, taken at this time by this instance."""


class ServiceModel(Protocol):
    """A description; `open` starts it for the instances of one replica. It may remember what it was asked before."""

    def open(self, rng: Generator) -> Occupy:
        """The running model.

        Args:
            rng: Its own random stream.
        """
        ...


class SizeTimes(Protocol):
    """A time for every batch size."""

    def open(self, rng: Generator) -> Callable[[int], float]:
        """Rows -> ns; asked once for each batch, so a random one may answer differently every time."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """So much for any batch and so much for each row, in milliseconds."""

    base_ms: float
    row_ms: float = 0.0

    def open(self, rng: Generator) -> Callable[[int], float]:  # noqa: ARG002 - nothing is random here
        """Rows -> ns."""
        base_ns, row_ns = self.base_ms * MILLISECOND_NS, self.row_ms * MILLISECOND_NS
        return lambda rows: base_ns + row_ns * rows


@dataclass(frozen=True, slots=True)
class Table:
    """Times measured at some sizes; linear between them, and beyond them in the direction of the nearest two.

    Attributes:
        times_ms: Time of a batch by its rows.
    """

    times_ms: Mapping[int, float]

    def __post_init__(self) -> None:
        """Refuse a table that says nothing."""
        if not self.times_ms or min(self.times_ms) < 1 or min(self.times_ms.values()) <= 0:
            raise ValueError(f"times_ms must hold positive times by positive rows, found {dict(self.times_ms)}")

    @classmethod
    def of_rates(cls, rows_per_s: Mapping[int, float]) -> "Table":
        """From throughput in rows per second at some sizes."""
        return cls({rows: 1_000 * rows / rate for rows, rate in rows_per_s.items()})

    def open(self, rng: Generator) -> Callable[[int], float]:  # noqa: ARG002 - nothing is random here
        """Rows -> ns."""
        return _interpolation({rows: time_ms * MILLISECOND_NS for rows, time_ms in self.times_ms.items()})


@dataclass(frozen=True, slots=True)
class Resampled:
    """Durations of real batches, drawn again: one of those of the size, else linear between the means of others.

    Attributes:
        recorded_ns: Durations by rows, at least one each.
    """

    recorded_ns: Mapping[int, Sequence[int]]

    def open(self, rng: Generator) -> Callable[[int], float]:
        """Rows -> ns."""
        between = _interpolation({rows: fmean(times) for rows, times in self.recorded_ns.items()})
        shares = endless(lambda: rng.random(CHUNK).tolist())

        def draw_ns(rows: int) -> float:
            times = self.recorded_ns.get(rows)
            return times[int(next(shares) * len(times))] if times else between(rows)

        return draw_ns


def _interpolation(times_ns: Mapping[int, float]) -> Callable[[int], float]:
    sizes = sorted(times_ns)
    if len(sizes) == 1:
        only_ns = times_ns[sizes[0]]
        return lambda _: only_ns

    def time_ns(rows: int) -> float:
        right = min(max(bisect_right(sizes, rows), 1), len(sizes) - 1)
        low, high = sizes[right - 1], sizes[right]
        slope_ns = (times_ns[high] - times_ns[low]) / (high - low)
        return max(times_ns[low] + slope_ns * (rows - low), 1.0)

    return time_ns


_NOTHING = Affine(0.0)


@dataclass(frozen=True, slots=True)
class Service:
    """The model's time, noise, and the time around the model call in which the instance is busy too.

    Attributes:
        model: Time of the model by rows.
        noise: Sigma of lognormal noise on it, with mean 1.
        pre: From taking a batch to the beginning of the model.
        post: From the end of the model, when answers leave, to the instance being free.
        jitter: Sigma of the same noise on `pre` and `post`.
        drift: (time in s, factor on the model's time from then on), ascending: neighbours, clocks.
        factors: By instance, if they are not equally fast.
        at_once: Batches that can be in the model at once, over all instances (a pool of processes behind them); who
            comes later waits for one of them, first come, first served. None: as many as instances take.
    """

    model: SizeTimes
    noise: float = field(default=0.0, kw_only=True)
    pre: SizeTimes = field(default=_NOTHING, kw_only=True)
    post: SizeTimes = field(default=_NOTHING, kw_only=True)
    jitter: float = field(default=0.0, kw_only=True)
    drift: Sequence[tuple[float, float]] = field(default=(), kw_only=True)
    factors: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    at_once: int | None = field(default=None, kw_only=True)

    def open(self, rng: Generator) -> Occupy:
        """The running model; it remembers nothing but its place in the random stream."""
        model_ns, pre_ns, post_ns = (times.open(rng) for times in (self.model, self.pre, self.post))
        noise, jitter = factors(rng, self.noise), factors(rng, self.jitter)
        speed = self._speed()
        lanes_ns = [0] * (self.at_once or 0)  # when each place in the model is free

        def occupy(rows: int, now_ns: int, instance: str) -> Occupancy:
            begins_ns = now_ns + int(pre_ns(rows) * next(jitter))
            if lanes_ns:
                begins_ns = max(begins_ns, lanes_ns[0])
            model = model_ns(rows) * next(noise) * speed(now_ns, instance)
            ends_ns = begins_ns + max(int(model), 1)  # time must go on, or a closed loop never ends
            if lanes_ns:
                heapreplace(lanes_ns, ends_ns)
            return Occupancy(begins_ns, ends_ns, ends_ns + int(post_ns(rows) * next(jitter)))

        return occupy

    def _speed(self) -> Callable[[int, str], float]:
        times_ns = [seconds_to_ns(at_s) for at_s, _ in self.drift]
        scales = [1.0, *(scale for _, scale in self.drift)]
        own = self.factors
        if not self.drift and not own:
            return lambda _now_ns, _instance: 1.0
        return lambda now_ns, instance: scales[bisect_right(times_ns, now_ns)] * own.get(instance, 1.0)


def capacity_per_s(model: SizeTimes, max_batch_rows: int, instances: int, rng: Generator) -> float:
    """Rows per second at the best batch size: what a load of 100 % means."""
    time_ns = model.open(rng)
    return instances * max(rows * SECOND_NS / time_ns(rows) for rows in range(1, max_batch_rows + 1))
