"""What `shoal` promises, and whether it kept it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, stdev

from loadtest.policy_matrix.rivals import Lateness, rivals
from loadtest.policy_matrix.runs import GREEDY, OURS, Played, goodput, mean_ms, p99_ms, throughput

_STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}  # 95 %, both sides
FIXED: tuple[Lateness, ...] = ("unaware", "expiry", "half")  # the last knows deadlines, which is in its favour


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is promised; the defaults are for the whole matrix.

    Attributes:
        near_share: Share of scenarios in which goodput is at least 0.99 of the best rival's.
        worst: Goodput over the best rival's, everywhere.
        average: The same, geometric mean over scenarios with deadlines.
        fixed: Goodput over that of the best fixed server profile, in bursts with deadlines.
        tail_shares: Shares of scenarios with a p99 of at most 1.02 and 1.10 of the best.
        low_load_mean: Mean latency over greedy's below half of the capacity.
        closed: Throughput of closed loops over their bound.
        balanced: Mean latency over greedy's on eight instances at 70 %.
    """

    near_share: float = 0.9
    worst: float = 0.93
    average: float = 1.01
    fixed: float = 1.3
    tail_shares: tuple[float, float] = (0.75, 0.9)
    low_load_mean: float = 1.02
    closed: float = 0.97
    balanced: float = 0.87


SAMPLE = Limits(
    near_share=0.6,
    worst=0.9,
    average=0.99,
    fixed=1.1,
    tail_shares=(0.5, 0.7),
    low_load_mean=1.03,
    closed=0.95,
    balanced=0.95,
)
"""For a few scenarios with few seeds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise.

    Attributes:
        promise: What was promised.
        found: The figures.
        kept: Whether they keep it.
    """

    promise: str
    found: str
    kept: bool


Promise = Callable[[Sequence[Played], Limits], Iterator[Verdict]]


