"""What the shoal policy learns, on sequences made by hand. Times in ns."""

import pytest

from batching.core.workers import Worker
from batching.policies.shoal_deadlines import Refusals
from batching.policies.shoal_estimators import Attendance, Returns, ServiceTimes
from batching.policies.shoal_fleet import Fleet


def learned(*batches: tuple[int, float]) -> ServiceTimes:
    times = ServiceTimes({})
    for rows, took_ns in batches:
        times.add(rows, took_ns)
    return times


def test_a_size_costs_what_its_first_batch_took() -> None:
    times = learned((4, 1000.0))

    assert times.of(4) == 1000.0


def test_a_size_between_two_seen_ones_lies_on_the_line_between_them() -> None:
    times = learned((2, 1000.0), (6, 3000.0))

    assert [times.of(rows) for rows in (3, 4, 5)] == [1500.0, 2000.0, 2500.0]


def test_a_size_below_those_seen_is_hoped_to_cost_in_proportion_so_that_it_gets_tried() -> None:
    times = learned((8, 1000.0))

    assert [times.of(rows) for rows in (2, 4)] == [250.0, 500.0]


def test_a_row_above_the_largest_size_seen_costs_half_of_what_one_costs_there() -> None:
    times = learned((4, 1000.0))

    assert times.of(8) == 1500.0


def test_nothing_known_makes_all_sizes_equally_long() -> None:
    times = learned()

    assert times.of(1) == times.of(1000)


def test_one_row_more_is_never_much_shorter() -> None:
    times = learned((4, 1000.0), (5, 500.0))

    assert times.of(5) == 900.0


def test_the_first_ten_values_of_a_size_are_averaged() -> None:
    times = learned(*[(1, 1000.0 + number % 2) for number in range(10)])

    assert times.of(1) == pytest.approx(1000.5)


def test_later_values_count_a_tenth() -> None:
    times = learned(*[(1, 1000.0)] * 50, (1, 1100.0))

    assert times.of(1) == pytest.approx(1010.0)


def test_a_slower_size_makes_the_others_a_little_slower_too() -> None:
    times = learned((1, 1000.0), (4, 2000.0), (4, 2200.0))

    assert times.of(1) == pytest.approx(1005.0)


def test_one_stray_value_moves_the_other_sizes_by_five_percent_at_most() -> None:
    times = learned((1, 1000.0), (4, 2000.0), (4, 200_000.0))

    assert times.of(1) == pytest.approx(1050.0)


def test_three_batches_in_a_row_far_too_slow_rescale_every_size() -> None:
    times = learned(*[(rows, 1000.0 * rows) for rows in (1, 2, 4, 8)] * 20)

    for rows in (1, 2, 4):
        times.add(rows, 4000.0 * rows)

    assert times.of(8) == pytest.approx(32_000.0, rel=0.15)


def test_far_off_batches_on_both_sides_are_noise_and_rescale_nothing() -> None:
    times = ServiceTimes({1: 1000.0, 4: 1600.0})

    for took_ns in (3200.0, 800.0) * 3:
        times.add(4, took_ns)

    assert times.of(1) == pytest.approx(1000.0, rel=0.1)


def test_the_error_becomes_the_mean_deviation_of_steady_noise() -> None:
    times = learned((1, 1000.0))

    for number in range(400):
        times.add(1, 1000.0 * (1.1 if number % 2 else 0.9))

    assert times.error == pytest.approx(0.1, rel=0.15)


def test_a_copy_knows_the_same_and_learns_for_itself() -> None:
    times = learned((1, 1000.0), (4, 2000.0))

    copy = times.copy()
    copy.add(4, 2600.0)

    assert (copy.of(4), times.of(4)) == (pytest.approx(2200.0), 2000.0)


def test_callers_that_always_come_back_make_the_house_steady() -> None:
    house = Attendance()

    for _ in range(9):
        house.add(8)

    assert house.is_steady
    assert house.mean_rows == 8


def test_a_house_that_has_been_seen_eight_times_is_not_judged_yet() -> None:
    house = Attendance()

    for _ in range(8):
        house.add(8)

    assert not house.is_steady


def test_a_house_that_varies_like_random_arrivals_is_not_steady() -> None:
    house = Attendance()

    for rows in (4, 11, 6, 9, 3, 12, 8, 10, 5, 7) * 4:
        house.add(rows)

    assert not house.is_steady


