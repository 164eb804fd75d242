"""Laws of every policy, and the live driver against the simulator, on random loads."""

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.profiles import create_policy
from batching.runner import Runner
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.live import CUTTING, RecordingScheduler, SleepingInstance, in_virtual_time, play
from tests.batching.policies import LABELS, LARGEST, make

EVERY_POLICY = pytest.mark.parametrize("policy", LABELS)


@st.composite
def loads(draw: st.DrawFn, shapes: str = "pq", priorities: int = 2) -> list[Arrival]:
    """Moments differ in their last digits, so that two things rarely happen at one instant."""
    patience = st.none() | st.integers(1, 8_000)
    load = []
    for number, at_us in enumerate(sorted(draw(st.lists(st.integers(1, 12_000), max_size=40)))):
        patience_us, leaves_us = draw(patience), draw(patience)
        load.append(
            Arrival(
                name=f"r{number}",
                at_ns=at_us * 1_000 + 11 * number,
                rows=draw(st.integers(1, LARGEST)),
                patience_ns=None if patience_us is None else patience_us * 1_000 + 501,
                leaves_ns=None if leaves_us is None else leaves_us * 1_000 + 703,
                timeout_ns=draw(st.none() | st.integers(1, 4_000_000)),
                priority=draw(st.integers(1, priorities)),
                shape_key=draw(st.sampled_from(shapes)),
            )
        )
    return load


def service_ns(rows: int) -> int:
    return 600_007 + 120_011 * rows


LIMITS = Limits(max_batch_rows=LARGEST, max_requests=24, max_rows=64)


def run(policy: Policy, load: list[Arrival], instances: int, service: Callable[[int], int] = service_ns) -> Outcome:
    names = [f"i{number}" for number in range(instances)]
    return Simulation(Scheduler(policy, LIMITS), service, names).run(load)


def few(test):
    """There are many policies: a few examples for each on every run."""
    return settings(max_examples=15, deadline=None)(test)


# Batches of different workers overtake each other, requests move to the back, or the order is another one.
UNORDERED = {"litserve-windows", "mosec-windows", "rayserve-rows", "triton-levels"}


@EVERY_POLICY
@few
@given(load=loads(), instances=st.integers(1, 3))
def test_the_laws_hold(policy, load, instances):
    outcome = run(make(policy), load, instances)

    every_request_ends(load, outcome)
    no_batch_passes_the_cap_or_mixes_shapes(load, outcome)
    nobody_starts_after_having_left_or_expired(load, outcome)
    an_instance_runs_one_batch_at_a_time(outcome)
    if make(policy).queue_order is QueueOrder.ARRIVAL and policy not in UNORDERED:
        requests_of_one_level_start_in_order_of_arrival(load, outcome)


def every_request_ends(load: list[Arrival], outcome: Outcome) -> None:
    started = {name for execution in outcome.executions for name in execution.members}
    turned_away = [*(name for name, _ in outcome.refused), *(name for name, _, _ in outcome.dropped)]
    assert len(turned_away) == len(set(turned_away))
    gave_up = {arrival.name for arrival in load if arrival.leaves_ns is not None or arrival.patience_ns is not None}
    assert {arrival.name for arrival in load} - started - set(turned_away) <= gave_up


def no_batch_passes_the_cap_or_mixes_shapes(load: list[Arrival], outcome: Outcome) -> None:
    shapes = {arrival.name: arrival.shape_key for arrival in load}
    for execution in outcome.executions:
        assert 1 <= execution.rows <= LARGEST
        assert len({shapes[name] for name in execution.members}) == 1


def nobody_starts_after_having_left_or_expired(load: list[Arrival], outcome: Outcome) -> None:
    by_name = {arrival.name: arrival for arrival in load}
    for execution in outcome.executions:
        for member in (by_name[name] for name in execution.members):
            waited_ns = execution.start_ns - member.at_ns
            assert member.leaves_ns is None or waited_ns < member.leaves_ns
            assert member.patience_ns is None or waited_ns < member.patience_ns


def an_instance_runs_one_batch_at_a_time(outcome: Outcome) -> None:
    by_instance = defaultdict(list)
    for execution in outcome.executions:
        by_instance[execution.instance].append(execution)
    for executions in by_instance.values():
        assert all(first.end_ns <= second.start_ns for first, second in pairwise(executions))


def requests_of_one_level_start_in_order_of_arrival(load: list[Arrival], outcome: Outcome) -> None:
    by_name = {arrival.name: arrival for arrival in load}
    started: dict[int, list[Arrival]] = defaultdict(list)
    for execution in outcome.executions:
        for name in execution.members:
            started[by_name[name].priority].append(by_name[name])
    for level in started.values():
        assert all(first.at_ns <= second.at_ns for first, second in pairwise(level))


@EVERY_POLICY
@few
@given(load=loads(), instances=st.integers(1, 3))
def test_all_rows_of_those_who_stay_are_executed_once(policy, load, instances):
    patient = [a._replace(leaves_ns=None, patience_ns=None) for a in load]
    outcome = run(make(policy), patient, instances)

    executed = sum(execution.rows for execution in outcome.executions)
    turned_away = {name for name, _ in outcome.refused} | {name for name, _, _ in outcome.dropped}
    kept = sum(arrival.rows for arrival in patient if arrival.name not in turned_away)
    begun = {name for execution in outcome.executions for name in execution.members} & turned_away
    assert executed == kept or (begun and executed > kept)  # parts of requests that were dropped later