def verdicts(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    """All promises about which these scenarios say something."""
    for promise in _PROMISES:
        yield from promise(played, limits)


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval of independent values."""
    mean = fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = _STUDENT.get(len(values) - 1, 1.96) * stdev(values) / len(values) ** 0.5
    return f"{mean:.3f} +- {half:.3f}"


def with_deadlines(played: Sequence[Played]) -> list[Played]:
    """Those in which goodput counts."""
    return [each for each in played if each.scenario.slo_ns is not None]


def without_deadlines(played: Sequence[Played]) -> list[Played]:
    """Those in which throughput and latency count."""
    return [each for each in played if each.scenario.slo_ns is None]


def is_held_out(each: Played) -> bool:
    """Whether nobody designed it."""
    return each.scenario.family.startswith("held out")


def tail_ratio(each: Played) -> float:
    """Our p99 over the best of all that reach 98 % of the best throughput and refuse nobody; nan if we do not."""
    able = [name for name in (*each.finalists, OURS) if each.answers_all(name)]
    enough = 0.98 * max(each.mean(name, throughput) for name in able)
    near = [name for name in able if each.mean(name, throughput) >= enough]
    if OURS not in near:
        return float("nan")
    return each.mean(OURS, p99_ms) / min(each.mean(name, p99_ms) for name in near)


def fixed_profiles(played: Sequence[Played]) -> Mapping[str, tuple[Lateness, float]]:
    """Ours over theirs in goodput, geometric mean over scenarios with deadlines, by name of the setting."""
    found = {}
    for rival in rivals(has_deadlines=True):
        if all(rival.name in each.figures for each in played):
            found[rival.name] = rival.lateness, geometric_mean([each.ratio(goodput, rival.name) for each in played])
    return found


def _goodput(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    parts = {
        "designed": [each for each in played if not is_held_out(each)],
        "held out": [each for each in played if is_held_out(each)],
    }
    for title, part in parts.items():
        if not part:
            continue
        near, worst = _near_share(part), min(part, key=_best_ratio)
        yield Verdict(
            f"goodput >= 0.99 of the best rival's in {limits.near_share:.0%} of scenarios, "
            f"{limits.worst} everywhere ({title})",
            f"{near:.1%} of {len(part)}, worst {_best_ratio(worst):.3f} ({worst.scenario.name})",
            near >= limits.near_share and _best_ratio(worst) >= limits.worst,
        )
        if with_deadlines(part):
            yield _average(title, with_deadlines(part), limits)


def _best_ratio(each: Played) -> float:
    return each.ratio(goodput, each.best(goodput))


def _near_share(played: Sequence[Played]) -> float:
    return fmean([_best_ratio(each) >= 0.99 for each in played])


def _average(title: str, played: Sequence[Played], limits: Limits) -> Verdict:
    bests = [(each, each.best(goodput)) for each in played]
    found = geometric_mean([each.ratio(goodput, best) for each, best in bests])
    seeds = range(len(played[0].figures[OURS]))
    by_seed = [geometric_mean([each.seed_ratio(goodput, best, seed) for each, best in bests]) for seed in seeds]
    return Verdict(
        f"geometric mean of goodput over the best rival's > {limits.average} with deadlines ({title})",
        f"{found:.3f} (by seed {interval(by_seed)})",
        found > limits.average,
    )


def _fixed(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    bursty = [each for each in with_deadlines(played) if each.scenario.family == "bursty + deadline"]
    if not bursty:
        return
    profiles = fixed_profiles(bursty)
    known = {name: ratio for name, (lateness, ratio) in profiles.items() if lateness in FIXED}
    name, ratio = min(known.items(), key=lambda item: item[1])
    yield Verdict(
        f"goodput >= {limits.fixed} of the best fixed server profile in bursts with deadlines",
        f"{ratio:.2f} ({name}); others in the table of fixed settings",
        ratio >= limits.fixed,
    )


def _tail(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    ratios = [tail_ratio(each) for each in without_deadlines(played)]
    if not ratios:
        return
    near, far = (fmean(ratio <= limit for ratio in ratios) for limit in (1.02, 1.10))
    near_limit, far_limit = limits.tail_shares
    yield Verdict(
        f"p99 within 2 % of the best throughput <= 1.02 of the best in {near_limit:.0%}, 1.10 in {far_limit:.0%}",
        f"{near:.0%} and {far:.0%} of {len(ratios)}",
        near >= near_limit and far >= far_limit,
    )


def _low_load(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    low = [each for each in without_deadlines(played) if (each.scenario.load_share or 1) <= 0.5]
    if not low:
        return
    worst = max(low, key=lambda each: each.ratio(mean_ms, GREEDY))
    ratio = worst.ratio(mean_ms, GREEDY)
    yield Verdict(
        f"mean latency <= {limits.low_load_mean} of greedy's for open arrivals up to 50 % load",
        f"at most {ratio:.3f} ({worst.scenario.name})",
        ratio <= limits.low_load_mean,
    )


def _closed(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    bounded = [(each.mean(OURS, throughput) / each.scenario.bound_per_s, each)
               for each in played if each.scenario.bound_per_s is not None]  # fmt: skip
    if not bounded:
        return
    share, worst = min(bounded, key=lambda pair: pair[0])
    yield Verdict(
        f"closed loops reach {limits.closed:.0%} of callers / (batch time + turn-around)",
        f"at least {share:.1%} ({worst.scenario.name})",
        share >= limits.closed,
    )


def _keeps_up(played: Sequence[Played], _limits: Limits) -> Iterator[Verdict]:
    for each in played:
        scenario = each.scenario
        if scenario.served.name != "cpu" or scenario.instances > 1 or scenario.load_share != 0.8 or scenario.slo_ns:
            continue
        offered = 0.8 * scenario.served.capacity_per_s(1)
        mine, theirs = (each.mean(name, throughput) / offered for name in (OURS, GREEDY))
        delay = each.ratio(mean_ms, GREEDY)
        yield Verdict(
            "the CPU table at 80 % load keeps up where greedy cannot",
            f"throughput / offered {mine:.3f}, greedy {theirs:.3f}; mean latency / greedy's {delay:.3f}",
            mine >= 0.98 and delay < 0.33,
        )


def _balanced(played: Sequence[Played], limits: Limits) -> Iterator[Verdict]:
    for each in played:
        if each.scenario.name == "poisson a10g N8 70":
            ratio = each.ratio(mean_ms, GREEDY)
            yield Verdict(
                f"mean latency <= {limits.balanced} of greedy's on eight instances at 70 % load",
                f"{ratio:.3f}",
                ratio <= limits.balanced,
            )


_PROMISES: tuple[Promise, ...] = (_goodput, _fixed, _tail, _low_load, _closed, _keeps_up, _balanced)
