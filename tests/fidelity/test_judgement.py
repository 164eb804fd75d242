"""How runs are held against a recorded one."""

from dataclasses import replace

import pytest

from loadtest.fidelity.judgement import judge
from loadtest.fidelity.limits import Family, Limit, Measure
from loadtest.fidelity.recordings import Figures

REAL = Figures(
    answers_per_s=100.0,
    mean_batch_rows=8.0,
    mean_queue_ms=10.0,
    mean_ms=20.0,
    p50_ms=20.0,
    p99_ms=30.0,
    refused_share=0.5,
    histogram={8: 100},
)
RATE = Family(name="X", typical=(Limit(Measure.RATE, 0.05),))


def runs(**changes):
    """One run for each value of the one field that is changed."""
    ((field, values),) = changes.items()
    return [replace(REAL, **{field: value}) for value in values]


def test_the_typical_figure_is_the_median_of_the_runs():
    judgement = judge(RATE, REAL, runs(answers_per_s=[90, 104, 150]))

    assert judgement.is_inside
    assert (judgement.worst.real, judgement.worst.ours) == (100, 104)
    assert judgement.worst.distance == pytest.approx(0.04)
    assert judgement.rate_band == (0.9, 1.5)


def test_a_median_beyond_its_limit_is_outside():
    assert not judge(RATE, REAL, runs(answers_per_s=[106])).is_inside


def test_the_figure_farthest_beyond_its_limit_is_the_worst():
    asked = Family(name="X", typical=(Limit(Measure.RATE, 0.05), Limit(Measure.P50, 0.01)))

    worst = judge(asked, REAL, [replace(REAL, answers_per_s=104.0, p50_ms=20.3)]).worst

    assert worst.measure is Measure.P50
    assert worst.severity == pytest.approx(1.5)


def test_the_best_run_must_keep_all_its_limits_at_once():
    asked = Family(name="X", best=(Limit(Measure.RATE, 0.05), Limit(Measure.PATTERN, 0.1)))
    right_pattern = replace(REAL, answers_per_s=150.0)
    right_rate = replace(REAL, histogram={16: 1})

    assert not judge(asked, REAL, [right_pattern, right_rate]).is_inside
    assert judge(asked, REAL, [right_pattern, REAL, right_rate]).is_inside


def test_no_run_may_be_much_slower_even_if_another_one_fits():
    asked = Family(name="X", best=(Limit(Measure.PATTERN, 0.1),), slowest=0.08)

    worst = judge(asked, REAL, runs(answers_per_s=[100.0, 90.0])).worst

    assert (worst.measure, worst.ours) == (Measure.SLOWEST, 90.0)
    assert worst.distance == pytest.approx(0.1)
    assert judge(asked, REAL, runs(answers_per_s=[95.0, 130.0])).is_inside


def test_a_floor_forgives_what_is_small_in_itself():
    asked = Family(name="X", typical=(Limit(Measure.QUEUE, 0.08, floor=0.6),))
    quick = replace(REAL, mean_queue_ms=0.15)

    assert judge(asked, quick, [replace(REAL, mean_queue_ms=0.7)]).is_inside
    assert not judge(asked, quick, [replace(REAL, mean_queue_ms=0.8)]).is_inside
    assert not judge(asked, REAL, [replace(REAL, mean_queue_ms=10.9)]).is_inside


def test_a_figure_that_the_server_did_not_report_is_not_asked():
    asked = Family(name="X", typical=(*RATE.typical, Limit(Measure.QUEUE, 0.1)))

    judgement = judge(asked, replace(REAL, mean_queue_ms=None), [REAL])

    assert [finding.measure for finding in judgement.findings] == [Measure.RATE]


@pytest.mark.parametrize(
    ("limit", "ours", "distance"),
    [
        pytest.param(Limit(Measure.REFUSED, 0.03), {"refused_share": 0.48}, 0.02, id="refusals-absolute"),
        pytest.param(Limit(Measure.EMD, 0.04), {"histogram": {9: 1}}, 1 / 8, id="emd-in-mean-batches"),
        pytest.param(Limit(Measure.BINS, 0.04), {"histogram": {5: 1, 9: 1}}, 0.5, id="bins"),
        pytest.param(Limit(Measure.P99, 0.1), {"p99_ms": 27.0}, 0.1, id="tail-relative"),
        pytest.param(Limit(Measure.MEAN_BATCH, 0.1), {"mean_batch_rows": 10.0}, 0.25, id="mean-batch-relative"),
    ],
)
def test_each_figure_has_its_own_distance(limit, ours, distance):
    judgement = judge(Family(name="X", typical=(limit,)), REAL, [replace(REAL, **ours)])

    assert judgement.worst.distance == pytest.approx(distance)
