"""Nexus against worked examples of its rule: a batch of b takes 5000 + 1000 b us, on one instance."""

import pytest

from batching.clock import MICROSECOND_NS
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.nexus import Nexus, NexusSettings
from batching.policies.profile import ServiceProfile
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import arrivals, starts

PROFILE_US = {1: 6_000, 2: 7_000}


def simulate(load: str | list[Arrival], max_batch_rows: int = 16, **settings) -> Outcome:
    requests = arrivals(load) if isinstance(load, str) else load
    policy = Nexus(NexusSettings(profile_us=PROFILE_US, **settings), max_batch_rows)
    scheduler = Scheduler(policy, Limits(max_batch_rows=max_batch_rows))
    return Simulation(scheduler, ServiceProfile(PROFILE_US).batch_ns).run(requests)


def drops(outcome: Outcome) -> str:
    return " ".join(f"{now_ns // MICROSECOND_NS}:{name}" for name, now_ns, reason in outcome.dropped)


SIX = "a@0 b@100 c@200 d@300 e@400 f@500"
TWO_AND_TWO = "a@0 b@100 c@4000 d@4100"
THREE_AND_THREE = "a@0 b@100 c@200 d@5000 e@5100 f@5200"


@pytest.mark.parametrize(
    ("drop", "slo_us", "load", "expected", "dropped"),
    [
        pytest.param("window", 20_000, "a@0 b@1000 c@2000 d@3000 e@4000", "0:a 6000:bcde", "", id="NX1"),
        pytest.param("window", 13_000, SIX, "0:a 6000:ef", "6000:b 6000:c 6000:d", id="NX2"),
        pytest.param("window", 14_000, SIX, "0:a 6000:def", "6000:b 6000:c", id="NX3"),
        pytest.param("window", 12_500, TWO_AND_TWO, "0:a 6000:cd", "6000:b", id="NX4-window"),
        pytest.param("earliest", 12_500, TWO_AND_TWO, "0:a 6000:b", "12000:c 12000:d", id="NX4-earliest"),
        pytest.param("window", 13_500, THREE_AND_THREE, "0:a 6000:def", "6000:b 6000:c", id="NX5-window"),
        pytest.param("earliest", 13_500, THREE_AND_THREE, "0:a 6000:bc", "13000:d 13000:e 13000:f", id="NX5-earliest"),
        pytest.param("earliest", 12_900, "a@0 b@100 c@200", "0:a 6000:b", "12000:c", id="to-end-on-time-is-too-late"),
        pytest.param("window", 13_900, "a@0x9", "", "0:a", id="judged-by-its-own-size"),
        pytest.param(
            "window", 30_000, "a@0 b@100x3 c@200x3 d@300", "0:a 6000:b 14000:cd", "", id="rows-count-not-requests"
        ),
        pytest.param("window", 30_000, "a@0 b@100x6 c@200", "0:a 6000:b 17000:c", "", id="larger-than-the-target"),
        pytest.param(
            "window", 30_000, "a@0#p b@100#p c@200#q d@300#q", "0:a 6000:b 12000:cd", "", id="another-shape-ends-it"
        ),
    ],
)  # fmt: skip
def test_batches_and_drops_are_those_of_the_worked_example(drop, slo_us, load, expected, dropped):
    outcome = simulate(load, slo_us=slo_us, target_batch=4, drop=drop)

    assert starts(outcome) == expected
    assert drops(outcome) == dropped


@pytest.mark.parametrize("drop", ["window", "earliest"])
def test_the_requests_own_deadline_comes_before_the_objective(drop):
    load = [Arrival("a", 0), Arrival("b", 1, patience_ns=10_000_000), Arrival("c", 2, patience_ns=50_000_000)]

    outcome = simulate(load, slo_us=1_000_000, target_batch=2, drop=drop)

    assert starts(outcome) == "0:a 6000:c"
    assert drops(outcome) == "6000:b"


def test_without_a_target_a_batch_takes_half_of_the_objective():
    outcome = simulate("a@0 b@1 c@2 d@3 e@9000", slo_us=16_000)

    assert [execution.rows for execution in outcome.executions] == [1, 3, 1]  # three take 8000 us


def test_a_batch_says_why_it_has_its_size():
    load = "a@0 b@1 c@2 d@3 e@4x2 f@5#q"

    outcome = simulate(load, target_batch=2, slo_us=90_000, drop="earliest")

    assert starts(outcome) == "0:a 6000:bc 13000:d 19000:e 26000:f"
    assert [execution.reason for execution in outcome.executions] == ["eager", "full", "overflow", "full", "eager"]


def test_without_objective_and_deadlines_it_is_greedy():
    outcome = simulate("a@0 b@1 c@2 d@3 e@4 f@5", max_batch_rows=4)

    assert starts(outcome) == "0:a 6000:bcde 15000:f"


def test_the_earlier_deadline_is_served_first():
    load = [Arrival("a", 0), Arrival("b", 1, patience_ns=90_000_000), Arrival("c", 2, patience_ns=40_000_000)]

    assert starts(simulate(load, target_batch=1)) == "0:a 6000:c 12000:b"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"profile_us": {}}, "profile_us", id="no-profile"),
        pytest.param({"profile_us": {0: 5}}, "profile_us", id="no-rows"),
        pytest.param({"profile_us": {1: 0}}, "positive", id="no-time"),
        pytest.param({"slo_us": 0}, "slo_us", id="no-objective"),
        pytest.param({"target_batch": 0}, "target_batch", id="no-target"),
        pytest.param({"drop": "newest"}, "'newest'", id="unknown-drop"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        NexusSettings(**{"profile_us": PROFILE_US} | settings)


@pytest.mark.parametrize(
    ("rows", "expected_us"),
    [
        pytest.param(1, 5_000, id="below-the-first-point"),
        pytest.param(4, 5_000, id="at-a-point"),
        pytest.param(6, 6_000, id="between"),
        pytest.param(16, 11_000, id="slope-of-the-last-two"),
        pytest.param(12, 9_000, id="never-faster-than-a-smaller-batch"),
    ],
)
def test_a_profile_is_linear_between_its_points(rows, expected_us):
    points_us = {4: 5_000, 8: 7_000} if rows != 12 else {4: 9_000, 12: 8_000}

    assert ServiceProfile(points_us).batch_ns(rows) == expected_us * MICROSECOND_NS


def test_a_profile_of_one_point_grows_with_the_rows():
    assert ServiceProfile({4: 8_000}).batch_ns(6) == 12_000 * MICROSECOND_NS


@pytest.mark.parametrize(
    ("within_us", "expected"),
    [
        pytest.param(5_999, 0, id="not-even-one"),
        pytest.param(9_000, 4, id="exactly"),
        pytest.param(90_000, 16, id="all"),
    ],
)
def test_the_largest_batch_within_a_time_is_found(within_us, expected):
    assert ServiceProfile(PROFILE_US).largest_rows(within_us * MICROSECOND_NS, 16) == expected
