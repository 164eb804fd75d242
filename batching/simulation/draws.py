"""Random numbers by the thousand: numpy draws a chunk, iterators hand it out one by one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from batching.clock import SECOND_NS, seconds_to_ns

Value = TypeVar("Value")

CHUNK = 4096


def endless(draw: Callable[[], Sequence[Value]]) -> Iterator[Value]:
    """The values of one draw after another, at the cost of a list iterator."""
    return chain.from_iterable(draw() for _ in repeat(None))


def factors(rng: Generator, sigma: float) -> Iterator[float]:
    """Lognormal factors with mean 1, so that noise does not change what a server can do on average."""
    if not sigma:
        return repeat(1.0)
    return endless(lambda: rng.lognormal(-sigma * sigma / 2, sigma, CHUNK).tolist())


class Duration(Protocol):
    """A random time."""

    def stream_ns(self, rng: Generator) -> Iterator[int]:
        """Independent values without end."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same time."""

    seconds: float = 0.0

    def stream_ns(self, rng: Generator) -> Iterator[int]:  # noqa: ARG002 - nothing is random here
        """The same value without end."""
        return repeat(seconds_to_ns(self.seconds))


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential time with this mean."""

    mean_seconds: float

    def stream_ns(self, rng: Generator) -> Iterator[int]:
        """Independent values without end."""
        mean_ns = self.mean_seconds * SECOND_NS
        return endless(lambda: _whole(rng.exponential(mean_ns, CHUNK)))


@dataclass(frozen=True, slots=True)
class Choice(Generic[Value]):
    """One of several values, e.g. the rows of a request or the class of its deadline.

    Attributes:
        weights: How often, by value; they need not add up to 1.
    """

    weights: Mapping[Value, float]

    def __post_init__(self) -> None:
        """Refuse weights that say nothing."""
        if not self.weights or min(self.weights.values()) < 0 or not sum(self.weights.values()):
            raise ValueError(f"weights must be positive numbers, at least one, found {dict(self.weights)}")

    def stream(self, rng: Generator) -> Iterator[Value]:
        """Independent values without end."""
        values = list(self.weights)
        shares = np.array([float(weight) for weight in self.weights.values()])
        shares /= shares.sum()
        return endless(lambda: [values[index] for index in rng.choice(len(values), CHUNK, p=shares).tolist()])


def uniform(low: int, high: int) -> Choice[int]:
    """Every whole number from `low` to `high` equally often."""
    return Choice(dict.fromkeys(range(low, high + 1), 1.0))


def stream_of(value: Value | Choice[Value], rng: Generator) -> Iterator[Value]:
    """A fixed value or a choice, without end."""
    return value.stream(rng) if isinstance(value, Choice) else repeat(value)


def _whole(values: NDArray[np.float64]) -> list[int]:
    whole: list[int] = np.rint(values).astype(np.int64).tolist()
    return whole
