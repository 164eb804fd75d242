"""The recorded clients: one thread that sends every request and reads every answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numpy.random import Generator

from batching.clock import MILLISECOND_NS
from batching.simulation import Arrival, Wire
from batching.simulation.draws import factors
from loadtest.fidelity.servers import Surroundings

READ_MS = 0.025
SEND_MS = 0.062
# The thread is an event loop: it notes the times of a burst one request after another, READ + SEND apart, but writes
# close together at the end of it: what the servers report of bursts of 4 to 32 requests fits READ + SEND - HELD.
_HELD_MS = 0.04
_BURST = 2
_REFUSAL_MS = 0.35  # from a refusal to the client that learns of it


@dataclass(slots=True)
class Traffic:
    """How busy the machine is with requests, for latencies that depend on it.

    Attributes:
        on_the_way: Requests that were sent and are not in the queue.
    """

    on_the_way: int = 0

    @property
    def is_burst(self) -> bool:
        """Whether the thread sends one request after another and the server takes them in."""
        return self.on_the_way >= _BURST


@dataclass(frozen=True, slots=True)
class ClientThread:
    """A network with the latencies of a server at one end and the client thread at the other.

    Attributes:
        around: The server's latencies.
        resends: Whether the thread sends the next request after each answer: a closed loop.
        traffic: Counts what is sent; whoever sees the requests arrive counts them off.
    """

    around: Surroundings
    resends: bool
    traffic: Traffic

    def open(self, rng: Generator) -> Wire:
        """See `Network`."""
        return _Thread(self, rng)


class _Thread:
    def __init__(self, thread: ClientThread, rng: Generator) -> None:
        around, resends = thread.around, thread.resends
        self._traffic = thread.traffic
        self._send_ns = around.send_ms * MILLISECOND_NS
        self._first_ns = around.first_answer.open(rng)
        self._gap_ns = around.gap_ms(resends=resends) * MILLISECOND_NS
        self._read_ns = round(READ_MS * MILLISECOND_NS)
        self._resend_ns = round(SEND_MS * MILLISECOND_NS) if resends else 0
        self._held_ns = round(_HELD_MS * MILLISECOND_NS) if resends else 0
        self._noise = factors(rng, around.jitter)
        self._free_ns = 0
        self._held: dict[int, int] = {}  # by the time when a request is sent: how long it stays in the thread

    def entered_ns(self, sent_ns: int) -> int:
        """See `Wire`."""
        self._traffic.on_the_way += 1
        return sent_ns + int((self._send_ns + self._held.pop(sent_ns, 0)) * next(self._noise))

    def answered_ns(self, ended_ns: int, requests: int, rows: int) -> Sequence[int]:
        """See `Wire`."""
        noise = self._noise
        at_ns = ended_ns + int(self._first_ns(rows) * next(noise))
        gap_ns = int(self._gap_ns * next(noise))
        answers_ns = [self._read(at_ns + gap_ns * place) for place in range(requests)]
        if self._held_ns:
            self._held.update((read_ns, self._held_ns * place) for place, read_ns in enumerate(reversed(answers_ns)))
        return answers_ns

    def refused_ns(self, now_ns: int) -> int:
        """See `Wire`."""
        return self._read(now_ns + int(_REFUSAL_MS * MILLISECOND_NS * next(self._noise)))

    def _read(self, at_ns: int) -> int:
        read_ns = max(at_ns, self._free_ns) + self._read_ns
        self._free_ns = read_ns + self._resend_ns
        return read_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """A load of so many requests.

    Attributes:
        sent_ns: When the first ones are sent, ascending: all of them in an open loop, one a client in a closed loop.
        requests: How many in all.
        resends: Whether each answer, good or bad, is followed by the next request until all are sent.
    """

    sent_ns: Sequence[int]
    requests: int
    resends: bool

    def arrivals(self, rng: Generator) -> Iterator[Arrival]:  # noqa: ARG002 - nothing is random here
        """See `Load`."""
        sender = _Sender(self.requests - len(self.sent_ns)) if self.resends else None
        return iter([Arrival("", sent_ns, sender=sender) for sent_ns in self.sent_ns])


class _Sender:
    def __init__(self, left: int) -> None:
        self._left = left

    def next_request(self, at_ns: int, is_answered: bool) -> Arrival | None:  # noqa: ARG002 - both are sent again
        """See `Sender`."""
        if not self._left:
            return None
        self._left -= 1
        return Arrival("", at_ns, sender=self)
