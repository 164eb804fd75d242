"""How variants are compared with what they are variants of."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.export.kinds import Precision
from backends.export.parity import NO_WISHES, Bounds, Compute, Deviation, ParityReport, Scores, Wishes, measure
from tests.backends.export.builders import scores

ROWS = np.arange(1, 13, dtype=np.float32).reshape(12, 1)


def network(rows: NDArray[np.generic]) -> Scores:
    """Two classes; the first has the greater score."""
    return np.concatenate([rows, -rows], axis=1).astype(np.float32)


def report(compute: Compute, bounds: Bounds) -> ParityReport:
    return ParityReport(
        model="m",
        version=2,
        format="onnx",
        precision=Precision.FP16,
        reference="itself",
        samples="numbers",
        largest_logit=12.0,
        bounds=bounds,
        sizes=measure(compute, ROWS, network(ROWS), (1, 8)),
    )


STRICT = Bounds(max_logit_difference=0.01, min_top1_agreement=0.99)


def test_the_network_itself_keeps_every_answer() -> None:
    assert report(network, STRICT).misses() == []


def test_every_place_in_the_batch_is_compared_at_every_size() -> None:
    one, eight = measure(network, ROWS, network(ROWS), (1, 8))

    assert ([one.batch_rows, eight.batch_rows], len(one.positions), len(eight.positions)) == ([1, 8], 1, 8)
    assert (one.overall.rows, eight.overall.rows) == (12, 16)
    assert {position.rows for position in eight.positions} == {2}


def test_a_kernel_that_is_wrong_at_one_place_of_large_batches_is_found() -> None:
    def wrong_at_five(rows: NDArray[np.generic]) -> Scores:
        found = network(rows)
        found[5:6] += 0.5
        return found

    (miss,) = report(wrong_at_five, STRICT).misses()

    assert miss == "batch size 8, row 5: a score differs by 0.5, expected at most 0.01"


def test_a_lost_best_class_is_found_where_no_difference_is_bounded() -> None:
    bounds = Bounds(max_logit_difference=1e9, min_top1_agreement=0.99)

    misses = report(lambda rows: -network(rows), bounds).misses()

    assert misses[0] == "batch size 1: 0.0% of 12 rows keep their best class, expected at least 99.0%"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_miss_every_bound(bad: float) -> None:
    def overflowing(rows: NDArray[np.generic]) -> Scores:
        return np.where(rows > 10, np.float32(bad), network(rows))

    misses = report(overflowing, Bounds(max_logit_difference=1e30, min_top1_agreement=0)).misses()

    assert [miss.partition(":")[2].strip() for miss in misses] == ["a score differs by inf, expected at most 1e+30"] * 2


def test_scores_of_zero_prove_nothing() -> None:
    nothing = replace(report(network, STRICT), largest_logit=0.0)

    assert nothing.misses() == ["every score of the reference is 0, so there is nothing to compare"]


def test_a_deviation_is_of_single_scores_and_best_classes() -> None:
    found = Deviation.of(scores([1, 2], [5, 4]), scores([1.5, 2], [4, 4.5]))

    expected = Deviation(rows=2, max_logit_difference=1.0, mean_logit_difference=0.5, top1_agreement=0.5)
    assert found == expected


@pytest.mark.parametrize(
    ("precision", "difference", "agreement"),
    [("fp32", 0.01, 0.99), ("fp16", 0.2, 0.95), ("bf16", 1.0, 0.9), ("int8", 5.0, 0.9)],
)
def test_bounds_depend_on_the_precision_and_the_largest_score(
    precision: str, difference: float, agreement: float
) -> None:
    bounds = NO_WISHES.bounds(Precision(precision), scores([-10, 3]))

    assert bounds == Bounds(max_logit_difference=pytest.approx(difference), min_top1_agreement=agreement)


def test_bounds_that_are_given_hold() -> None:
    wishes = Wishes(max_logit_difference=0.0, min_top1_agreement=0.0)

    assert wishes.bounds(Precision.FP32, scores([1.0])) == Bounds(max_logit_difference=0.0, min_top1_agreement=0.0)


def test_a_report_is_a_json_document() -> None:
    plain = json.loads(json.dumps(replace(report(network, STRICT), notes=("a note",)).as_json()))

    assert (plain["precision"], plain["notes"], len(plain["sizes"][1]["positions"])) == ("fp16", ["a note"], 8)
