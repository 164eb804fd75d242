"""What lies between a caller and the scheduler. It is outside the policy's sight: noise here never reaches it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.random import Generator

from batching.clock import MILLISECOND_NS
from batching.simulation.draws import factors
from batching.simulation.service import Affine, SizeTimes


class Wire(Protocol):
    """A running network. Every method is called at the moment that its first argument names, so in order of time."""

    def entered_ns(self, sent_ns: int) -> int:
        """When a request that is sent now enters the queue."""
        ...

    def answered_ns(self, ended_ns: int, requests: int, rows: int) -> Sequence[int]:
        """When each caller of a batch whose model ends now has its answer, in order of the batch's members."""
        ...

    def refused_ns(self, now_ns: int) -> int:
        """When the caller of a request that ends now without an answer knows it."""
        ...


class Network(Protocol):
    """A description; `open` starts it."""

    def open(self, rng: Generator) -> Wire:
        """The running network.

        Args:
            rng: Its own random stream.
        """
        ...


_NOTHING = Affine(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Constant times with noise.

    Attributes:
        send_ms: From a caller's sending to the scheduler's queue.
        first_answer: From the end of the model to the first answer of the batch, by rows.
        answer_gap_ms: Between one answer of a batch and the next: they are written, and read, one after another.
        refusal_ms: From a refusal to the caller that learns of it.
        reader_ms: All callers are one thread of a load generator: answers queue for it, each keeps it so busy.
        jitter: Sigma of lognormal noise with mean 1 on each.
    """

    send_ms: float = 0.0
    first_answer: SizeTimes = _NOTHING
    answer_gap_ms: float = 0.0
    refusal_ms: float = 0.0
    reader_ms: float = 0.0
    jitter: float = 0.0

    def open(self, rng: Generator) -> Wire:
        """The running network."""
        return _LinkWire(self, rng)


class _LinkWire:
    def __init__(self, link: Link, rng: Generator) -> None:
        self._send_ns = link.send_ms * MILLISECOND_NS
        self._gap_ns = link.answer_gap_ms * MILLISECOND_NS
        self._refusal_ns = link.refusal_ms * MILLISECOND_NS
        self._reader_ns = link.reader_ms * MILLISECOND_NS
        self._reader_free_ns = 0
        self._first_ns = link.first_answer.open(rng)
        self._factors = factors(rng, link.jitter)

    def entered_ns(self, sent_ns: int) -> int:
        """See `Wire`."""
        return sent_ns + int(self._send_ns * next(self._factors))

    def answered_ns(self, ended_ns: int, requests: int, rows: int) -> Sequence[int]:
        """See `Wire`."""
        gap_ns, noise = self._gap_ns, self._factors
        at_ns = ended_ns + int(self._first_ns(rows) * next(noise))
        answers_ns = [self._read(at_ns)]
        for _ in range(requests - 1):
            at_ns += int(gap_ns * next(noise))
            answers_ns.append(self._read(at_ns))
        return answers_ns

    def refused_ns(self, now_ns: int) -> int:
        """See `Wire`."""
        return self._read(now_ns + int(self._refusal_ns * next(self._factors)))

    def _read(self, at_ns: int) -> int:
        if not self._reader_ns:
            return at_ns
        self._reader_free_ns = max(self._reader_free_ns, at_ns) + int(self._reader_ns * next(self._factors))
        return self._reader_free_ns
