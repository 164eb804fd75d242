"""Plays scenarios: every rival on the first seeds, those that matter on all."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from statistics import fmean

from batching.simulation import simulate
from loadtest.policy_matrix.rivals import Rival, ours, rivals
from loadtest.policy_matrix.scenarios import Scenario

OURS, COLD, GREEDY = "shoal", "shoal, cold", "greedy"
_AWARE = ("expiry", "research")  # the engine ends their requests at the deadline


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run.

    Attributes:
        throughput: Requests answered per second.
        goodput: Those in time.
        mean_ms: Latency.
        p99_ms: Latency.
        refuses: Somebody got no answer.
    """

    throughput: float
    goodput: float
    mean_ms: float
    p99_ms: float
    refuses: bool


Metric = Callable[[Figures], float]


def throughput(figures: Figures) -> float:
    """A metric."""
    return figures.throughput


def goodput(figures: Figures) -> float:
    """A metric; without deadlines it is the throughput."""
    return figures.goodput


def mean_ms(figures: Figures) -> float:
    """A metric."""
    return figures.mean_ms


def p99_ms(figures: Figures) -> float:
    """A metric."""
    return figures.p99_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is played.

    Attributes:
        seeds: For `shoal` and the finalists.
        screening: The first so many are for everybody.
        only: Names of the rivals that play; None for all.
    """

    seeds: tuple[int, ...]
    screening: int
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """What came out.

    Attributes:
        scenario: What was played.
        figures: Of each seed in order, by name of the policy.
        finalists: Rivals that played all seeds.
    """

    scenario: Scenario
    figures: Mapping[str, Sequence[Figures]]
    finalists: Sequence[str]

    def mean(self, name: str, metric: Metric, seeds: int | None = None) -> float:
        """Over the first so many seeds, or all that it played."""
        values = [metric(figures) for figures in self.figures[name][:seeds]]
        return fmean(values) if values else math.nan

    def ratio(self, metric: Metric, rival: str) -> float:
        """Ours over theirs, on the seeds that both have played; 100 at most."""
        seeds = len(self.figures[rival])
        mine = self.mean(OURS, metric, seeds)
        return mine / max(self.mean(rival, metric, seeds), mine / 100, 1e-9)

    def seed_ratio(self, metric: Metric, rival: str, seed: int) -> float:
        """The same for one seed."""
        mine = metric(self.figures[OURS][seed])
        return mine / max(metric(self.figures[rival][seed]), mine / 100, 1e-9)

    def answers_all(self, name: str) -> bool:
        """Whether a policy refuses nobody."""
        return not any(figures.refuses for figures in self.figures[name])

    def best(self, metric: Metric) -> str:
        """The finalist with the most of it; where there are no deadlines, of those that refuse nobody."""
        able = [name for name in self.finalists if self.scenario.slo_ns or self.answers_all(name)]
        return max(able, key=lambda name: self.mean(name, metric))


def play_all(scenarios: Sequence[Scenario], plan: Plan, processes: int) -> Iterator[Played]:
    """In any order, as they are done."""
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(play, scenario, plan) for scenario in sorted(scenarios, key=_cost, reverse=True)]
        for job in as_completed(jobs):
            yield job.result()


def play(scenario: Scenario, plan: Plan) -> Played:
    """One scenario with everybody."""
    field = rivals(has_deadlines=scenario.slo_ns is not None)
    if plan.only is not None:
        field = [rival for rival in field if rival.name in plan.only]
    screened = {rival.name: _play(scenario, rival, plan.seeds[: plan.screening]) for rival in field}
    finalists = [rival for rival in field if rival.name in _finalists(screened, scenario)]
    rest = plan.seeds[plan.screening :]
    for rival in finalists:
        screened[rival.name] += _play(scenario, rival, rest)
    screened[OURS] = _play(scenario, ours(knows_times=True), plan.seeds)
    screened[COLD] = _play(scenario, ours(knows_times=False), plan.seeds[: plan.screening])
    return Played(scenario, screened, [rival.name for rival in finalists])


def _play(scenario: Scenario, rival: Rival, seeds: Sequence[int]) -> list[Figures]:
    house = scenario.house(enforce_deadlines=rival.lateness in _AWARE)
    service = scenario.served.service(scenario.noise, scenario.drift)
    played = []
    for seed in seeds:
        statistics = simulate(
            lambda: rival.make(scenario), scenario.load, service, house, duration_s=scenario.duration_s, seed=seed
        )
        lost = statistics.expired + sum(statistics.refused.values()) + sum(statistics.dropped.values())
        latency = statistics.latency
        played.append(
            Figures(
                statistics.throughput_per_s,
                statistics.goodput_per_s,
                latency.mean_ms,
                latency.p99_ms,
                lost > 0,
            )
        )
    return played


def _finalists(screened: Mapping[str, Sequence[Figures]], scenario: Scenario) -> frozenset[str]:
    """Who may be the best one by goodput, or where there are no deadlines by p99 near the best throughput."""

    def by(metric: Metric) -> Callable[[str], float]:
        return lambda name: fmean(map(metric, screened[name]))

    names = sorted(screened, key=by(goodput), reverse=True)
    if scenario.slo_ns is not None:
        return frozenset(names[:5])
    able = [name for name in names if not any(figures.refuses for figures in screened[name])]
    near = [name for name in able if by(throughput)(name) >= 0.97 * by(throughput)(able[0])]
    return frozenset({*able[:2], *sorted(near, key=by(p99_ms))[:4], GREEDY} & screened.keys())


def _cost(scenario: Scenario) -> float:
    """Roughly; the long ones first keep all processes busy to the end."""
    return scenario.duration_s * scenario.served.capacity_per_s(scenario.instances) * (3 if scenario.slo_ns else 1)
