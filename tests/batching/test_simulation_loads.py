"""Generated loads: their rates, shapes and seeds."""

from itertools import islice, pairwise, takewhile

import numpy as np
import pytest

from batching.clock import MILLISECOND_NS, SECOND_NS
from batching.simulation import (
    Arrival,
    Bursty,
    Choice,
    ClosedLoop,
    Constant,
    Diurnal,
    During,
    Exponential,
    Load,
    Mixture,
    Poisson,
    Requests,
    uniform,
)


def first(load: Load, count: int, seed: int = 0) -> list[Arrival]:
    return list(islice(load.arrivals(np.random.default_rng(seed)), count))


def until(load: Load, end_s: float, seed: int = 0) -> np.ndarray:
    arrivals = load.arrivals(np.random.default_rng(seed))
    return np.array([arrival.at_ns for arrival in takewhile(lambda a: a.at_ns < end_s * SECOND_NS, arrivals)])


OPEN = [Poisson(500), Bursty(rate_per_s=500, mean_on_s=0.04), Diurnal(rate_per_s=500, period_s=10)]


@pytest.mark.parametrize("load", OPEN, ids=lambda load: type(load).__name__)
def test_an_open_load_is_endless_ordered_and_equal_for_equal_seeds(load):
    requests = first(load, 10_000, seed=1)

    assert all(earlier.at_ns <= later.at_ns for earlier, later in pairwise(requests))
    assert len({request.name for request in requests}) == 10_000
    assert requests == first(load, 10_000, seed=1)
    assert requests != first(load, 10_000, seed=2)


@pytest.mark.parametrize("load", OPEN, ids=lambda load: type(load).__name__)
def test_an_open_load_keeps_its_mean_rate(load):
    times_ns = until(load, 200)

    assert len(times_ns) / 200 == pytest.approx(500, rel=0.05)


def test_a_poisson_load_varies_like_its_mean():
    counts, _ = np.histogram(until(Poisson(500), 200), bins=2_000, range=(0, 200 * SECOND_NS))

    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.1)


def test_a_bursty_load_has_two_rates_in_the_given_ratio_and_share():
    load = Bursty(rate_per_s=2_000, mean_on_s=0.5, ratio=8, on_share=0.25)

    counts, _ = np.histogram(until(load, 400), bins=8_000, range=(0, 400 * SECOND_NS))

    high, low = counts[counts > 150], counts[counts <= 150]  # per 50 ms: 8 x 36 while on, 36 while off
    assert high.mean() / low.mean() == pytest.approx(8, rel=0.1)
    assert len(high) / 8_000 == pytest.approx(0.25, abs=0.05)


def test_a_diurnal_load_swings_once_in_a_period():
    counts, _ = np.histogram(until(Diurnal(rate_per_s=1_000, period_s=40, amplitude=0.8), 40), bins=4)

    # quarters of sin: mean 2/pi above or below
    assert counts / 10_000 == pytest.approx([1 + 1.6 / np.pi] * 2 + [1 - 1.6 / np.pi] * 2, rel=0.05)


def test_properties_of_requests_follow_their_weights():
    properties = Requests(
        label="r", rows=uniform(1, 4), patience_ns=Choice({5: 1, None: 3}), priority=Choice({1: 0.9, 2: 0.1})
    )

    requests = first(Poisson(100, properties), 20_000)

    rows = np.bincount([request.rows for request in requests]) / 20_000
    assert rows == pytest.approx([0, 0.25, 0.25, 0.25, 0.25], abs=0.02)
    assert sum(request.patience_ns == 5 for request in requests) / 20_000 == pytest.approx(0.25, abs=0.02)
    assert sum(request.priority == 2 for request in requests) / 20_000 == pytest.approx(0.1, abs=0.02)
    assert [request.name for request in requests[:2]] == ["r0", "r1"]


def test_another_part_of_a_mixture_does_not_change_the_first():
    web, other = Poisson(50, Requests(label="web")), Poisson(20, Requests(label="other"))

    alone = first(Mixture([web]), 100)
    mixed = first(Mixture([web, other]), 1_000)

    assert [request for request in mixed if request.name.startswith("web")][:100] == alone
    assert all(earlier.at_ns <= later.at_ns for earlier, later in pairwise(mixed))


def test_a_load_can_be_moved_and_cut():
    load = During(load=Poisson(1_000), from_s=2, to_s=3)

    times_s = [request.at_ns / SECOND_NS for request in first(load, 10_000)]

    assert 2 <= min(times_s) < 2.05
    assert 2.95 < max(times_s) < 3
    assert len(times_s) == pytest.approx(1_000, rel=0.1)


def test_callers_of_a_closed_loop_start_at_their_times_and_think():
    load = ClosedLoop(clients=3, starts_ns=(5, 2), think=Constant(0.001))

    requests = first(load, 10)

    assert [request.at_ns for request in requests] == [0, 2, 5]  # the third at once
    later = requests[0].sender.next_request(1_000, is_answered=True)
    assert later.at_ns == 1_000 + MILLISECOND_NS


def test_exponential_times_have_their_mean():
    times = list(islice(Exponential(0.02).stream_ns(np.random.default_rng(0)), 20_000))

    assert np.mean(times) == pytest.approx(0.02 * SECOND_NS, rel=0.03)
    assert np.std(times) == pytest.approx(0.02 * SECOND_NS, rel=0.05)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Poisson(0), "rate_per_s must be a positive number, found 0"),
        (lambda: Bursty(rate_per_s=1, mean_on_s=1, on_share=1), "on_share must be between 0 and 1, found 1"),
        (lambda: Bursty(rate_per_s=1, mean_on_s=0), "mean_on_s must be positive"),
        (lambda: Diurnal(rate_per_s=1, period_s=1, amplitude=2), "amplitude must be between 0 and 1, found 2"),
        (lambda: Diurnal(rate_per_s=1, period_s=0), "period_s must be positive, found 0"),
        (lambda: ClosedLoop(clients=-1), "clients must not be negative, found -1"),
        (lambda: ClosedLoop(clients=1, retry_ns=0), "retry_ns must be at least 1, found 0"),
        (lambda: ClosedLoop(clients=1, changes=((2, 1), (1, 2))), "changes must be in order of time"),
        (lambda: Choice({1: 0}), "weights must be positive"),
    ],
)
def test_impossible_loads_are_refused_in_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()