def come_back(returns: Returns, count: int, delay_ns: int, window_ns: float = 1e9) -> int:
    now_ns = 0
    for number in range(count):
        now_ns = number * 10_000_000
        returns.answered(1, now_ns)
        returns.arrived(1, now_ns + delay_ns, window_ns)
    return now_ns


def test_a_caller_is_expected_until_four_mean_deviations_after_the_usual_time() -> None:
    returns = Returns()
    now_ns = come_back(returns, 200, 500_000) + 10_000_000

    returns.answered(3, now_ns)

    assert returns.expected(now_ns) == 3
    assert returns.latest_ns(3) == pytest.approx(now_ns + 500_000, abs=5_000)
    assert returns.expected(now_ns + 600_000) == 0


def test_callers_that_are_back_at_once_are_given_what_a_timer_can_tell_apart() -> None:
    returns = Returns()
    now_ns = come_back(returns, 200, 0) + 10_000_000

    returns.answered(3, now_ns)

    assert returns.latest_ns(3) == now_ns + 50_000


def test_nobody_is_expected_before_nine_have_come_back() -> None:
    returns = Returns()
    now_ns = come_back(returns, 8, 500_000) + 10_000_000

    returns.answered(3, now_ns)

    assert returns.expected(now_ns) == 0


def test_an_arrival_long_after_all_answers_is_no_return() -> None:
    returns = Returns()
    come_back(returns, 20, 5_000, window_ns=1_000)

    returns.answered(1, 10**6)

    assert returns.expected(10**6) == 0


def test_every_row_of_a_request_is_a_return() -> None:
    returns = Returns()
    returns.answered(9, 0)
    returns.arrived(9, 500, 1e6)

    returns.answered(4, 10_000)

    assert returns.expected(10_000) == 4


def test_pressure_rises_with_refusals_and_fades_with_starts() -> None:
    refusals = Refusals()
    seen = []

    for refused_rows in (0, 2, 100, 0):
        refusals.refused(refused_rows)
        refusals.started()
        seen.append(refusals.pressure)

    assert seen == [0.0, pytest.approx(0.2), pytest.approx(0.69), pytest.approx(0.6555)]


def wait_for_probe(refusals: Refusals) -> int:
    return next(number for number in range(1, 1000) if refusals.wants_probe())


def test_probes_become_rarer_until_one_makes_its_deadline() -> None:
    refusals = Refusals()
    gaps = []

    for batch, ended_ns in ((1, 200), (2, 200), (3, 100), (4, 200)):
        gaps.append(wait_for_probe(refusals))
        refusals.probe(batch, 100)
        refusals.ended(batch, ended_ns)

    assert gaps == [8, 16, 32, 8]


def worker(name: str, device: str = "cpu", busy: int = 0, idle_since_ns: int = 0) -> Worker:
    made = Worker(name, device, 2, 8, idle_since_ns)
    made.busy = busy
    return made


def test_a_new_instance_is_taken_to_be_like_the_one_heard_of_last() -> None:
    fleet = Fleet({})

    fleet.learn("a", 4, 1000)

    assert fleet.of("b").of(4) == 1000.0


def test_a_slow_instance_is_not_used_while_a_fast_one_is_idle() -> None:
    fleet = Fleet({})
    fleet.learn("slow", 1, 4000)
    fleet.learn("fast", 1, 1000)
    fleet.learn("slow", 1, 4000)

    chosen = fleet.best([worker("slow"), worker("fast", idle_since_ns=5)])

    assert chosen.name == "fast"


def test_of_equal_instances_the_one_on_the_least_loaded_device_works() -> None:
    fleet = Fleet({})

    chosen = fleet.best([worker("a", "gpu0", busy=1), worker("b", "gpu0"), worker("c", "gpu1", idle_since_ns=9)])

    assert chosen.name == "c"


def test_of_equal_instances_on_one_device_the_one_idle_for_longest_works() -> None:
    fleet = Fleet({})

    chosen = fleet.best([worker("a", idle_since_ns=7), worker("b", idle_since_ns=3)])

    assert chosen.name == "b"


def test_an_instance_that_left_is_forgotten() -> None:
    fleet = Fleet({})
    fleet.learn("a", 1, 1000)
    fleet.learn("b", 1, 2000)

    fleet.keep([worker("b")])

    assert fleet.of("a").of(1) == fleet.of("b").of(1)
