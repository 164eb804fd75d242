"""The tables."""

import math
import sys
from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from loadtest.policy_matrix.promises import (
    FIXED,
    Verdict,
    fixed_profiles,
    tail_ratio,
    with_deadlines,
    without_deadlines,
)
from loadtest.policy_matrix.rivals import rivals
from loadtest.policy_matrix.runs import COLD, GREEDY, Played, goodput, mean_ms, p99_ms, throughput

_FAMILY = "{:<34} {:>3} {:>15} {:>15} {:>15} {:>13} {:>8} {:>13}"


def say(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def families(played: Sequence[Played]) -> Iterator[str]:
    """One line for each family: goodput (without deadlines: throughput) of ours over theirs, mean and worst."""
    fixed = {True: _best_fixed(with_deadlines(played)), False: _best_fixed(without_deadlines(played))}
    yield "Ours / theirs in goodput, or in throughput where there are no deadlines: geometric mean, worst."
    yield f"One fixed setting: {fixed[True]} with deadlines, {fixed[False]} without."
    yield _FAMILY.format("family", "n", "at defaults", "one fixed", "best of grid", "mean/greedy", "max", "p99 <= 1.02")
    for family in dict.fromkeys(each.scenario.family for each in played):
        group = [each for each in played if each.scenario.family == family]
        has_deadlines = group[0].scenario.slo_ns is not None
        yield _FAMILY.format(
            family,
            len(group),
            _cell([over_best_default(each) for each in group]),
            _cell([each.ratio(goodput, fixed[has_deadlines]) for each in group]),
            _cell([each.ratio(goodput, each.best(goodput)) for each in group]),
            *(("", "", "") if has_deadlines else _latencies(group)),
        )


def over_best_default(each: Played) -> float:
    """Ours over the best server as shipped; without deadlines of those that refuse nobody."""
    names = [rival.name for rival in rivals(has_deadlines=False) if rival.is_default and rival.name in each.figures]
    able = [name for name in names if each.scenario.slo_ns or each.answers_all(name)]
    return min((each.ratio(goodput, name) for name in able), default=math.nan)


def fixed_settings(played: Sequence[Played]) -> Iterator[str]:
    """What one setting for all scenarios costs, by what the setting knows about deadlines."""
    bursty = [each for each in played if each.scenario.family == "bursty + deadline"]
    late = with_deadlines(played)
    if bursty:
        yield "Goodput ours / theirs with one setting for all, geometric mean over bursts with deadlines, and over all"
        profiles, everywhere = fixed_profiles(bursty), fixed_profiles(late)
        for name, (lateness, ratio) in sorted(profiles.items(), key=lambda item: item[1]):
            yield f"  {name:<34} {lateness:<9} {ratio:>6.2f} {everywhere[name][1]:>6.2f}"
    calm = without_deadlines(played)
    if calm:
        yield "Without deadlines, theirs / ours: throughput, mean latency, p99 (geometric means)"
        for rival in rivals(has_deadlines=False):
            if all(rival.name in each.figures and each.answers_all(rival.name) for each in calm):
                yield f"  {rival.name:<34} " + " ".join(
                    f"{1 / geometric_mean([each.ratio(metric, rival.name) for each in calm]):>6.2f}"
                    for metric in (throughput, mean_ms, p99_ms)
                )


def losses(played: Sequence[Played]) -> Iterator[str]:
    """Where somebody was better."""
    yield "Losses: goodput or throughput below 0.99 of the best rival's, p99 above 1.05 of the best at top throughput"
    for each in sorted(played, key=lambda each: each.ratio(goodput, each.best(goodput))):
        best = each.best(goodput)
        ratio = each.ratio(goodput, best)
        if ratio < 0.99:
            yield f"  {each.scenario.name:<52} {ratio:.3f} of {best}"
    for each in without_deadlines(played):
        ratio = tail_ratio(each)
        if not ratio <= 1.05:
            yield (
                f"  {each.scenario.name:<52} p99 x {ratio:.3f}"
                if ratio > 0
                else (f"  {each.scenario.name:<52} p99: below 98 % of the best throughput")
            )


def cold_start(played: Sequence[Played]) -> Iterator[str]:
    """What starting without known times costs."""
    cells = [
        f"{title} {_cell([1 / each.ratio(metric, COLD) for each in group])}"
        for title, metric, group in (
            ("goodput", goodput, with_deadlines(played)),
            ("throughput", throughput, without_deadlines(played)),
        )
        if group
    ]
    yield "Without a warm-up, over ours with one: " + ", ".join(cells)


def promises(found: Sequence[Verdict]) -> Iterator[str]:
    """One line each."""
    for verdict in found:
        yield f"{'kept  ' if verdict.kept else 'BROKEN'} {verdict.promise}: {verdict.found}"


def _latencies(group: Sequence[Played]) -> tuple[str, str, str]:
    means = [each.ratio(mean_ms, GREEDY) for each in group]
    tails = [tail_ratio(each) for each in group]
    near = sum(ratio <= 1.02 for ratio in tails)
    return f"{geometric_mean(means):.3f}", f"{max(means):.3f}", f"{near} of {len(tails)}"


def _best_fixed(played: Sequence[Played]) -> str:
    """The setting, of those that know no scenario, that does best over all."""
    if not played:
        return ""
    has_deadlines = played[0].scenario.slo_ns is not None
    names = [
        rival.name
        for rival in rivals(has_deadlines=has_deadlines)
        if rival.lateness in FIXED
        and all(rival.name in each.figures and (has_deadlines or each.answers_all(rival.name)) for each in played)
    ]
    return min(names, key=lambda name: geometric_mean([each.ratio(goodput, name) for each in played]))


def _cell(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f} {min(ratios):.3f}"
