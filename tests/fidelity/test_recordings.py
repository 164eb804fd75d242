"""Figures of a run."""

import pytest

from loadtest.fidelity.recordings import Recording, figures
from tests.fidelity.builders import recording, steady


def test_the_figures_of_a_steady_run_are_its_constants():
    found = figures(steady(batches=100, rows=4, every_us=20_000, lasts_us=10_000), mean_queue_ms=1.5)

    assert found.answers_per_s == pytest.approx(200, rel=0.01)
    assert found.mean_batch_rows == 4
    assert (found.p50_ms, found.p99_ms) == (11.0, 11.0)
    assert found.histogram == {4: 80}
    assert found.mean_queue_ms == 1.5


def test_the_first_twenty_batches_are_not_counted():
    start = [(number * 10_000, number * 10_000 + 5_000, 1) for number in range(20)]
    rest = [(number * 10_000, number * 10_000 + 5_000, 8) for number in range(20, 80)]
    requests = [(start_us, 5_000, 200) for start_us, _, rows in start + rest for _ in range(rows)]

    assert figures(recording(requests, start + rest), None).histogram == {8: 60}


def test_no_more_than_two_seconds_are_not_counted():
    run = steady(batches=60, rows=1, every_us=500_000, lasts_us=10_000)

    assert figures(run, None).histogram == {1: 60 - 4}


def test_a_short_run_loses_at_most_a_third():
    run = steady(batches=9, rows=2, every_us=20_000, lasts_us=10_000)

    assert figures(run, None).histogram == {2: 6}


def test_refused_requests_count_apart_and_have_no_latency():
    batches = [(number * 10_000, number * 10_000 + 5_000, 1) for number in range(90)]
    answered = [(start_us, 5_000, 200) for start_us, _, _ in batches]
    refused = [(start_us + 1, 200_000, 503) for start_us, _, _ in batches for _ in range(3)]

    found = figures(recording(answered + refused, batches), None)

    assert found.refused_share == pytest.approx(0.75, abs=0.01)
    assert found.p99_ms == 5.0
    assert found.answers_per_s == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("requests", "batches", "words"),
    [
        pytest.param([(0, -1, 200)], [(0, 5, 1)], "negative", id="latency-runs-backwards"),
        pytest.param([(0, 1, 200)], [(5, 0, 1)], "negative", id="batch-ends-before-it-starts"),
        pytest.param([(0, 1, 200)], [(0, 5, 0)], "empty", id="empty-batch"),
        pytest.param([(0, 1, 503)], [(0, 5, 1)], "no request has http_status 200", id="nothing-answered"),
    ],
)
def test_an_impossible_run_is_refused(requests, batches, words):
    with pytest.raises(ValueError, match=words):
        recording(requests, batches)


def test_rows_are_put_into_order_of_time():
    run = recording([(5, 9, 200), (1, 9, 200)], [(7, 9, 1), (3, 4, 1)])

    assert isinstance(run, Recording)
    assert run.requests[:, 0].tolist() == [1, 5]
    assert run.batches[:, 0].tolist() == [3, 7]
