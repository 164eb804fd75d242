"""What the requests of a generated load look like."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat

from numpy.random import Generator

from batching.simulation.arrivals import Arrival
from batching.simulation.draws import Choice, stream_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Properties of requests, each fixed or a `Choice` drawn independently; see `Arrival` for what they mean.

    Properties that belong together (an urgent class with short deadlines) are two loads in a `Mixture`.

    Attributes:
        label: Names are this and a number.
    """

    label: str = ""
    rows: int | Choice[int] = 1
    patience_ns: int | Choice[int | None] | None = None
    leaves_ns: int | Choice[int | None] | None = None
    priority: int | Choice[int] = 0
    shape_key: Hashable | Choice[Hashable] = None
    timeout_ns: int | Choice[int | None] | None = None

    def names(self) -> Iterator[str]:
        """One after another without end."""
        return map(self.label.__add__, map(str, count()))

    def properties(self, rng: Generator) -> "tuple[Iterator[object], ...]":
        """Streams of everything in an `Arrival` between its time and its sender, in that order."""
        varied = (self.rows, self.patience_ns, self.leaves_ns, self.priority, self.shape_key, self.timeout_ns)
        return (*(stream_of(value, rng) for value in varied), repeat(None))

    def at(self, times_ns: Iterator[int], rng: Generator) -> Iterator[Arrival]:
        """Requests of an open loop at these times, put together without a line of Python for each."""
        fields = zip(self.names(), times_ns, *self.properties(rng), repeat(None), strict=False)
        return map(partial(tuple.__new__, Arrival), fields)


PLAIN = Requests()
"""One row each, no deadline."""
