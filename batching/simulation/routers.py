"""Which of several replicas gets a request: servers whose processes have queues of their own."""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol

from numpy.random import Generator

from batching.simulation.draws import CHUNK, endless

Choose = Callable[[Sequence[Sized]], int]
"""The number of the replica for the next request; what is given is, by replica, the requests that have not ended."""


class Router(Protocol):
    """A description; `open` starts it."""

    def open(self, rng: Generator, replicas: int) -> Choose:
        """The running router.

        Args:
            rng: Its own random stream.
            replicas: How many there are.
        """
        ...


@dataclass(frozen=True, slots=True)
class Random:
    """Any replica, equally often."""

    def open(self, rng: Generator, replicas: int) -> Choose:
        """The running router."""
        numbers = _numbers(rng, replicas)
        return lambda _: next(numbers)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """One after another."""

    def open(self, rng: Generator, replicas: int) -> Choose:  # noqa: ARG002 - nothing is random here
        """The running router."""
        numbers = cycle(range(replicas))
        return lambda _: next(numbers)


@dataclass(frozen=True, slots=True)
class LeastOutstanding:
    """The replica with the fewest requests that have not ended; among equals, one after another."""

    def open(self, rng: Generator, replicas: int) -> Choose:  # noqa: ARG002 - nothing is random here
        """The running router."""
        last = replicas - 1

        def choose(outstanding: Sequence[Sized]) -> int:
            nonlocal last
            turns = ((last + step) % replicas for step in range(1, replicas + 1))
            last = min(turns, key=lambda number: len(outstanding[number]))
            return last

        return choose


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """The better of two different replicas drawn at random (Mitzenmacher, 2001)."""

    def open(self, rng: Generator, replicas: int) -> Choose:
        """The running router."""
        first, steps = _numbers(rng, replicas), _numbers(rng, max(replicas - 1, 1))

        def choose(outstanding: Sequence[Sized]) -> int:
            one = next(first)
            other = (one + 1 + next(steps)) % replicas
            return one if len(outstanding[one]) <= len(outstanding[other]) else other

        return choose


def _numbers(rng: Generator, end: int) -> Iterator[int]:
    return endless(lambda: rng.integers(end, size=CHUNK).tolist())
