"""SHEPHERD against worked examples of its rule: a batch of b takes 5000 + 1000 b us, on one instance."""

import pytest

from batching.clock import MICROSECOND_NS
from batching.core.events import Arrived, BatchDone, InstanceJoined
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.profile import ServiceProfile
from batching.policies.shepherd import Shepherd, ShepherdSettings
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import arrivals, starts

PROFILE_US = {1: 6_000, 2: 7_000}
FOUR = "a@0 b@1000 c@2000 d@3000"


def simulate(load: str | list[Arrival], *, can_abort: bool = True, instances: int = 1, **settings) -> Outcome:
    requests = arrivals(load) if isinstance(load, str) else load
    policy = Shepherd(ShepherdSettings(**{"profile_us": PROFILE_US, "slo_us": 30_000} | settings))
    scheduler = Scheduler(policy, Limits(max_batch_rows=16), can_abort=can_abort)
    names = [f"i{number}" for number in range(instances)]
    return Simulation(scheduler, ServiceProfile(PROFILE_US).batch_ns, names).run(requests)


def drops(outcome: Outcome) -> str:
    return " ".join(f"{now_ns // MICROSECOND_NS}:{name}" for name, now_ns, reason in outcome.dropped)


@pytest.mark.parametrize(
    ("settings", "load", "expected", "dropped"),
    [
        pytest.param({}, "a@0 b@1000 c@2000", "0:a 6000:bc", "", id="SH1"),
        pytest.param({}, FOUR, "0:a 3000:abcd", "", id="SH2-preempts"),
        pytest.param({"slo_us": 11_500}, FOUR, "0:a 6000:b", "12000:c 12000:d", id="SH3"),
        pytest.param({"preemption_factor": 2}, FOUR, "0:a 1000:ab 3000:abcd", "", id="SH4"),
        pytest.param({"can_abort": False}, FOUR, "0:a 6000:bcd", "", id="without-preemption-the-factor-is-infinite"),
        pytest.param({}, "a@0#p b@1000#q c@2000#q d@3000#q", "0:a 6000:bcd", "", id="another-shape-does-not-add-up"),
        pytest.param({"slo_us": None}, FOUR, "0:a 3000:abcd", "", id="without-deadlines-all-are-in-time"),
        pytest.param({}, "a@0 b@3000x3", "0:a 3000:ab", "", id="rows-count-not-requests"),
    ],
)
def test_batches_and_drops_are_those_of_the_worked_example(settings, load, expected, dropped):
    outcome = simulate(load, **settings)

    assert starts(outcome) == expected
    assert drops(outcome) == dropped


def test_a_preempted_batch_is_answered_once_by_the_batch_that_replaced_it():
    outcome = simulate(FOUR)

    assert [execution.is_aborted for execution in outcome.executions] == [True, False]
    assert sorted(outcome.answered) == [(name, 12_000 * MICROSECOND_NS) for name in "abcd"]


def test_an_answer_that_a_restart_would_make_late_is_not_given_up():
    load = [Arrival("a", 0, patience_ns=8_000_000)]
    load += [Arrival(name, 3_000_000, patience_ns=90_000_000) for name in "bcd"]

    outcome = simulate(load)

    assert starts(outcome) == "0:a 6000:bcd"


def test_who_has_left_a_running_batch_does_not_count():
    load = [Arrival("a", 0, leaves_ns=500_000), *(Arrival(name, 3_000_000) for name in "bcd")]

    assert starts(simulate(load)) == "0:a 6000:bcd"


def test_a_batch_whose_answers_are_out_is_not_preempted():
    policy = Shepherd(ShepherdSettings(profile_us=PROFILE_US))
    subject = Scheduler(policy, Limits(max_batch_rows=16), can_abort=True)
    subject.handle([InstanceJoined("i0"), Arrived(subject.reserve(1, 0))], 0)
    subject.handle([BatchDone(1)], 1)

    assert subject.handle([Arrived(subject.reserve(9, 2))], 2) == []


def test_an_idle_instance_is_used_although_another_request_is_dropped():
    load = [Arrival("a", 0), Arrival("h", 1_000_000, patience_ns=1_000_000)]
    load += [Arrival(name, 1_000_000) for name in "bcd"]

    outcome = simulate(load, instances=2)

    assert starts(outcome) == "0:a 1000:bcd"
    assert drops(outcome) == "1000:h"


def test_an_idle_instance_is_used_before_another_is_preempted():
    outcome = simulate("a@0 b@1000 c@2000 d@3000 e@4000", instances=2)

    # b has the second instance; two and three rows are no reason yet, four (b with c, d, e or a with them) are.
    assert starts(outcome) == "0:a 1000:b 4000:acde"


def test_the_batch_ends_where_the_earliest_deadline_would_be_missed():
    outcome = simulate("a@0 b@100 c@200 d@300", slo_us=13_500, can_abort=False)

    assert starts(outcome) == "0:a 6000:bc"
    assert drops(outcome) == "13000:d"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"slo_us": 0}, "slo_us", id="no-objective"),
        pytest.param({"preemption_factor": 1}, "above 1, found 1", id="preempts-for-nothing"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        ShepherdSettings(**{"profile_us": PROFILE_US} | settings)
