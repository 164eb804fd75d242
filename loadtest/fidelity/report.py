"""The table: one row a case, a last line that counts."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from loadtest.fidelity.judgement import Finding
from loadtest.fidelity.suite import Verdict

_ROW = "{:<36} {:<6} {:<10} {:>9} {:>9} {:>8} {:>7}  {:<10} {:>11} {:>11}"
HEADER = _ROW.format(
    "case", "family", "figure", "real", "ours", "distance", "limit", "verdict", "req/s band", "batch band"
)


def say(*lines: str) -> None:
    """Print lines at once: a table grows while the cases are judged."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def row(verdict: Verdict) -> str:
    """The figure nearest to its limit, and how far the whole ensemble spreads (ours over real)."""
    judgement = verdict.judgement
    return _ROW.format(
        verdict.case,
        verdict.family,
        *_cells(judgement.worst),
        _word(verdict),
        "{:.2f}-{:.2f}".format(*judgement.rate_band),
        "{:.2f}-{:.2f}".format(*judgement.batch_band),
    )


def details(verdict: Verdict) -> Iterator[str]:
    """One line for each figure that was asked for."""
    for finding in verdict.judgement.findings:
        yield _ROW.format("", "", *_cells(finding), "", "", "").rstrip()


def summary(verdicts: Iterable[Verdict]) -> str:
    """The last line."""
    counts = Counter(_word(verdict) for verdict in verdicts)
    return f"{counts['inside']} inside, {counts['OUTSIDE']} outside, {counts['shown']} shown only"


def _cells(finding: Finding) -> tuple[str, ...]:
    return (
        finding.measure.value,
        f"{finding.real:.4g}",
        f"{finding.ours:.4g}",
        f"{finding.distance:.3f}",
        f"{finding.limit:.3f}",
    )


def _word(verdict: Verdict) -> str:
    if not verdict.decides:
        return "shown"
    return "inside" if verdict.judgement.is_inside else "OUTSIDE"
