"""Laws of every policy, and the live driver against the simulator, on random loads."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.policies.triton import TritonPrefetch, TritonSettings
from batching.runner import Runner
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.live import RecordingScheduler, SleepingInstance, in_virtual_time, play

LARGEST = 8
DELAYS_US = (0, 300, 2_000)


def greedy() -> Policy:
    return Greedy()


def single() -> Policy:
    return Greedy(max_requests=1)


def triton(delay_us: int, preferred: tuple[int, ...], check_shapes: bool) -> Policy:
    return TritonPrefetch(
        TritonSettings(
            preferred_batch_size=preferred, max_queue_delay_ns=delay_us * MICROSECOND_NS, check_shapes=check_shapes
        ),
        LARGEST,
    )


policies = st.one_of(
    st.just(greedy),
    st.just(single),
    st.builds(
        lambda *settings: lambda: triton(*settings),
        st.sampled_from(DELAYS_US),
        st.lists(st.integers(1, LARGEST), unique=True, max_size=3).map(lambda sizes: tuple(sorted(sizes))),
        st.booleans(),
    ),
)


@st.composite
def loads(draw: st.DrawFn, shapes: str = "pq", priorities: int = 2) -> list[Arrival]:
    patience = st.none() | st.integers(1, 8_000_000)
    load = []
    for number, at_ns in enumerate(sorted(draw(st.lists(st.integers(1, 12_000_000), max_size=40)))):
        load.append(
            Arrival(
                name=f"r{number}",
                at_ns=at_ns,
                rows=draw(st.integers(1, LARGEST)),
                patience_ns=draw(patience),
                leaves_ns=draw(patience),
                priority=draw(st.integers(1, priorities)),
                shape_key=draw(st.sampled_from(shapes)),
            )
        )
    return load


def service_ns(rows: int) -> int:
    return 600_007 + 120_011 * rows


def run(make_policy, load: list[Arrival], instances: int, scheduler_type: type[Scheduler] = Scheduler) -> Outcome:
    scheduler = scheduler_type(make_policy(), Limits(max_batch_rows=LARGEST, max_requests=24, max_rows=64))
    return Simulation(scheduler, service_ns, [f"i{number}" for number in range(instances)]).run(load)


@given(policies, loads(), st.integers(1, 3))
def test_every_request_ends_exactly_once(make_policy, load, instances):
    outcome = run(make_policy, load, instances)

    executed = [name for execution in outcome.executions for name in execution.members]
    refused = [name for name, _ in outcome.refused]
    ended = executed + refused
    assert len(ended) == len(set(ended))
    left = {arrival.name for arrival in load} - set(ended)
    gave_up = {arrival.name for arrival in load if arrival.leaves_ns is not None or arrival.patience_ns is not None}
    assert left <= gave_up  # all others were executed or refused


@given(policies, loads(), st.integers(1, 3))
def test_no_batch_passes_the_cap_or_mixes_shapes(make_policy, load, instances):
    by_name = {arrival.name: arrival for arrival in load}

    for execution in run(make_policy, load, instances).executions:
        members = [by_name[name] for name in execution.members]
        assert sum(member.rows for member in members) == execution.rows <= LARGEST
        assert len({member.shape_key for member in members}) == 1


@given(policies, loads(), st.integers(1, 3))
def test_nobody_starts_after_having_left_or_expired(make_policy, load, instances):
    outcome = run(make_policy, load, instances)
    by_name = {arrival.name: arrival for arrival in load}

    for execution in outcome.executions:
        for member in (by_name[name] for name in execution.members):
            waited_ns = execution.start_ns - member.at_ns
            assert member.leaves_ns is None or waited_ns < member.leaves_ns
            assert member.patience_ns is None or waited_ns < member.patience_ns


@given(policies, loads(), st.integers(1, 3))
def test_requests_of_one_level_start_in_order_of_arrival(make_policy, load, instances):
    by_name = {arrival.name: arrival for arrival in load}
    started: dict[int, list[Arrival]] = defaultdict(list)

    for execution in run(make_policy, load, instances).executions:
        for name in execution.members:
            started[by_name[name].priority].append(by_name[name])

    for level in started.values():
        assert all(first.at_ns <= second.at_ns for first, second in pairwise(level))


@given(policies, loads(), st.integers(1, 3))
def test_an_instance_runs_one_batch_at_a_time(make_policy, load, instances):
    by_instance = defaultdict(list)
    for execution in run(make_policy, load, instances).executions:
        by_instance[execution.instance].append(execution)

    for executions in by_instance.values():
        assert all(first.end_ns <= second.start_ns for first, second in pairwise(executions))


@given(loads(), st.integers(1, 3))
def test_greedy_never_lets_an_instance_idle_while_requests_wait(load, instances):
    patient = [Arrival(name=a.name, at_ns=a.at_ns, rows=a.rows, shape_key=a.shape_key) for a in load]
    outcome = run(greedy, patient, instances)
    arrived = {arrival.name: arrival.at_ns for arrival in patient}

    for execution in outcome.executions:
        running = sum(o.start_ns <= execution.start_ns < o.end_ns for o in outcome.executions)
        waited_ns = execution.start_ns - min(arrived[name] for name in execution.members)
        assert waited_ns == 0 or running == instances  # who waited, waited for the last instance to be free


@given(loads(shapes="p", priorities=1), st.integers(1, 3))
def test_triton_without_delay_and_preferred_sizes_is_greedy(load, instances):
    plain = [Arrival(name=a.name, at_ns=a.at_ns, rows=a.rows) for a in load]
    moments = [arrival.at_ns for arrival in plain]
    reference = run(greedy, plain, instances)
    assume(not set(moments) & {execution.end_ns for execution in reference.executions})
    assume(len(moments) == len(set(moments)))

    outcome = run(lambda: triton(0, (), False), plain, instances)

    assert [(e.start_ns, e.members) for e in outcome.executions] == [
        (e.start_ns, e.members) for e in reference.executions
    ]


@settings(max_examples=60, deadline=None)
@given(policies, loads(), st.integers(1, 2))
def test_the_live_driver_gives_the_simulators_trace(make_policy, load, instances):
    names = [f"i{number}" for number in range(instances)]
    outcome = run(make_policy, load, instances)
    assume(not _has_ties(load, outcome))  # several events at one instant reach a live driver in no promised order
    scheduler = RecordingScheduler(make_policy(), Limits(max_batch_rows=LARGEST, max_requests=24, max_rows=64))

    async def live(loop):
        runner = Runner(
            scheduler, [SleepingInstance(loop.clock, service_ns, name) for name in names], loop.clock, loop.create_alarm
        )
        return await play(runner, load)

    answers = in_virtual_time(live)

    assert scheduler.trace == list(outcome.commands)
    assert set(answers) == {arrival.name for arrival in load}
    assert scheduler.is_empty


def _has_ties(load: list[Arrival], outcome: Outcome) -> bool:
    moments = [arrival.at_ns for arrival in load]
    moments += [arrival.at_ns + delay_us * MICROSECOND_NS for arrival in load for delay_us in DELAYS_US if delay_us]
    moments += [arrival.at_ns + arrival.leaves_ns for arrival in load if arrival.leaves_ns is not None]
    moments += [arrival.at_ns + arrival.patience_ns for arrival in load if arrival.patience_ns is not None]
    moments += [execution.end_ns for execution in outcome.executions]
    return len(moments) != len(set(moments))


@pytest.mark.parametrize("make_policy", [greedy, lambda: triton(2_000, (), False)])
def test_the_simulation_is_deterministic(make_policy):
    load = [Arrival(name=f"r{number}", at_ns=number * 77_001 + 1, rows=1 + number % 3) for number in range(60)]

    assert run(make_policy, load, 2).commands == run(make_policy, load, 2).commands
