"""Open loops: requests come whether or not the server keeps up. Times are drawn in chunks, so memory stays flat."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from batching.clock import SECOND_NS
from batching.simulation.arrivals import Arrival
from batching.simulation.draws import CHUNK
from batching.simulation.requests import PLAIN, Requests


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent callers: exponential gaps.

    Attributes:
        rate_per_s: Mean rate of requests.
        requests: What they look like.
    """

    rate_per_s: float
    requests: Requests = PLAIN

    def __post_init__(self) -> None:
        """Refuse an impossible rate."""
        _check_rate(self.rate_per_s)

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """Without end."""
        return self.requests.at(_flatten(_poisson(rng, self.rate_per_s)), rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursty:
    """A two-state Poisson process: exponential times on and off, each with its own rate.

    Attributes:
        rate_per_s: Mean rate over both states.
        ratio: Rate while on : rate while off.
        on_share: Share of the time that is on.
        mean_on_s: Mean length of a time on.
        requests: What they look like.
    """

    rate_per_s: float
    mean_on_s: float
    ratio: float = 8.0
    on_share: float = 0.2
    requests: Requests = PLAIN

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        _check_rate(self.rate_per_s)
        if not 0 < self.on_share < 1:
            raise ValueError(f"on_share must be between 0 and 1, found {self.on_share}")
        if self.mean_on_s <= 0 or self.ratio < 0:
            raise ValueError(f"mean_on_s must be positive and ratio not negative, found {self.mean_on_s}, {self.ratio}")

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """Without end."""
        return self.requests.at(_flatten(self._chunks(rng)), rng)

    def _chunks(self, rng: Generator) -> Iterator[NDArray[np.int64]]:
        """Whole cycles of on and off; within a state, a Poisson number of uniform times."""
        off_rate = self.rate_per_s / (1 + self.on_share * (self.ratio - 1))
        off_mean_s = self.mean_on_s / self.on_share * (1 - self.on_share)
        per_cycle = self.rate_per_s * (self.mean_on_s + off_mean_s)
        cycles = min(max(1, round(CHUNK / per_cycle)), CHUNK)
        means = np.tile([self.mean_on_s, off_mean_s], cycles)
        rates = np.tile([off_rate * self.ratio, off_rate], cycles)
        if rng.random() >= self.on_share:
            means, rates = means[::-1], rates[::-1]
        origin_ns = 0
        while True:
            lengths = rng.exponential(means)
            ends = np.cumsum(lengths)
            counts = rng.poisson(lengths * rates)
            times = np.repeat(ends - lengths, counts) + np.repeat(lengths, counts) * rng.random(int(counts.sum()))
            times.sort()
            yield origin_ns + _to_ns(times)
            origin_ns += round(float(ends[-1]) * SECOND_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """A Poisson process whose rate swings like the day: rate * (1 + amplitude * sin(2 pi t / period)).

    Drawn by thinning (Lewis and Shedler, 1979).

    Attributes:
        rate_per_s: Mean rate.
        amplitude: Between 0 and 1.
        period_s: Length of a day.
        requests: What they look like.
    """

    rate_per_s: float
    period_s: float
    amplitude: float = 0.8
    requests: Requests = PLAIN

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        _check_rate(self.rate_per_s)
        if not 0 <= self.amplitude <= 1:
            raise ValueError(f"amplitude must be between 0 and 1, found {self.amplitude}")
        if self.period_s <= 0:
            raise ValueError(f"period_s must be positive, found {self.period_s}")

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """Without end."""
        return self.requests.at(_flatten(self._chunks(rng)), rng)

    def _chunks(self, rng: Generator) -> Iterator[NDArray[np.int64]]:
        highest = 1 + self.amplitude
        radians_per_ns = 2 * math.pi / (self.period_s * SECOND_NS)
        for times_ns in _poisson(rng, self.rate_per_s * highest):
            now = 1 + self.amplitude * np.sin(times_ns * radians_per_ns)
            yield times_ns[rng.random(len(times_ns)) * highest < now]


def _poisson(rng: Generator, rate_per_s: float) -> Iterator[NDArray[np.int64]]:
    origin_ns = 0
    while True:
        times_ns = origin_ns + _to_ns(np.cumsum(rng.exponential(1 / rate_per_s, CHUNK)))
        yield times_ns
        origin_ns = int(times_ns[-1])


def _to_ns(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * SECOND_NS).astype(np.int64)


def _flatten(chunks: Iterator[NDArray[np.int64]]) -> Iterator[int]:
    return chain.from_iterable(chunk.tolist() for chunk in chunks)


def _check_rate(rate_per_s: float) -> None:
    if not 0 < rate_per_s < math.inf:
        raise ValueError(f"rate_per_s must be a positive number, found {rate_per_s}")
