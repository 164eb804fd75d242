"""Symphony against worked examples of its rule: a batch of b takes 5000 + 1000 b us, on one instance."""

import pytest

from batching.clock import MICROSECOND_NS
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.profile import ServiceProfile
from batching.policies.symphony import Symphony, SymphonySettings
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import arrivals, starts

PROFILE_US = {1: 6_000, 2: 7_000}


def simulate(load: str | list[Arrival], instances: int = 1, **settings) -> Outcome:
    requests = arrivals(load) if isinstance(load, str) else load
    settings = {"profile_us": PROFILE_US, "slo_us": 20_000, "target_batch": 4} | settings
    scheduler = Scheduler(Symphony(SymphonySettings(**settings), 16), Limits(max_batch_rows=16))
    names = [f"i{number}" for number in range(instances)]
    return Simulation(scheduler, ServiceProfile(PROFILE_US).batch_ns, names).run(requests)


def drops(outcome: Outcome) -> str:
    return " ".join(f"{now_ns // MICROSECOND_NS}:{name}" for name, now_ns, reason in outcome.dropped)


FOUR = "a@0 b@1000 c@2000 d@3000"


@pytest.mark.parametrize(
    ("mode", "load", "expected"),
    [
        pytest.param("frontrun", "a@0", "13000:a", id="SY1-deferred-although-idle"),
        pytest.param("frontrun", FOUR, "10000:abcd", id="SY2"),
        pytest.param("target", FOUR, "3000:abcd", id="SY3-target"),
        pytest.param("immediate", FOUR, "0:a 6000:bcd", id="SY3-immediate"),
        pytest.param("latest", FOUR, "11000:abcd", id="SY3-latest"),
        pytest.param(
            "frontrun", " ".join(f"{name}@{1000 * number}" for number, name in enumerate("abcdefghi")),
            "7000:abcdefgh 21000:i", id="SY4-grows-past-the-target",
        ),
        pytest.param("frontrun", "a@0 b@15000 c@16000 d@17000", "13000:a 26000:bcd", id="SY5"),
        pytest.param("frontrun", "a@0 b@2000 c@12000", "12000:abc", id="SY6-planned-anew-by-an-arrival"),
        pytest.param("frontrun", "a@0#p b@12000#q", "13000:a 25000:b", id="another-shape-is-another-batch"),
        pytest.param("frontrun", "a@0x3 b@1000x2", "9000:ab", id="rows-count-not-requests"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(mode, load, expected):
    assert starts(simulate(load, mode=mode)) == expected


def test_while_nothing_is_idle_each_request_is_dropped_when_it_stands_in_the_way_of_newer_ones():
    load = "a@0 b@1000 c@1100 d@6500 e@6600 f@6700 g@6800"

    outcome = simulate(load, mode="immediate", slo_us=12_000)

    # After 10500, e, f and g could end together only after d is due, at 18500; and so on.
    assert starts(outcome) == "0:a 6000:bc"
    assert drops(outcome) == "10500:d 11600:e 12700:f 12800:g"


def test_old_requests_are_dropped_for_a_batch_of_the_target_size():
    load = [Arrival("a", 0), *(Arrival(name, 1_000_000, patience_ns=12_900_000) for name in "bc")]
    load += [Arrival(name, 2_000_000, patience_ns=30_000_000) for name in "def"]

    outcome = simulate(load, mode="immediate", target_batch=3)

    # They are due at 13900: until 5900 three rows would have ended by then, and two still would at 6000.
    assert drops(outcome) == "5900:b 5900:c"
    assert starts(outcome) == "0:a 6000:def"


def test_the_target_is_half_of_the_objective_until_it_follows_the_measured_rate():
    load = [Arrival(f"r{number}", number * 4_000_000) for number in range(150)]
    arrived = {arrival.name: arrival.at_ns for arrival in load}

    executions = simulate(load, mode="target", target_batch=None).executions

    # Five rows take half of the objective; four would need 9 ms to run and 16 ms to arrive, three 8 ms and 12 ms.
    waits_us = [(batch.start_ns - arrived[batch.members[0]]) // MICROSECOND_NS for batch in executions]
    assert [batch.rows for batch in executions] == [3] * 50
    assert waits_us[0] == 11_000  # until one more row would be too much
    assert waits_us[-1] == 8_000  # until the third has come


def test_with_several_instances_the_target_leaves_time_to_wait_for_the_next_of_them():
    load = [Arrival(f"r{number}", number * 1_000_000) for number in range(200)]

    executions = simulate(load, mode="target", target_batch=None, instances=2).executions

    # Eight rows take 13 ms and the rate keeps two instances busy with them, one of which is free every 6.5 ms.
    assert [batch.rows for batch in executions[:3]] == [5, 5, 5]
    assert [batch.rows for batch in executions[-4:-1]] == [8, 8, 8]


def test_a_request_is_judged_by_its_own_size_if_that_is_above_the_target():
    outcome = simulate([Arrival("a", 0, rows=3, patience_ns=7_900_000)], target_batch=1)

    assert drops(outcome) == "0:a"


@pytest.mark.parametrize(
    ("terms", "expected_us"),
    [
        pytest.param({"ctrl_us": 100}, 12_900, id="command"),
        pytest.param({"data_us": 50}, 12_900, id="rows-on-the-network"),
        pytest.param({"response_us": 2_000}, 11_000, id="answer"),
        pytest.param({"jitter_us": 100}, 12_900, id="jitter"),
    ],
)
def test_network_and_jitter_make_a_batch_start_earlier(terms, expected_us):
    assert starts(simulate("a@0", **terms)) == f"{expected_us}:a"


def test_the_requests_own_deadline_comes_before_the_objective():
    load = [Arrival("a", 0, patience_ns=15_000 * MICROSECOND_NS)]

    assert starts(simulate(load)) == "8000:a"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"slo_us": 0}, "slo_us", id="no-objective"),
        pytest.param({"target_batch": 0}, "target_batch", id="no-target"),
        pytest.param({"mode": "soon"}, "frontrun, target, immediate, latest, found 'soon'", id="unknown-mode"),
        pytest.param({"jitter_us": -1}, "jitter_us must not be negative", id="negative-time"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        SymphonySettings(**{"profile_us": PROFILE_US, "slo_us": 20_000} | settings)
