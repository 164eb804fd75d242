"""Which runs are simulated for one trace.

An open loop is run with several seeds. A closed loop of Triton starts from the recorded first batch, because the start
decides the cycle; where several cycles are stable a grid of starts and noises is run instead, the noises within what
was measured on the real server.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from batching.simulation import Affine
from loadtest.fidelity.clients import READ_MS, SEND_MS, Clients
from loadtest.fidelity.limits import Family, Measure
from loadtest.fidelity.servers import SURROUNDINGS, Surroundings
from loadtest.fidelity.traces import Server, Trace

_SEEDS, _THIN_SEEDS = 8, 3
_JITTERS = (0.0, 0.02, 0.02, 0.08, 0.08)  # another seed for each; without jitter all runs are alike
_BURSTS_US = (60, 300, 800)  # quiet; while a burst arrives; the worst that was seen
_POST_SLOPES_MS = (0.042, 0.070)  # quiet; both cores busy
_START_SHARES = (0.25, 0.5, 0.78, 1.0)  # of the largest batch, besides one request and the recorded start
_THINNING = 5
_ARRIVED = 2  # times the mean way to the server: so late is nobody


@dataclass(frozen=True, slots=True)
class Variation:
    """One run.

    Attributes:
        around: The latencies.
        first_rows: Requests that the first look at the queue sees (closed loops of Triton).
        seed: Of the noise.
    """

    around: Surroundings
    first_rows: int
    seed: int


def variations(trace: Trace, asked: Family, *, thin: bool = False) -> Sequence[Variation]:
    """The runs of a trace.

    Args:
        trace: What was recorded.
        asked: Its family.
        thin: Keep three seeds, and every fifth point of a grid: every combination of noises, not from every start.
            Refusals hang on races that few points decide as the real server did: those grids stay whole.
    """
    around = SURROUNDINGS[trace.server]
    first_rows = int(trace.recording.batches[0, 2])
    if trace.clients is None or not asked.explores:
        return [Variation(around, first_rows, seed) for seed in range(_THIN_SEEDS if thin else _SEEDS)]
    grid = product(_starts(trace, trace.clients), _JITTERS, _BURSTS_US, _POST_SLOPES_MS)
    points = [
        Variation(
            replace(around, jitter=jitter, burst_us=burst_us, post=Affine(around.post.base_ms, slope_ms)),
            first,
            seed,
        )
        for seed, (first, jitter, burst_us, slope_ms) in enumerate(grid)
    ]
    is_race = any(limit.measure is Measure.REFUSED for limit in asked.best)
    return points[::_THINNING] if thin and not is_race else points


def _starts(trace: Trace, clients: int) -> Sequence[int]:
    shares = [max(1, round(share * trace.config.max_batch_rows)) for share in _START_SHARES]
    return sorted({rows for rows in (1, int(trace.recording.batches[0, 2]), *shares) if rows <= clients})


@dataclass(frozen=True, slots=True)
class Beginning:
    """A load, and when the instances join.

    Attributes:
        load: The clients.
        ready_ns: When the instances join.
    """

    load: Clients
    ready_ns: int = 0


def beginning(trace: Trace, variation: Variation) -> Beginning:
    """How one run begins.

    In closed loops of Triton the instances join when the first requests are there, so that the first look at the queue
    sees all of them; the other clients begin at that moment.
    """
    sent_us = trace.recording.requests[:, 0]
    requests = len(sent_us)
    if trace.clients is None:
        return Beginning(Clients(sent_ns=(sent_us * MICROSECOND_NS).tolist(), requests=requests, resends=False))
    clients = min(trace.clients, requests)
    gap_ns = round((READ_MS + SEND_MS) * MILLISECOND_NS)
    if trace.server is not Server.TRITON:
        sent_ns = [gap_ns * client for client in range(clients)]
        return Beginning(Clients(sent_ns=sent_ns, requests=requests, resends=True))
    first = min(variation.first_rows, clients)
    ready_ns = round(_ARRIVED * variation.around.send_ms * MILLISECOND_NS)
    others_ns = [ready_ns + gap_ns * client for client in range(clients - first)]
    return Beginning(Clients(sent_ns=[0] * first + others_ns, requests=requests, resends=True), ready_ns)
