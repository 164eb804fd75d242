"""`python -m loadtest.policy_matrix`: play, print, and say by the exit status whether all promises were kept."""

import argparse
import os
import sys
from collections.abc import Sequence

from batching.clock import SECOND_NS, MonotonicClock
from loadtest.policy_matrix import report
from loadtest.policy_matrix.designed import designed
from loadtest.policy_matrix.held_out import SEED, held_out
from loadtest.policy_matrix.promises import SAMPLE, Limits, verdicts
from loadtest.policy_matrix.rivals import rivals
from loadtest.policy_matrix.runs import Plan, Played, play_all
from loadtest.policy_matrix.scenarios import REQUESTS, Scenario

_SAMPLED = (
    "poisson a10g N1 30", "poisson a10g N8 70", "poisson cpu N1 80", "poisson a10g N1 90/6", "poisson a10g N1 110/3",
    "bursty a10g N1 70/8", "bursty a10g N2 70/5", "closed a10g N1 c8", "closed a10g N1 c32", "closed a10g N2 c8",
)  # fmt: skip
_SAMPLE_RIVALS = frozenset({
    "greedy", "triton", "triton 5 ms x 32", "torchserve 5 ms x 8", "bentoml 20 ms", "greedy, expiry",
    "triton 1 ms x 8, half", "nexus",
})  # fmt: skip


def main() -> int:
    """Run it. Returns the exit status."""
    options = _options()
    if options.sample:
        scenarios = [scenario for scenario in designed() if scenario.name in _SAMPLED]
        plan, limits = Plan((1, 2), 2, _SAMPLE_RIVALS), SAMPLE
    else:
        scenarios = [*designed(), *held_out(options.held_out_seed)]
        plan, limits = Plan(tuple(range(1, options.seeds + 1)), min(2, options.seeds)), Limits()
    report.say(*_heading(scenarios, plan))
    played = _play(scenarios, plan, options.processes)
    found = list(verdicts(played, limits))
    for section in (report.families, report.fixed_settings, report.losses, report.cold_start):
        report.say("", *section(played))
    report.say("", *report.promises(found))
    return 0 if all(verdict.kept for verdict in found) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.policy_matrix", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="a few scenarios against a few rivals, generous limits")
    parser.add_argument("--seeds", type=_positive, default=10, help="runs of shoal and of the rivals that matter")
    parser.add_argument(
        "--held-out-seed", type=int, default=SEED, help="of the generated scenarios; tune on another one"
    )
    parser.add_argument("--processes", type=_positive, default=os.cpu_count() or 1, help="that play at once")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {number}")
    return number


def _heading(scenarios: Sequence[Scenario], plan: Plan) -> list[str]:
    settings = len(plan.only or rivals(has_deadlines=True))
    return [
        f"{len(scenarios)} scenarios, at least {REQUESTS} simulated requests a run, the first tenth not counted.",
        f"Up to {settings} rival settings on {plan.screening} seeds; shoal, and the best rivals by each measure, on "
        f"{len(plan.seeds)}.",
    ]


def _play(scenarios: Sequence[Scenario], plan: Plan, processes: int) -> list[Played]:
    clock = MonotonicClock()
    began_ns = clock.now_ns()
    done = {}
    for each in play_all(scenarios, plan, processes):
        done[each.scenario.name] = each
        if len(done) % 10 == 0:
            report.say(f"{len(done)} of {len(scenarios)} after {(clock.now_ns() - began_ns) // SECOND_NS} s")
    report.say(f"Played in {(clock.now_ns() - began_ns) // SECOND_NS} s on {processes} processes.")
    return [done[scenario.name] for scenario in scenarios]


if __name__ == "__main__":
    sys.exit(main())
