"""Whether a variant of a network gives the answers of the network: at every batch size, at every place in the batch.

Half precision that overflows, a batch size that was frozen into a graph, kernels that are wrong from eight rows up: all
of them show in the scores, some of them only at one size or one place.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from backends.errors import ExportError
from backends.export.kinds import Precision

Scores = NDArray[np.float32]
"""Shape (rows, classes)."""

Compute = Callable[[NDArray[np.generic]], Scores]
"""Runs rows as one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a variant must keep to be written.

    Attributes:
        max_logit_difference: Largest difference of one score, absolute.
        min_top1_agreement: Share of the rows with the same best class, 0..1, at each batch size.
    """

    max_logit_difference: float
    min_top1_agreement: float


# Relative to the largest score of the reference. Half precision has steps of 5e-4 and bfloat16 of 4e-3, of which
# networks of a hundred layers add up ten to twenty. With 8 bits single scores may be far off while the order stays.
_RELATIVE_DIFFERENCE = {Precision.FP32: 1e-3, Precision.FP16: 0.02, Precision.BF16: 0.1, Precision.INT8: 0.5}
_AGREEMENT = {Precision.FP32: 0.99, Precision.FP16: 0.95, Precision.BF16: 0.9, Precision.INT8: 0.9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Bounds as far as they are given; the others have defaults by precision."""

    max_logit_difference: float | None = None
    min_top1_agreement: float | None = None

    def bounds(self, precision: Precision, reference: Scores) -> Bounds:
        """The bounds for a variant; the default difference is relative to the largest of the reference's scores."""
        difference, agreement = self.max_logit_difference, self.min_top1_agreement
        if difference is None:
            difference = _RELATIVE_DIFFERENCE[precision] * float(np.abs(reference).max())
        return Bounds(
            max_logit_difference=difference,
            min_top1_agreement=_AGREEMENT[precision] if agreement is None else agreement,
        )


NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far some rows are from the reference.

    Attributes:
        rows: How many were compared.
        max_logit_difference: Largest difference of one score; infinite if one is no number.
        mean_logit_difference: On average.
        top1_agreement: Share of the rows with the same best class.
    """

    rows: int
    max_logit_difference: float
    mean_logit_difference: float
    top1_agreement: float

    @staticmethod
    def of(found: Scores, reference: Scores) -> "Deviation":
        """Compare scores of the same rows."""
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            differences = np.abs(found.astype(np.float64) - reference)
        differences[~np.isfinite(differences)] = np.inf
        agreement = np.mean(found.argmax(axis=1) == reference.argmax(axis=1))
        return Deviation(
            rows=len(found),
            max_logit_difference=float(differences.max()),
            mean_logit_difference=float(differences.mean()),
            top1_agreement=float(agreement),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParity:
    """One batch size: all rows together, and those at each place in the batch."""

    batch_rows: int
    overall: Deviation
    positions: tuple[Deviation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """What was compared with what, and how it came out.

    Attributes:
        model: Its name.
        version: Its number.
        format: Of the file, e.g. ``onnx``.
        precision: Of the variant.
        reference: What gave the scores that count as right.
        samples: What was classified.
        largest_logit: The largest of the reference's scores.
        bounds: What the variant had to keep.
        sizes: By batch size, ascending.
        preprocessing: The reference on rows that its own library prepared, against this variant on rows as they are
            prepared when it is served; None where there are no photos, or no such library. No bound applies.
        notes: What the reader should know.
    """

    model: str
    version: int
    format: str
    precision: Precision
    reference: str
    samples: str
    largest_logit: float
    bounds: Bounds
    sizes: tuple[SizeParity, ...]
    preprocessing: Deviation | None = None
    notes: tuple[str, ...] = ()

    def misses(self) -> Sequence[str]:
        """The bounds that are not kept, in sentences; empty if all are."""
        found = [] if self.largest_logit else ["every score of the reference is 0, so there is nothing to compare"]
        for size in self.sizes:
            worst = max(range(len(size.positions)), key=lambda at: size.positions[at].max_logit_difference)
            difference = size.positions[worst].max_logit_difference
            if not difference <= self.bounds.max_logit_difference:
                found.append(
                    f"batch size {size.batch_rows}, row {worst}: a score differs by {difference:.4g}, "
                    f"expected at most {self.bounds.max_logit_difference:.4g}"
                )
            if not size.overall.top1_agreement >= self.bounds.min_top1_agreement:
                found.append(
                    f"batch size {size.batch_rows}: {size.overall.top1_agreement:.1%} of {size.overall.rows} rows keep "
                    f"their best class, expected at least {self.bounds.min_top1_agreement:.1%}"
                )
        return found

    def as_json(self) -> dict[str, object]:
        """Values for a JSON document."""
        return asdict(self)


class MissedError(ExportError):
    """A variant misses what it must keep.

    Attributes:
        report: What was measured.
    """

    def __init__(self, report: ParityReport) -> None:
        where = f"{report.model}/{report.version}: the {report.precision} variant is not written"
        super().__init__(f"{where}: {'; '.join(report.misses())}")
        self.report = report


def measure(
    compute: Compute, samples: NDArray[np.generic], reference: Scores, batch_sizes: Sequence[int]
) -> tuple[SizeParity, ...]:
    """Run the samples in batches of each size; the last batch is filled with samples from the beginning.

    Args:
        compute: The variant.
        samples: Shape (rows, *row shape), at least one.
        reference: The scores that count as right, of the same rows.
        batch_sizes: Each at least 1.
    """
    return tuple(_at_size(compute, samples, reference, rows) for rows in batch_sizes)


def _at_size(compute: Compute, samples: NDArray[np.generic], reference: Scores, rows: int) -> SizeParity:
    batches = -(-len(samples) // rows)
    order = np.arange(batches * rows) % len(samples)
    found = np.concatenate([compute(samples[batch]) for batch in order.reshape(batches, rows)])
    right = reference[order]
    return SizeParity(
        batch_rows=rows,
        overall=Deviation.of(found, right),
        positions=tuple(Deviation.of(found[at::rows], right[at::rows]) for at in range(rows)),
    )
