"""`python -m loadtest.fidelity FILE...`: judge recorded traces.

Exit status: 0, 1 if a case that decides is outside, 2 if a file cannot be judged.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.fidelity.errors import FidelityError
from loadtest.fidelity.report import HEADER, details, row, say, summary
from loadtest.fidelity.suite import Verdict, judge_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.fidelity", description="Judge policies by real traces.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="traces, .json or .json.gz")
    parser.add_argument("--figures", action="store_true", help="print every figure, not only the one nearest its limit")
    parser.add_argument("--quick", action="store_true", help="a fifth of the runs, for a first impression")
    options = parser.parse_args(arguments)
    verdicts: list[Verdict] = []
    try:
        for verdict in judge_files(options.files, thin=options.quick):
            if not verdicts:
                say(HEADER)
            verdicts.append(verdict)
            say(row(verdict), *(details(verdict) if options.figures else ()))
    except FidelityError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    say(summary(verdicts))
    return int(any(verdict.fails for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
