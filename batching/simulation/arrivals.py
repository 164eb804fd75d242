"""What a load is: requests in time order, and callers that send again when they are answered."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import NamedTuple, Optional, Protocol

from numpy.random import Generator

from batching.clock import seconds_to_ns
from batching.core.tickets import Sequence as Conversation


class Sender(Protocol):
    """A caller of a closed loop."""

    def next_request(self, at_ns: int, is_answered: bool) -> "Arrival | None":
        """Its next request, now that the former has ended, or None if it sends no more.

        Args:
            at_ns: When the caller learned how its request ended.
            is_answered: False: refused, dropped, expired or withdrawn.
        """
        ...


class Arrival(NamedTuple):
    """A request of the simulated load.

    Attributes:
        name: The caller's word for it, for people who read traces; unique if they want to tell requests apart.
        at_ns: When it is sent; without a network this is when it arrives.
        rows: Its rows.
        patience_ns: How long after it arrived its deadline is, or None.
        leaves_ns: How long after it arrived the caller gives up, or None.
        priority: Level, lower is served first.
        shape_key: Requests share a batch only if their keys are equal.
        timeout_ns: The request's own queue timeout, for policies that know such a parameter, or None.
        sequence: Its conversation with a stateful model, or None.
        sender: Who waits for the answer in order to send again; None in an open loop.
    """

    name: str
    at_ns: int
    rows: int = 1
    patience_ns: int | None = None
    leaves_ns: int | None = None
    priority: int = 0
    shape_key: Hashable = None
    timeout_ns: int | None = None
    sequence: Conversation | None = None
    sender: Optional[Sender] = None  # noqa: UP045 - a protocol named in a string above cannot be joined by |


class Load(Protocol):
    """A description of a load; `arrivals` plays it once."""

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """Requests that come by themselves, in order of `at_ns`, made when they are asked for.

        Args:
            rng: The load's own random stream: equal streams give equal requests.
        """
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests that are known beforehand, e.g. from a trace.

    Attributes:
        requests: In order of `at_ns`.
    """

    requests: Sequence[Arrival]

    @classmethod
    def of(
        cls,
        times_ns: Sequence[int],
        rows: Sequence[int] | None = None,
        patience_ns: Sequence[int | None] | None = None,
    ) -> "Recorded":
        """From columns of equal length; names are the places in them."""
        columns = (times_ns, rows or [1] * len(times_ns), patience_ns or [None] * len(times_ns))
        lines = enumerate(zip(*columns, strict=True))
        return cls([Arrival(str(number), int(at), int(size), patience) for number, (at, size, patience) in lines])

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:  # noqa: ARG002 - nothing is random here
        """All of them."""
        for earlier, later in pairwise(self.requests):
            if later.at_ns < earlier.at_ns:
                raise ValueError(
                    f"recorded requests must be in order of time, found {later.name!r} at {later.at_ns} ns "
                    f"after {earlier.name!r} at {earlier.at_ns} ns; sort them by at_ns"
                )
        return iter(self.requests)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several loads at once. Each has its own random stream, so adding one does not change the others."""

    parts: Sequence[Load]

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """All parts, merged in time order."""
        streams = rng.spawn(len(self.parts))
        played = [part.arrivals(stream) for part, stream in zip(self.parts, streams, strict=True)]
        return merge(*played, key=attrgetter("at_ns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class During:
    """An open load that begins and ends at given times, e.g. a warm-up before another one.

    Attributes:
        load: Its time 0 is `from_s`.
        from_s: Beginning.
        to_s: End; callers of a closed loop are not stopped by it (use `ClosedLoop.changes`).
    """

    load: Load
    from_s: float = 0.0
    to_s: float

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """The requests of this time."""
        from_ns, to_ns = seconds_to_ns(self.from_s), seconds_to_ns(self.to_s)
        shifted = (arrival._replace(at_ns=arrival.at_ns + from_ns) for arrival in self.load.arrivals(rng))
        return takewhile(lambda arrival: arrival.at_ns < to_ns, shifted)
