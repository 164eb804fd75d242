"""How long the recorded model runs for a batch of so many rows, learned from the recorded batches."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapreplace

import numpy as np
from numpy.random import Generator

from batching.clock import MICROSECOND_NS
from batching.simulation import Occupancy, Service, ServiceModel
from batching.simulation.draws import CHUNK, endless
from batching.simulation.service import Occupy
from loadtest.fidelity.recordings import IntTable
from loadtest.fidelity.servers import Surroundings
from loadtest.fidelity.traces import Trace

_ROW_SLOPE = re.compile(r"(\d+(?:\.\d+)?) ?(us|ms) per row")
_UNIT_US: Mapping[str, float] = {"us": 1.0, "ms": 1_000.0}
_FEW = 5  # batches of one size that make a median worth believing


@dataclass(frozen=True, slots=True)
class RecordedModel:
    """Durations of the model, as `batching.simulation` wants them.

    Attributes:
        known_us: Median duration by rows, ascending by rows, at least one; linear between them.
        slope_us: Per row, below the smallest and above the largest known size.
        noise_us: Recorded deviations from the median, to draw from.
    """

    known_us: Sequence[tuple[int, float]]
    slope_us: float
    noise_us: Sequence[float]

    def median_us(self, rows: int) -> float:
        """Duration without noise."""
        sizes, times_us = zip(*self.known_us, strict=True)
        beyond = min(rows - sizes[0], 0) + max(rows - sizes[-1], 0)
        return max(float(np.interp(rows, sizes, times_us) + self.slope_us * beyond), 1.0)

    def open(self, rng: Generator) -> Callable[[int], float]:
        """Rows -> ns, another time for each batch."""
        median_us = cache(self.median_us)
        noise = np.array(self.noise_us)
        noises_us = endless(lambda: rng.choice(noise, CHUNK).tolist())
        return lambda rows: (median_us(rows) + next(noises_us)) * MICROSECOND_NS


def learn(trace: Trace) -> RecordedModel:
    """Medians by size and the spread around them.

    Beyond the recorded sizes: the slope that `service_model` states ("... 1200 us per row"), else that of a line
    through the recorded sizes, else none. Deviations are the middle 98 %: what is outside is the machine's hiccup.
    """
    batches = trace.recording.batches
    known = _medians(batches)
    slope_us = _stated_slope_us(trace.service_model)
    if slope_us is None:
        sizes, times_us = np.array(known).T
        slope_us = float(np.polyfit(sizes, times_us, 1)[0]) if len(known) > 1 else 0.0
    exact = RecordedModel(known, slope_us, [0.0])
    medians_us = np.array([exact.median_us(rows) for rows in batches[:, 2].tolist()])
    noise_us = batches[:, 1] - batches[:, 0] - medians_us
    low_us, high_us = np.percentile(noise_us, (1, 99))
    middle = noise_us[(noise_us >= low_us) & (noise_us <= high_us)]
    return RecordedModel(known, slope_us, middle.tolist() or [0.0])


def _medians(batches: IntTable) -> list[tuple[int, float]]:
    sizes, counts = np.unique(batches[:, 2], return_counts=True)
    often = sizes[counts >= _FEW]
    durations_us = batches[:, 1] - batches[:, 0]
    chosen = often if len(often) else sizes
    return [(int(rows), float(np.median(durations_us[batches[:, 2] == rows]))) for rows in chosen]


def _stated_slope_us(words: str) -> float | None:
    found = _ROW_SLOPE.search(words)
    return None if found is None else float(found[1]) * _UNIT_US[found[2]]


def occupancy(model: RecordedModel, around: Surroundings, instances: int) -> ServiceModel:
    """The model inside its server."""
    service = Service(model, pre=around.pre, post=around.post, jitter=around.jitter)
    return _Queued(service, instances) if around.queues_batches else service


@dataclass(frozen=True, slots=True)
class _Queued:
    """Batches are prepared as they come, then wait in line for a worker, which rests `post` after each."""

    service: Service
    workers: int

    def open(self, rng: Generator) -> Occupy:
        occupy = self.service.open(rng)
        free_ns = [0] * self.workers

        def wait_in_line(rows: int, now_ns: int, instance: str) -> Occupancy:
            alone = occupy(rows, now_ns, instance)
            wait_ns = max(free_ns[0] - alone.begins_ns, 0)
            heapreplace(free_ns, alone.free_ns + wait_ns)
            return Occupancy(alone.begins_ns + wait_ns, alone.ends_ns + wait_ns, alone.ends_ns + wait_ns)

        return wait_in_line
