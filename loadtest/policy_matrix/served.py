"""The models of the matrix: how long their batches take, and how fast callers come back."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from batching.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from batching.simulation import Affine, Link, Service
from batching.simulation.service import SizeTimes, Table, capacity_per_s


@dataclass(frozen=True, slots=True)
class Served:
    """A model on its device.

    Attributes:
        name: For people.
        times: Of the model call by rows.
        largest_rows: The largest batch.
        pace: Everything around the model call takes so much of what it takes for `a10g`.
    """

    name: str
    times: SizeTimes
    largest_rows: int
    pace: float

    @property
    def alone_ns(self) -> int:
        """Model time of one row, the unit of deadlines."""
        return round(self.model_ns(1))

    @property
    def link(self) -> Link:
        """From an answer to the next request of its caller: the i-th of n after 0.6 + 0.02 n + 0.07 i ms."""
        pace = self.pace
        return Link(first_answer=Affine(0.67 * pace, 0.02 * pace), answer_gap_ms=0.07 * pace)

    def model_ns(self, rows: int) -> float:
        """Time of a model call."""
        return self.times.open(np.random.default_rng(0))(rows)

    def busy_ns(self, rows: int) -> float:
        """How long a batch occupies an instance; as in the live server its answers leave at the end of that."""
        return self.model_ns(rows) + self.pace * (0.3 + 0.03 * rows) * MILLISECOND_NS

    def turn_around_ns(self, callers: int) -> float:
        """From a batch's answers to the last of its callers' next requests."""
        return self.pace * (0.6 + 0.09 * callers) * MILLISECOND_NS

    def service(self, noise: float, drift: tuple[tuple[float, float], ...] = ()) -> Service:
        """For the simulation."""
        copying = Affine(0.3 * self.pace, 0.03 * self.pace)
        return Service(self.times, noise=noise, pre=copying, drift=drift)

    def capacity_per_s(self, instances: int) -> float:
        """Rows per second at the best batch size."""
        return capacity_per_s(self.times, self.largest_rows, instances, np.random.default_rng(0))

    def profile_us(self) -> Mapping[int, float]:
        """Measured times at 1, 2, 4, ... rows and the largest batch, as a warm-up finds them."""
        sizes = {1 << power for power in range(self.largest_rows.bit_length())} | {self.largest_rows}
        return {rows: self.busy_ns(rows) / MICROSECOND_NS for rows in sorted(sizes)}

    def closed_bound_per_s(self, callers: int) -> float:
        """What so many callers without think time can get from one instance, if they are served together."""
        return callers * SECOND_NS / (self.busy_ns(callers) + self.turn_around_ns(callers))


A10G = Served("a10g", Affine(6.0, 1.2), 32, 1.0)
A100 = Served("a100", Affine(2.0, 0.35), 32, 0.35)
H200 = Served("h200", Affine(0.4, 0.012), 64, 0.1)
PERHEAVY = Served("perheavy", Affine(2.0, 4.0), 16, 0.5)
CPU = Served("cpu", Table.of_rates({1: 226, 2: 219, 4: 221, 8: 197, 16: 185, 32: 166}), 32, 0.5)
PLATEAU = Served("plateau", Table.of_rates({1: 200, 2: 360, 4: 600, 8: 800, 16: 810, 32: 790}), 32, 0.5)
