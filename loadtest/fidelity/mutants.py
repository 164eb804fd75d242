"""`python -m loadtest.fidelity.mutants FILE...`: would the suite notice a wrong policy?

Judges the Triton traces with the right policy and with wrong ones, each of which breaks one rule, and prints how many
cases of each family are outside. A fifth of the suite's runs is enough for that.

Exit status: 0, 1 if the right policy is caught or a wrong one is not, 2 if a file cannot be judged.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from batching.policies.triton import TritonExperiments
from loadtest.fidelity.errors import FidelityError
from loadtest.fidelity.reader import read
from loadtest.fidelity.report import say
from loadtest.fidelity.suite import Verdict, judge_files
from loadtest.fidelity.traces import Server

RIGHT = "as Triton does"
MUTANTS: Mapping[str, TritonExperiments] = MappingProxyType(
    {
        RIGHT: TritonExperiments(),
        "no merge at dequeue": TritonExperiments(merge_at_dequeue=False),
        "one staged payload": TritonExperiments(staged_payloads_per_instance=1),
        "unlimited staged payloads": TritonExperiments(staged_payloads_per_instance=None),
        "late binding everywhere": TritonExperiments(bind="late"),
        "prefetch with queue policies": TritonExperiments(bind="prefetch"),
        "every arrival wakes": TritonExperiments(every_arrival_wakes=True),
        "batcher before dequeue": TritonExperiments(dequeue_first=False),
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.fidelity.mutants", description="Judge wrong policies.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="traces, .json or .json.gz")
    parser.add_argument("--full", action="store_true", help="all runs of the suite, not a fifth of them")
    options = parser.parse_args(arguments)
    try:
        files = [path for path in options.files if read(path).server is Server.TRITON]
        caught = _table(files, thin=not options.full) if files else {}
    except FidelityError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not files:
        sys.stderr.write("none of these traces is of Triton, whose rule the wrong policies change\n")
        return 2
    missed = [name for name in MUTANTS if caught[name] == (name == RIGHT)]
    say(*(f"{name}: {'caught' if name == RIGHT else 'not caught'}" for name in missed))
    say(f"{len(MUTANTS) - 1 - len(set(missed) - {RIGHT})} of {len(MUTANTS) - 1} wrong policies caught")
    return int(bool(missed))


def _table(files: Sequence[Path], *, thin: bool) -> Mapping[str, bool]:
    """Print a row for each mutant; whether it was caught."""
    caught: dict[str, bool] = {}
    for name, experiments in MUTANTS.items():
        verdicts = list(judge_files(files, experiments=experiments, thin=thin))
        cases = Counter(verdict.family for verdict in verdicts)
        if not caught:
            say(_row("cases outside", [f"{letter} ({cases[letter]})" for letter in sorted(cases)]))
        outside = Counter(verdict.family for verdict in verdicts if verdict.fails)
        say(_row(name, [outside[letter] or "-" for letter in sorted(cases)]))
        caught[name] = _any_fails(verdicts)
    return caught


def _any_fails(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict.fails for verdict in verdicts)


def _row(name: str, cells: Sequence[object]) -> str:
    return f"{name:<30}" + "".join(f"{cell!s:>9}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
