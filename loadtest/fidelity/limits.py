"""The families of traces: which figures are compared and how close they must come.

The limits are those of a calibration with all recorded cases in view: measured deviation plus the sampling floor plus,
where a case was recorded three times, the deviation of the real server from itself.
"""

from dataclasses import dataclass, replace
from enum import Enum


class Measure(Enum):
    """A figure that is compared."""

    RATE = "req/s"
    SLOWEST = "slowest run"
    MEAN_BATCH = "mean batch"
    QUEUE = "queue ms"
    MEAN = "mean ms"
    P50 = "p50 ms"
    P99 = "p99 ms"
    EMD = "EMD/batch"
    BINS = "TV bins"
    PATTERN = "TV"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a figure may be off.

    Attributes:
        measure: The figure.
        share: Allowed difference; of the real value, or absolute for distances and shares.
        floor: Allowed difference in the figure's own unit, if that is more.
    """

    measure: Measure
    share: float
    floor: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is asked of a trace.

    Attributes:
        name: Its letter.
        typical: Limits of the medians over all simulated runs.
        best: Limits that one and the same run must keep: the recorded cycle can be reached.
        slowest: How much less than the recorded rate any of the runs may reach, as a share; None: not asked. Reaching
            the recorded cycle from some start is not enough: wrong policies do that too, and lose elsewhere.
        explores: Simulate a grid of starts and noises instead of seeds of one.
        decides: Whether a miss fails the suite.
    """

    name: str
    typical: tuple[Limit, ...] = ()
    best: tuple[Limit, ...] = ()
    slowest: float | None = None
    explores: bool = False
    decides: bool = True

    def with_mean_latency(self) -> "Family":
        """The same, but asking for the mean latency instead of the median."""
        replaced = tuple(
            replace(limit, measure=Measure.MEAN) if limit.measure is Measure.P50 else limit for limit in self.typical
        )
        return replace(self, typical=replaced)


_SLOWEST = 0.08  # 0.05 was seen with the longest latencies
A = Family(
    name="A",
    typical=(
        Limit(Measure.RATE, 0.005),
        Limit(Measure.EMD, 0.04),
        Limit(Measure.QUEUE, 0.07),
        Limit(Measure.P50, 0.05),
        Limit(Measure.P99, 0.08),
    ),
)
A2 = Family(
    name="A2",
    typical=(
        Limit(Measure.EMD, 0.06),
        Limit(Measure.BINS, 0.12),
        Limit(Measure.QUEUE, 0.10),
        Limit(Measure.P50, 0.06),
        Limit(Measure.P99, 0.12),
    ),
)
B = Family(
    name="B",
    typical=(
        Limit(Measure.PATTERN, 0.03),
        Limit(Measure.RATE, 0.05),
        Limit(Measure.QUEUE, 0.08, floor=0.6),
        Limit(Measure.P50, 0.05),
    ),
)
B_MANY_INSTANCES = Family(  # two python stubs and the client shared two cores
    name="B", typical=(Limit(Measure.RATE, 0.08), *(limit for limit in B.typical if limit.measure is not Measure.RATE))
)
C = Family(
    name="C",
    explores=True,
    best=(Limit(Measure.PATTERN, 0.10), Limit(Measure.MEAN_BATCH, 0.02), Limit(Measure.RATE, 0.06)),
)
D = Family(
    name="D",
    explores=True,
    slowest=_SLOWEST,
    typical=(Limit(Measure.MEAN_BATCH, 0.04), Limit(Measure.RATE, 0.03), Limit(Measure.QUEUE, 0.10)),
    best=(Limit(Measure.PATTERN, 0.5),),
)
E = Family(
    name="E",
    explores=True,
    slowest=_SLOWEST,
    best=(Limit(Measure.RATE, 0.05), Limit(Measure.REFUSED, 0.03), Limit(Measure.PATTERN, 0.10)),
)
E_RACE = Family(
    name="E",
    explores=True,
    slowest=_SLOWEST,
    best=(Limit(Measure.RATE, 0.05), Limit(Measure.REFUSED, 0.20), Limit(Measure.PATTERN, 0.10)),
)
F = Family(name="F", typical=(Limit(Measure.PATTERN, 0.03), Limit(Measure.RATE, 0.06), Limit(Measure.P50, 0.05)))
F_DRIFTING = Family(name="F", typical=(Limit(Measure.RATE, 0.06), Limit(Measure.MEAN_BATCH, 0.15)))
F_OPEN = Family(
    name="F",
    typical=(
        Limit(Measure.EMD, 0.04),
        Limit(Measure.BINS, 0.08),
        Limit(Measure.P50, 0.04),
        Limit(Measure.P99, 0.10),
    ),
)
G = Family(name="G", typical=(Limit(Measure.PATTERN, 0.09), Limit(Measure.RATE, 0.05)))
G_SLOW_ANSWERS = Family(  # MLServer: every 25th to 60th set of answers was held back for 40 ms
    name="G", typical=(Limit(Measure.PATTERN, 0.09), Limit(Measure.RATE, 0.11))
)
G_OPEN = Family(name="G", typical=(Limit(Measure.EMD, 0.09), Limit(Measure.BINS, 0.09), Limit(Measure.P50, 0.05)))
G2 = Family(name="G2", typical=(Limit(Measure.RATE, 0.05), Limit(Measure.MEAN_BATCH, 0.15)))
H = Family(name="H", typical=(Limit(Measure.RATE, 0.30),), decides=False)
