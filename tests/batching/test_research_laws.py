"""Laws of the policies of the research papers, whose profile is exact here: time of a batch by its rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.nexus import Nexus, NexusSettings
from batching.policies.profile import ServiceProfile
from batching.policies.shepherd import Shepherd, ShepherdSettings
from batching.policies.symphony import Symphony, SymphonySettings
from batching.simulation import Arrival, Outcome, Simulation

LARGEST = 8
PROFILE_US = {1: 600, 4: 850, 8: 1500}
SLO_US = 4_000
NEXUS = {"profile_us": PROFILE_US, "slo_us": SLO_US}
SYMPHONY = {"profile_us": PROFILE_US, "slo_us": SLO_US, "target_batch": 4}

POLICIES = {
    "nexus-window": lambda: Nexus(NexusSettings(**NEXUS), LARGEST),
    "nexus-earliest": lambda: Nexus(NexusSettings(**NEXUS, drop="earliest"), LARGEST),
    "symphony-frontrun": lambda: Symphony(SymphonySettings(**SYMPHONY), LARGEST),
    "symphony-target": lambda: Symphony(SymphonySettings(**SYMPHONY, mode="target"), LARGEST),
    "symphony-latest": lambda: Symphony(SymphonySettings(**SYMPHONY, mode="latest"), LARGEST),
    "symphony-immediate": lambda: Symphony(SymphonySettings(**SYMPHONY, mode="immediate"), LARGEST),
    "shepherd": lambda: Shepherd(ShepherdSettings(profile_us=PROFILE_US, slo_us=SLO_US, preemption_factor=2)),
}


@st.composite
def loads(draw: st.DrawFn) -> list[Arrival]:
    """Requests with the same objective, or each with a deadline of its own."""
    own = draw(st.booleans())
    patience = st.integers(300_000, 9_000_000) if own else st.none()
    return [
        Arrival(
            f"r{number}",
            at_ns,
            rows=draw(st.integers(1, 3)),
            patience_ns=draw(patience),
            leaves_ns=draw(st.sampled_from([None, None, None, 1_100_000])),
            shape_key=draw(st.sampled_from("ppq")),
        )
        for number, at_ns in enumerate(sorted(draw(st.lists(st.integers(0, 9_000_000), max_size=50))))
    ]


def due_ns(arrival: Arrival) -> int:
    objective_ns = SLO_US * MICROSECOND_NS
    return arrival.at_ns + min(objective_ns, objective_ns if arrival.patience_ns is None else arrival.patience_ns)


def run(policy: str, load: list[Arrival], instances: int) -> Outcome:
    names = [f"i{number}" for number in range(instances)]
    scheduler = Scheduler(POLICIES[policy](), Limits(max_batch_rows=LARGEST), can_abort=True)
    return Simulation(scheduler, ServiceProfile(PROFILE_US).batch_ns, names).run(load)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(load=loads(), instances=st.integers(1, 3))
def test_every_request_is_answered_in_time_or_dropped(policy, load, instances):
    outcome = run(policy, load, instances)

    due = {arrival.name: due_ns(arrival) for arrival in load}
    assert all(at_ns <= due[name] for name, at_ns in outcome.answered)
    ended = [name for name, *_ in (*outcome.answered, *outcome.dropped, *outcome.withdrawn, *outcome.expired)]
    assert sorted(ended) == sorted(due)


@pytest.mark.parametrize("policy", ["nexus-earliest", "shepherd"])
@settings(max_examples=40)
@given(load=loads(), instances=st.integers(1, 3))
def test_who_has_been_dropped_could_not_have_been_served_any_more(policy, load, instances):
    outcome = run(policy, load, instances)

    arrivals = {arrival.name: arrival for arrival in load}
    for name, now_ns, _ in outcome.dropped:
        assert now_ns + ServiceProfile(PROFILE_US).batch_ns(arrivals[name].rows) > due_ns(arrivals[name])