@EVERY_POLICY
@few
@given(load=loads(), instances=st.integers(1, 2))
def test_the_live_driver_gives_the_simulators_trace(policy, load, instances):
    names = [f"i{number}" for number in range(instances)]
    outcome = run(make(policy), load, instances)
    assume(not _has_ties(load, outcome))  # several events at one instant reach a live driver in no promised order
    scheduler = RecordingScheduler(make(policy), LIMITS)

    async def live(loop):
        hosts = [SleepingInstance(loop.clock, service_ns, name) for name in names]
        return await play(Runner(scheduler, hosts, loop.clock, loop.create_alarm, splitting=CUTTING), load)

    answers = in_virtual_time(live)

    assert scheduler.trace == list(outcome.commands)
    assert set(answers) == {arrival.name for arrival in load}
    assert scheduler.is_empty


def _has_ties(load: list[Arrival], outcome: Outcome) -> bool:
    moments = [arrival.at_ns for arrival in load]
    moments += [arrival.at_ns + arrival.leaves_ns for arrival in load if arrival.leaves_ns is not None]
    moments += [arrival.at_ns + arrival.patience_ns for arrival in load if arrival.patience_ns is not None]
    moments += [execution.end_ns for execution in outcome.executions]
    return len(moments) != len(set(moments))


@EVERY_POLICY
def test_the_simulation_is_deterministic(policy):
    load = [Arrival(name=f"r{number}", at_ns=number * 77_001 + 1, rows=1 + number % 3) for number in range(60)]

    assert run(make(policy), load, 2).commands == run(make(policy), load, 2).commands


# Equivalences


def plain(load: list[Arrival], rows: int | None = None) -> list[Arrival]:
    """The same moments, without shapes, priorities, deadlines and, if wanted, with requests of so many rows."""
    return [Arrival(name=a.name, at_ns=a.at_ns, rows=rows or a.rows) for a in load]


def starts(
    policy: Policy, load: list[Arrival], instances: int = 1, service: Callable[[int], int] = service_ns
) -> list[tuple[int, tuple[str, ...]]]:
    outcome = run(policy, load, instances, service)
    moments = [arrival.at_ns for arrival in load]
    assume(not set(moments) & {execution.end_ns for execution in outcome.executions})
    assume(len(moments) == len(set(moments)))
    return [(execution.start_ns, execution.members) for execution in outcome.executions]


def profile(name: str, **parameters: object) -> Policy:
    return create_policy(name, parameters, max_batch_rows=LARGEST)


@given(loads(), st.integers(1, 3))
def test_greedy_never_lets_an_instance_idle_while_requests_wait(load, instances):
    outcome = run(Greedy(), plain(load), instances)
    arrived = {arrival.name: arrival.at_ns for arrival in load}

    for execution in outcome.executions:
        running = sum(o.start_ns <= execution.start_ns < o.end_ns for o in outcome.executions)
        waited_ns = execution.start_ns - min(arrived[name] for name in execution.members)
        assert waited_ns == 0 or running == instances  # who waited, waited for the last instance to be free


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        pytest.param("triton", {}, id="triton-prefetch"),
        pytest.param("triton", {"default_queue_policy": {"max_queue_size": 99}}, id="triton-late"),
        pytest.param("tfserving", {"max_batch_size": LARGEST, "max_enqueued_batches": 99}, id="tfserving"),
    ],
)
@given(load=loads(), instances=st.integers(1, 3))
def test_without_a_delay_these_are_greedy(name, parameters, load, instances):
    few_waiting = plain(load)[:20]  # all refuse alike only while nobody is refused

    assert starts(profile(name, **parameters), few_waiting, instances) == starts(Greedy(), few_waiting, instances)


@given(load=loads(), instances=st.integers(1, 3))
def test_triton_that_binds_late_is_tfserving_with_the_same_delay(load, instances):
    whole_us = [a._replace(at_ns=a.at_ns // 1_000 * 1_000) for a in plain(load)[:20]]  # Triton waits whole microseconds
    triton = profile("triton", max_queue_delay_microseconds=1_507, default_queue_policy={"max_queue_size": 99})
    tfserving = profile("tfserving", max_batch_size=LARGEST, batch_timeout_micros=1_507, max_enqueued_batches=99)

    assert starts(triton, whole_us, instances, _whole_us) == starts(tfserving, whole_us, instances, _whole_us)


def _whole_us(rows: int) -> int:
    return 613_000 + 127_000 * rows


@given(load=loads(), instances=st.integers(1, 3))
def test_one_request_a_batch_is_the_same_queue_everywhere(load, instances):
    ones = plain(load, rows=1)[:20]
    reference = starts(profile("single"), ones, instances)

    for policy in (
        profile("torchserve", batch_size=1),
        profile("tfserving", max_batch_size=1, max_enqueued_batches=99),
        profile("rayserve", max_batch_size=1, max_concurrent_batches=instances),
    ):
        assert starts(policy, ones, instances) == reference


@given(load=loads())
def test_mlserver_forms_the_batches_that_ray_forms_without_a_limit(load):
    ones = plain(load, rows=1)[:20]
    many = 40

    def formed(policy: Policy) -> list[tuple[int, tuple[str, ...]]]:
        return starts(policy, ones, many)

    ray = profile("rayserve", max_batch_size=4, batch_wait_timeout_s=0.001507, max_concurrent_batches=many)
    mlserver = profile("mlserver", max_batch_size=4, max_batch_time=0.001507)
    assert formed(mlserver) == formed(ray)
