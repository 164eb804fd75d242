"""Distances between histograms, on examples that can be worked out by hand."""

import pytest

from loadtest.fidelity.metrics import binned, earth_movers_rows, pattern_distance, total_variation


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        pytest.param({8: 10}, {8: 3}, 0.0, id="lengths-of-runs-do-not-matter"),
        pytest.param({8: 10}, {16: 10}, 1.0, id="disjoint"),
        pytest.param({8: 1, 24: 1}, {8: 3, 24: 1}, 0.25, id="a-quarter-moved"),
        pytest.param({8: 1, 24: 1}, {8: 1}, 0.5, id="a-size-is-missing"),
    ],
)
def test_total_variation_is_the_share_that_differs(one, other, distance):
    assert total_variation(one, other) == pytest.approx(distance)
    assert total_variation(other, one) == pytest.approx(distance)


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [
        pytest.param({8: 10}, {8: 3}, 0.0, id="equal"),
        pytest.param({8: 10}, {16: 10}, 8.0, id="all-moved-by-eight"),
        pytest.param({8: 1, 24: 1}, {16: 5}, 8.0, id="both-halves-moved"),
        pytest.param({1: 3, 5: 1}, {1: 1, 5: 3}, 2.0, id="half-moved-by-four"),
    ],
)
def test_earth_movers_distance_is_the_mean_way_in_rows(one, other, rows):
    assert earth_movers_rows(one, other) == pytest.approx(rows)
    assert earth_movers_rows(other, one) == pytest.approx(rows)


def test_bins_hold_four_rows_from_one_on():
    histogram = {1: 1, 4: 2, 5: 4, 8: 8, 9: 16, 32: 32}

    assert binned(histogram) == {0: 3, 1: 12, 2: 16, 7: 32}


def test_a_pattern_of_two_sizes_must_be_met_exactly():
    assert pattern_distance({15: 1, 17: 1}, {14: 1, 17: 1}) == pytest.approx(0.5)


def test_more_than_two_sizes_are_compared_in_bins():
    assert pattern_distance({13: 1, 14: 1, 17: 1}, {15: 1, 16: 1, 18: 1}) == pytest.approx(0.0)
