"""BentoML's dispatcher against worked examples of its rule (times in us; a = 2 ms, b = 3 ms, largest batch 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.commands import Start
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.bentoml import BentoML, BentoMLSettings
from batching.policies.bentoml_optimizer import Optimizer
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import arrivals, simulate, starts

MILLISECOND_NS = 1000 * MICROSECOND_NS
SECOND_NS = 1000 * MILLISECOND_NS
L_MS = 60_000


def bentoml(wait_s: float = 0.0, largest: int = 8, latency_ms: int = L_MS) -> BentoML:
    settings = BentoMLSettings(max_batch_size=largest, max_latency_ms=latency_ms, trained=(0.002, 0.003, wait_s))
    return BentoML(settings)


def untrained(largest: int = 8, latency_ms: int = L_MS) -> BentoML:
    return BentoML(BentoMLSettings(max_batch_size=largest, max_latency_ms=latency_ms))


def play(policy: BentoML, load: list[Arrival], base_us: int, row_us: int) -> Outcome:
    limits = Limits(max_batch_rows=8)
    return Simulation(Scheduler(policy, limits), lambda rows: (base_us + row_us * rows) * MICROSECOND_NS).run(load)


def shed(outcome: Outcome) -> str:
    """`b@3100`: who was shed when, in us."""
    assert {reason for _, _, reason in outcome.dropped} <= {"overloaded"}
    return " ".join(f"{name}@{at_ns // MICROSECOND_NS}" for name, at_ns, _ in outcome.dropped)


def every_us(period_us: int, count: int) -> list[Arrival]:
    return [Arrival(name=f"r{number}", at_ns=number * period_us * MICROSECOND_NS) for number in range(count)]


@pytest.mark.parametrize(
    ("policy", "load", "expected"),
    [
        pytest.param(bentoml(), "a@0", "0:a", id="B1-an-idle-server-starts-at-once"),
        pytest.param(bentoml(0.010), "a@0", "7000:a", id="B2-waiting-is-worth-it"),
        pytest.param(bentoml(0.020), "a@0 b@5000", "12000:ab", id="B3-the-newest-counts"),
        pytest.param(bentoml(), "a@0 b@500 c@700", "0:a 5500:bc", id="B4-the-grid-begins-with-who-waits-first"),
        pytest.param(
            bentoml(0.100, largest=4), "a@0 b@100 c@200 d@300 e@400", "1000:abcd 93000:e", id="B5-full-at-the-next-tick"
        ),
        pytest.param(bentoml(largest=4), "a@0 b@100x3 c@200x3", "0:a 5100:bc 16100:c", id="B6-splits-by-rows"),
        pytest.param(bentoml(largest=4), "a@0x7", "0:a 11000:a", id="splits-what-is-larger-than-a-batch"),
        pytest.param(bentoml(), "a@0#p b@100#p c@200#q", "0:a 5100:b 10100:c", id="never-mixes-shapes"),
    ],
)
def test_batches_are_those_of_the_worked_example(policy, load, expected):
    outcome = play(policy, arrivals(load), 3000, 2000)

    assert starts(outcome) == expected
    assert not outcome.dropped


@pytest.mark.parametrize(
    ("service_us", "load", "expected", "expected_shed"),
    [
        pytest.param((3000, 2000), "a@0 b@100 c@200 d@300", "0:a 5100:cd", "b@3100", id="B7-the-estimate-is-too-long"),
        pytest.param((30_000, 0), "a@0 b@100", "0:a", "b@12100", id="B8-a-lone-one-has-waited-too-long"),
    ],
)
def test_who_cannot_be_answered_in_time_is_shed(service_us, load, expected, expected_shed):
    outcome = play(bentoml(latency_ms=12), arrivals(load), *service_us)

    assert starts(outcome) == expected
    assert shed(outcome) == expected_shed


def test_a_batch_cut_by_rows_takes_the_first_rows_of_a_request():
    outcome = play(bentoml(largest=4), arrivals("a@0 b@100x3 c@200x3"), 3000, 2000)

    parts = [command.parts for _, command in outcome.commands if isinstance(command, Start)]
    assert parts == [None, ((0, 3), (0, 1)), ((1, 2),)]


def test_the_training_waits_for_two_and_then_for_three():
    outcome = play(untrained(), every_us(20_000, 14), 2000, 1000)

    late_us = [(e.start_ns // MICROSECOND_NS) - 20_000 * number for number, e in enumerate(outcome.executions)]
    assert late_us == [0] * 9 + [5000, 7000] + [0] * 3  # B9
    assert all(len(execution.members) == 1 for execution in outcome.executions)


def test_in_the_training_batches_take_all_that_fits():
    outcome = play(untrained(), every_us(1000, 30), 2000, 1000)

    begun = [(e.start_ns // MICROSECOND_NS, len(e.members)) for e in outcome.executions]
    assert begun == [(0, 1), (3000, 3), (8000, 5), (15_000, 7), (24_000, 8), (34_000, 6)]  # B10


def test_the_training_ends_its_waits_when_enough_have_come():
    load = [*every_us(20_000, 9), *arrivals("a@180000 b@181500 c@200000 d@200100 e@200200")]

    outcome = play(untrained(), load, 2000, 1000)

    begun = [f"{e.start_ns // MICROSECOND_NS}:{''.join(e.members)}" for e in outcome.executions[9:]]
    assert begun == ["182000:ab", "201000:cde"]


def test_waiting_in_the_training_counts_as_none():
    load = [*every_us(1000, 72), Arrival(name="z", at_ns=20 * SECOND_NS)]  # as B10, up to the eleventh batch

    outcome = play(untrained(), load, 2000, 1000)

    assert len(outcome.executions) == 12
    assert outcome.executions[-1].start_ns == 20 * SECOND_NS


def test_the_training_sheds_only_more_than_it_needs():
    load = arrivals("a@0 b@100 c@200 d@300 e@400")

    outcome = play(untrained(latency_ms=20), load, 30_000, 0)

    assert starts(outcome) == "0:a 30100:e"  # two are wanted at first, of which one has started
    assert shed(outcome) == "b@20100 c@21100 d@21100"


def test_after_a_busy_time_a_lone_request_waits_for_another():
    busy = [Arrival(name=f"b{number}", at_ns=6 * SECOND_NS) for number in range(72)]
    later = [Arrival(name="y", at_ns=12 * SECOND_NS), Arrival(name="z", at_ns=13 * SECOND_NS)]

    outcome = play(untrained(), [*every_us(20_000, 12), *busy, *later], 2000, 1000)

    # The line is drawn anew after y, from 20 batches; 9 of them waited for 0, 10, ... 80 ms: 18 ms on average. So z
    # waits while its age + 1 ms + a (1 ms) is at most 17.1 ms.
    waited_ns = [execution.start_ns - 12 * SECOND_NS for execution in outcome.executions[-2:]]
    assert waited_ns == [0, SECOND_NS + 16 * MILLISECOND_NS]


@pytest.mark.parametrize(("failed", "dropped"), [(True, 0), (False, 1)])
def test_only_a_failed_batch_teaches_nothing(failed, dropped):
    core = Scheduler(BentoML(BentoMLSettings(max_batch_size=1, max_latency_ms=1000)), Limits(max_batch_rows=1))
    core.handle([InstanceJoined("i")], 0)
    for number in range(12):
        at_ns = number * 20 * SECOND_NS
        (start,) = core.handle([Arrived(core.reserve(1, at_ns))], at_ns)
        core.handle([BatchDone(start.batch), InstanceFree(start.batch, failed)], at_ns + 10 * SECOND_NS)

    now_ns = 300 * SECOND_NS
    core.handle([Arrived(core.reserve(1, now_ns))], now_ns)
    core.handle([Arrived(core.reserve(1, now_ns)) for _ in range(2)], now_ns + MILLISECOND_NS)

    assert core.statistics().dropped_requests == dropped  # two would take 15 s, if a batch takes 10


def test_two_instances_run_two_batches():
    outcome = simulate(bentoml(), arrivals("a@0 b@100 c@200 d@300"), max_batch_rows=8, service_us=5000, instances=2)

    assert starts(outcome) == "0:a 100:b 5200:cd"


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=60), st.integers(1, 8))
def test_without_wait_it_is_greedy_with_at_most_a_tick_of_lateness(moments_us, largest):
    load = [Arrival(name=f"r{number}", at_ns=at_us * MICROSECOND_NS) for number, at_us in enumerate(sorted(moments_us))]

    outcome = play(bentoml(largest=largest), load, 3000, 500)

    waiting, free_ns = load, 0
    for execution in outcome.executions:
        ready_ns = max(free_ns, waiting[0].at_ns)
        late_ns = execution.start_ns - ready_ns
        assert 0 <= late_ns < MILLISECOND_NS
        assert late_ns == 0 or waiting[0].at_ns < free_ns  # on an idle server nobody waits for a tick
        there = tuple(arrival.name for arrival in waiting if arrival.at_ns <= execution.start_ns)
        assert execution.members == there[:largest]
        waiting, free_ns = waiting[len(execution.members) :], execution.end_ns
    assert not waiting


def learned(*batches: tuple[int, int]) -> Optimizer:
    """An optimizer after two skipped batches and these: requests, duration in ms; one every six seconds."""
    line = Optimizer(60 * SECOND_NS)
    for number, (jobs, duration_ms) in enumerate([(1, 500), (1, 500), *batches]):
        line.note(jobs, duration_ms * MILLISECOND_NS, 0, number * 6 * SECOND_NS)
    return line


def test_before_the_first_sample_the_line_is_long():
    line = learned()

    assert (line.slope_ns, line.base_ns, line.wait_ns) == (2 * SECOND_NS, SECOND_NS, 0)


def test_the_line_goes_through_the_samples():
    line = learned((1, 5), (2, 7), (4, 11))

    assert line.duration_ns(3) == pytest.approx(9 * MILLISECOND_NS)
    assert line.base_ns == pytest.approx(3 * MILLISECOND_NS)


def test_from_equal_batches_comes_the_fit_of_least_norm():
    line = learned((5, 7), (5, 7))

    assert line.slope_ns == pytest.approx(7 * 5 / 26 * MILLISECOND_NS)  # B10: 1346 us
    assert line.base_ns == pytest.approx(7 / 26 * MILLISECOND_NS)  # B10: 269 us


def test_slope_and_base_stay_positive():
    falling, steep = learned((1, 20), (4, 5)), learned((1, 1), (4, 20))

    assert falling.slope_ns == 1000
    assert steep.base_ns == 0


def test_the_line_follows_every_five_seconds():
    line = learned((1, 5))
    now_ns = 12 * SECOND_NS

    line.note(1, 15 * MILLISECOND_NS, 0, now_ns + 5 * SECOND_NS - 1)
    early_ns = line.duration_ns(1)
    line.note(1, 10 * MILLISECOND_NS, 0, now_ns + 5 * SECOND_NS)

    assert early_ns == pytest.approx(5 * MILLISECOND_NS)
    assert line.duration_ns(1) == pytest.approx(10 * MILLISECOND_NS)  # the mean of 5, 15 and 10


def test_only_the_last_fifty_batches_count():
    line = learned(*[(1, 100)] * 10, *[(1, 6)] * 50)

    assert line.duration_ns(1) == pytest.approx(6 * MILLISECOND_NS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size must be at least 1, found 0", id="size"),
        pytest.param({"max_latency_ms": 0}, "max_latency_ms must be at least 1, found 0", id="latency"),
        pytest.param({"trained": (0.1, -0.1, 0.0)}, "trained must be three times", id="trained"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        BentoMLSettings(**settings)
