"""Times of batches, of the network, and the choice of a replica."""

from collections import Counter

import numpy as np
import pytest

from batching.clock import MILLISECOND_NS as MS
from batching.clock import SECOND_NS
from batching.simulation import (
    Affine,
    LeastOutstanding,
    Link,
    PowerOfTwo,
    Random,
    Resampled,
    RoundRobin,
    Service,
    Table,
    capacity_per_s,
)


def times_ms(service: Service, sizes: list[int], now_ns: int = 0, instance: str = "i") -> list[float]:
    occupy = service.open(np.random.default_rng(0))
    return [(occupy(rows, now_ns, instance).ends_ns - now_ns) / MS for rows in sizes]


def test_a_table_is_linear_between_its_sizes_and_beyond_them():
    table = Table({2: 10, 4: 12, 8: 20})

    assert times_ms(Service(table), [1, 2, 3, 4, 6, 8, 10]) == [9, 10, 11, 12, 16, 20, 24]


def test_a_table_can_be_given_in_rates():
    table = Table.of_rates({1: 250, 2: 400})

    assert times_ms(Service(table), [1, 2]) == [4, 5]


def test_a_table_of_one_size_is_constant():
    assert times_ms(Service(Table({4: 7})), [1, 8]) == [7, 7]


def test_recorded_durations_come_back_as_they_were():
    recorded = Resampled({1: [4 * MS, 6 * MS], 3: [9 * MS]})

    times = times_ms(Service(recorded), [1] * 200 + [3, 2])

    assert set(times[:200]) == {4, 6}
    assert times[200:] == [9, 7]  # between the means


def test_noise_keeps_the_mean():
    times = times_ms(Service(Affine(10), noise=0.2), [1] * 20_000)

    assert np.mean(times) == pytest.approx(10, rel=0.01)
    assert np.std(np.log(times)) == pytest.approx(0.2, rel=0.03)


def test_drift_and_speed_scale_the_model_only():
    service = Service(Affine(10), pre=Affine(1), drift=((2, 1.5), (3, 0.5)), factors={"slow": 2.0})

    at = {second: times_ms(service, [1], second * SECOND_NS)[0] for second in (0, 2, 3)}
    assert at == {0: 11, 2: 16, 3: 6}
    assert times_ms(service, [1], 2 * SECOND_NS, "slow") == [31]


def test_capacity_is_the_best_rate_of_any_size():
    rng = np.random.default_rng(0)

    assert capacity_per_s(Affine(6, 1.2), 32, 2, rng) == pytest.approx(2 * 32 / 0.0444)
    assert capacity_per_s(Table.of_rates({1: 100, 4: 300, 8: 200}), 8, 1, rng) == pytest.approx(300)


def test_network_noise_keeps_the_order_of_answers():
    wire = Link(send_ms=1, first_answer=Affine(2), answer_gap_ms=0.1, jitter=0.3).open(np.random.default_rng(0))

    answers_ns = wire.answered_ns(0, 1_000, 1_000)
    entered_ns = [wire.entered_ns(0) for _ in range(5_000)]

    gaps = np.diff(answers_ns)
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(0.1 * MS, rel=0.05)
    assert np.mean(entered_ns) == pytest.approx(MS, rel=0.02)


def test_round_robin_takes_one_after_another():
    choose = RoundRobin().open(np.random.default_rng(0), 3)

    assert [choose([[], [], []]) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_a_random_router_takes_all_equally_often():
    choose = Random().open(np.random.default_rng(0), 4)

    counts = Counter(choose([[]] * 4) for _ in range(8_000))

    assert all(counts[number] == pytest.approx(2_000, rel=0.1) for number in range(4))


def test_least_outstanding_takes_the_emptiest_and_equals_in_turn():
    choose = LeastOutstanding().open(np.random.default_rng(0), 3)

    assert choose([[1], [], [1]]) == 1
    assert [choose([[], [], []]) for _ in range(3)] == [2, 0, 1]


def test_power_of_two_never_takes_the_fullest():
    choose = PowerOfTwo().open(np.random.default_rng(0), 3)

    counts = Counter(choose([[1, 2, 3], [1], [1, 2]]) for _ in range(3_000))

    assert counts[0] == 0
    assert counts[1] == pytest.approx(2_000, rel=0.1)  # in two of three pairs


@pytest.mark.parametrize("times", [{}, {0: 1.0}, {1: 0.0}])
def test_an_empty_or_impossible_table_is_refused(times):
    with pytest.raises(ValueError, match="times_ms must hold positive times by positive rows"):
        Table(times)
