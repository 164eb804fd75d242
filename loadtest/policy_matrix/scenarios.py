"""What a scenario is, and the kinds of load that scenarios are made of."""

from dataclasses import dataclass, replace
from typing import Literal

from batching.clock import SECOND_NS
from batching.core.limits import Limits
from batching.simulation import (
    Bursty,
    Choice,
    ClosedLoop,
    Diurnal,
    Exponential,
    House,
    Load,
    Mixture,
    Poisson,
    Requests,
    uniform,
)
from loadtest.policy_matrix.served import Served

REQUESTS = 2_500
"""Simulated requests of a run, at least; the first tenth is warm-up."""
_BURSTS, _MOST_REQUESTS = 12, 10_000  # so many times on and off in a run, as far as this allows
_ROUNDS = 60  # at least so many requests of each caller
_LIMITLESS = 1_000_000

Kind = Literal["poisson", "bursty", "diurnal", "closed", "think", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A model, its instances and a load.

    Attributes:
        name: Unique.
        family: Scenarios that are reported together.
        kind: Of the arrivals.
        served: The model.
        instances: How many run it.
        load: What comes.
        duration_s: Simulated time of one run.
        load_share: Mean rate of open arrivals over the capacity; None for closed loops.
        callers: Of a closed loop without think time; None for all others.
        slo_ns: The shortest deadline; None without deadlines.
        noise: Sigma of the lognormal noise on model times.
        drift: (time in s, factor on model times from then on).
    """

    name: str
    family: str
    kind: Kind
    served: Served
    instances: int
    load: Load
    duration_s: float
    load_share: float | None = None
    callers: int | None = None
    slo_ns: int | None = None
    noise: float = 0.03
    drift: tuple[tuple[float, float], ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether callers wait for their answers."""
        return self.kind in ("closed", "think", "mixed")

    @property
    def bound_per_s(self) -> float | None:
        """Most requests per second of a closed loop that fits into one batch of one instance."""
        if self.callers is None or self.instances > 1 or self.callers > self.served.largest_rows:
            return None
        return self.served.closed_bound_per_s(self.callers)

    def house(self, *, enforce_deadlines: bool) -> House:
        """For the simulation: the queue has no limit, and only callers that come back have a way to go."""
        limits = Limits(max_batch_rows=self.served.largest_rows, max_requests=_LIMITLESS, max_rows=_LIMITLESS)
        network = self.served.link if self.is_closed else None
        return House(limits=limits, instances=self.instances, network=network, enforce_deadlines=enforce_deadlines)


def deadline(served: Served, *multiples: float) -> tuple[Requests, int]:
    """Requests whose deadline is one of these multiples of a lone row's model time, each equally often.

    Returns:
        The requests, and the shortest deadline in ns.
    """
    patience_ns = [round(multiple * served.alone_ns) for multiple in multiples]
    weights: dict[int | None, float] = dict.fromkeys(patience_ns, 1.0)
    return Requests(patience_ns=patience_ns[0] if len(patience_ns) == 1 else Choice(weights)), min(patience_ns)


def open_load(
    kind: Kind,
    served: Served,
    instances: int,
    percent: float,
    multiples: tuple[float, ...] = (),
    *,
    family: str,
    rows_up_to: int = 1,
) -> Scenario:
    """Independent callers.

    Args:
        kind: "poisson", "bursty" or "diurnal".
        served: The model.
        instances: How many.
        percent: Load, in percent of the capacity.
        multiples: Deadlines as multiples of a lone row's model time, mixed evenly; none: no deadlines.
        family: See `Scenario`.
        rows_up_to: Requests have 1 to so many rows.
    """
    requests, slo_ns = deadline(served, *multiples) if multiples else (Requests(), None)
    rate = percent / 100 * served.capacity_per_s(instances) * 2 / (1 + rows_up_to)
    if rows_up_to > 1:
        requests = replace(requests, rows=uniform(1, rows_up_to))
    duration_s = _requests(served, instances) / rate
    load: Load
    if kind == "bursty":
        mean_on_s = 60 * served.alone_ns / SECOND_NS
        duration_s = max(duration_s, min(_BURSTS * mean_on_s / 0.2, _MOST_REQUESTS / rate))
        load = Bursty(rate_per_s=rate, mean_on_s=mean_on_s, requests=requests)
    elif kind == "diurnal":
        load = Diurnal(rate_per_s=rate, period_s=duration_s / 3, requests=requests)
    else:
        load = Poisson(rate, requests)
    slo = f"/{','.join(f'{multiple:g}' for multiple in multiples)}" if multiples else ""
    rows = f" rows 1-{rows_up_to}" if rows_up_to > 1 else ""
    return Scenario(
        name=f"{kind} {served.name} N{instances} {percent:g}{slo}{rows}",
        family=family,
        kind=kind,
        served=served,
        instances=instances,
        load=load,
        duration_s=duration_s,
        load_share=percent / 100,
        slo_ns=slo_ns,
    )


def noisy(scenario: Scenario, noise: float) -> Scenario:
    """The same with other noise on the model's times."""
    return replace(scenario, name=f"{scenario.name} noise {noise:.0%}", noise=noise)


def closed_loop(served: Served, instances: int, callers: int, think_ms: float = 0.0, *, family: str) -> Scenario:
    """Callers that wait for each answer, and then think for an exponential time."""
    think_s = think_ms / 1000
    rows = min(served.largest_rows, -(-callers // instances))
    batch_s = (served.busy_ns(rows) + served.turn_around_ns(rows)) / SECOND_NS
    rate = min(callers / (batch_s + think_s), served.capacity_per_s(instances))
    loop = ClosedLoop(clients=callers, think=Exponential(think_s)) if think_s else ClosedLoop(clients=callers)
    return Scenario(
        name=f"closed {served.name} N{instances} c{callers}" + (f" think {think_ms:g} ms" if think_s else ""),
        family=family,
        kind="think" if think_s else "closed",
        served=served,
        instances=instances,
        load=loop,
        duration_s=max(_requests(served, instances), _ROUNDS * callers) / rate,
        callers=None if think_s else callers,
    )


def mixed(served: Served, instances: int, callers: int, percent: float, *, family: str) -> Scenario:
    """A closed loop and independent callers at once."""
    alone = closed_loop(served, instances, callers, family=family)
    rate = percent / 100 * served.capacity_per_s(instances)
    return replace(
        alone,
        name=f"mixed {served.name} N{instances} c{callers} + {percent:g} %",
        kind="mixed",
        load=Mixture([alone.load, Poisson(rate)]),
        callers=None,
    )


def _requests(served: Served, instances: int) -> int:
    """Enough that those on their way when counting begins and ends do not matter."""
    return max(REQUESTS, 80 * served.largest_rows * max(instances // 2, 1))
