"""Triton's policy against the plain model of `triton_reference` and against greedy, on random loads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.policies.triton import QueuePolicy, TritonExperiments, TritonLatencies, TritonSettings, create_triton
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.triton_reference import Reference

pytestmark = pytest.mark.slow

LARGEST = 8
NO_LIMIT = 1 << 20


def run(policy: Policy, load: list[Arrival], instances: int, scale: int) -> Outcome:
    limits = Limits(max_batch_rows=LARGEST, max_requests=NO_LIMIT, max_rows=NO_LIMIT)
    names = [f"i{number}" for number in range(instances)]
    return Simulation(Scheduler(policy, limits), service(scale), names).run(load)


def service(scale: int):
    return lambda rows: scale * (600_007 + 120_011 * rows)


def started(outcome: Outcome) -> list[tuple[int, tuple[str, ...]]]:
    return [(execution.start_ns, execution.members) for execution in outcome.executions]


@st.composite
def loads(draw: st.DrawFn, scale: int = 1, *, levels: int = 0, shapes: str = "p", patient: bool = True):
    """Bursts and gaps, in units of `scale` ns so that no two moments meet by chance."""
    gaps = draw(st.lists(st.sampled_from([1, 7_013, 40_009, 90_017, 300_023, 1_500_007]), min_size=1, max_size=40))
    at_ns, load = 0, []
    for number, gap in enumerate(gaps):
        at_ns += gap * scale
        load.append(
            Arrival(
                name=f"r{number}",
                at_ns=at_ns,
                rows=draw(st.just(1) | st.integers(1, LARGEST)),
                priority=draw(st.integers(1, levels)) if levels else 0,
                shape_key=draw(st.sampled_from(shapes)) if len(shapes) > 1 else None,
                leaves_ns=None if patient else draw(st.none() | st.integers(1, 900_000)),
                timeout_ns=draw(st.none() | st.integers(1, 2_000_000).map(lambda ns: ns * scale)),
            )
        )
    return load


def queue_policies(scale: int) -> st.SearchStrategy[QueuePolicy]:
    return st.builds(
        QueuePolicy,
        timeout_action=st.sampled_from(["REJECT", "DELAY"]),
        default_timeout_microseconds=st.sampled_from([0, 333 * scale, 1_111 * scale]),
        allow_timeout_override=st.booleans(),
        max_queue_size=st.sampled_from([0, 0, 3]),
    )


@st.composite
def configurations(draw: st.DrawFn, scale: int, levels: int) -> TritonSettings:
    return TritonSettings(
        preferred_batch_size=tuple(draw(st.lists(st.integers(1, LARGEST), max_size=3))),
        max_queue_delay_microseconds=draw(st.sampled_from([0, 0, 251, 2_003])) * scale,
        priority_levels=levels,
        default_priority_level=levels,
        default_queue_policy=draw(queue_policies(scale)) if levels or draw(st.booleans()) else QueuePolicy(),
        priority_queue_policy=draw(st.dictionaries(st.integers(1, levels), queue_policies(scale))) if levels else {},
        check_shapes=draw(st.booleans()),
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_policy_decides_as_the_plain_model(data):
    scale, levels = data.draw(st.sampled_from([(1, 0), (1, 0), (1, 2), (1_000, 0), (1_000, 2)]), "scale, levels")
    configuration = data.draw(configurations(scale, levels), "configuration")
    load = data.draw(loads(scale, levels=levels, shapes=data.draw(st.sampled_from(["p", "pq"]))), "load")
    instances = data.draw(st.integers(1, 3), "instances")
    bind = data.draw(st.sampled_from(["auto", "late", "prefetch"]), "bind")
    late = configuration.demands_late_binding if bind == "auto" else bind == "late"

    outcome = run(
        create_triton(configuration, LARGEST, experiments=TritonExperiments(bind=bind)), load, instances, scale
    )

    reference = Reference(configuration, LARGEST, instances, service(scale), late).run(load)
    assert started(outcome) == reference.started
    assert sorted((name, at_ns) for name, at_ns, _ in outcome.dropped) == sorted(reference.rejected)
    assert [name for name, _ in outcome.refused] == reference.refused


@settings(max_examples=60, deadline=None)
@given(loads(), st.integers(1, 3), st.sampled_from(["prefetch", "late"]))
def test_without_delay_and_preferred_sizes_it_is_greedy(load, instances, bind):
    triton = create_triton(TritonSettings(), LARGEST, experiments=TritonExperiments(bind=bind))

    outcome = run(triton, load, instances, 1)

    assert started(outcome) == started(run(Greedy(), load, instances, 1))


@settings(max_examples=100, deadline=None)
@given(loads(patient=False), st.lists(st.integers(1, LARGEST), max_size=2), st.integers(1, 3))
def test_moving_requests_into_a_payload_together_makes_no_difference(load, preferred, instances):
    configuration = TritonSettings(preferred_batch_size=tuple(preferred))
    one_by_one = TritonLatencies(reaction_us=1, jitter=lambda _latency_ns: 0)  # it takes no time, but is taken

    together = run(create_triton(configuration, LARGEST), load, instances, 1)

    apart = run(create_triton(configuration, LARGEST, latencies=one_by_one), load, instances, 1)
    assert started(together) == started(apart)


@settings(max_examples=60, deadline=None)
@given(loads(), st.integers(1, 3), st.sampled_from([0, 500]))
def test_unfaithfully_nobody_waits_longer_than_the_timeout(load, instances, delay_us):
    policy = QueuePolicy(default_timeout_microseconds=700)
    configuration = TritonSettings(default_queue_policy=policy, max_queue_delay_microseconds=delay_us, faithful=False)
    arrived = {arrival.name: arrival.at_ns for arrival in load}

    outcome = run(create_triton(configuration, LARGEST), load, instances, 1)

    assert all(at_ns - arrived[name] == 700_000 for name, at_ns, _ in outcome.dropped)
    assert all(start_ns - arrived[name] < 700_000 for start_ns, names in started(outcome) for name in names)
