"""Closed loops: so many callers, each with one request at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from numpy.random import Generator

from batching.clock import MILLISECOND_NS, seconds_to_ns
from batching.simulation.arrivals import Arrival
from batching.simulation.draws import Constant, Duration
from batching.simulation.requests import PLAIN, Requests

_NO_WAIT = Constant()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Callers that send, wait for the answer, think, and send again.

    Attributes:
        clients: How many, at the beginning.
        think: Time from an answer to the caller's next request.
        starts_ns: When the first callers send for the first time; all others at 0. Callers that all begin at one
            instant may stay in step for ever, which real ones do not: `range(0, clients * 80_000, 80_000)` is
            what a load generator does that opens its connections one by one.
        changes: (time in s, clients from then on), ascending. Callers above the number finish what they have sent.
        retry_ns: How long a caller waits after a refusal, a drop or an expiry before it thinks and sends again.
            Positive, or a refused caller would ask again at the same instant for ever.
        requests: What they send.
    """

    clients: int
    think: Duration = _NO_WAIT
    starts_ns: Sequence[int] = ()
    changes: Sequence[tuple[float, int]] = ()
    retry_ns: int = MILLISECOND_NS
    requests: Requests = PLAIN

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if self.clients < 0:
            raise ValueError(f"clients must not be negative, found {self.clients}")
        if self.retry_ns < 1:
            raise ValueError(f"retry_ns must be at least 1, found {self.retry_ns}")
        times = [at_s for at_s, _ in self.changes]
        if times != sorted(times):
            raise ValueError(f"changes must be in order of time, found {times}")

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:
        """The first request of every caller; the others come from `Arrival.sender`."""
        callers = _Callers(self, rng)
        highest = max([self.clients, *(clients for _, clients in self.changes)])
        starts_ns = chain(self.starts_ns, repeat(0))
        clients = [_Client(callers, number) for number in range(highest)]
        first = [client.request(at_ns) for client, at_ns in zip(clients, starts_ns, strict=False)]
        return iter(sorted((arrival for arrival in first if arrival), key=lambda arrival: arrival.at_ns))


class _Callers:
    """What the callers of one loop share."""

    def __init__(self, loop: ClosedLoop, rng: Generator) -> None:
        self.names = loop.requests.names()
        self.thinking_ns = loop.think.stream_ns(rng)
        self.properties = zip(*loop.requests.properties(rng), strict=False)
        self.retry_ns = loop.retry_ns
        self._levels = [(seconds_to_ns(at_s), clients) for at_s, clients in ((0.0, loop.clients), *loop.changes)]
        self.is_steady = len(self._levels) == 1

    def turn_ns(self, number: int, at_ns: int) -> int | None:
        """When the caller with this number may send, from `at_ns` on; None if never again."""
        began_ns = [*(began_ns for began_ns, _ in self._levels[1:]), 1 << 62]
        for (level_ns, clients), until_ns in zip(self._levels, began_ns, strict=True):
            if number < clients and at_ns < until_ns:
                return max(at_ns, level_ns)
        return None


class _Client:
    """One caller, a `Sender`."""

    __slots__ = ("_callers", "_number")

    def __init__(self, callers: _Callers, number: int) -> None:
        self._callers = callers
        self._number = number

    def next_request(self, at_ns: int, is_answered: bool) -> Arrival | None:
        """Think, then send, if it is still this caller's turn."""
        callers = self._callers
        sent_ns = at_ns + next(callers.thinking_ns)
        return self.request(sent_ns if is_answered else sent_ns + callers.retry_ns)

    def request(self, at_ns: int) -> Arrival | None:
        """A request at this time, or at the first later one at which the loop has so many callers."""
        callers = self._callers
        if not callers.is_steady:
            turn_ns = callers.turn_ns(self._number, at_ns)
            if turn_ns is None:
                return None
            at_ns = turn_ns
        return tuple.__new__(Arrival, (next(callers.names), at_ns, *next(callers.properties), self))
