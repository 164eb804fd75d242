"""The kernel on hand-made examples, exact to the nanosecond; times in milliseconds unless a name says otherwise."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MILLISECOND_NS as MS
from batching.core.actions import Action, Drop, Launch, Preempt, RefusalReason
from batching.core.batches import CloseReason
from batching.core.events import CapChanged, InstanceJoined, InstanceLeft
from batching.core.limits import Limits
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.greedy import Greedy
from batching.simulation import (
    Affine,
    Arrival,
    ClosedLoop,
    Constant,
    House,
    LeastOutstanding,
    Link,
    Mixture,
    Outcome,
    PowerOfTwo,
    Random,
    Recorded,
    Recorder,
    Requests,
    RoundRobin,
    Service,
    Simulation,
    play,
)
from tests.batching.builders import scheduler


def request(name: str, at_ms: float, rows: int = 1, **properties: object) -> Arrival:
    return Arrival(name=name, at_ns=round(at_ms * MS), rows=rows, **properties)


TEN_MS = Service(Affine(10))
ONE_INSTANCE = House()


def record(load, service=TEN_MS, house=ONE_INSTANCE, make_policy=Greedy, duration_s=None, seed=0) -> Outcome:
    load = Recorded(load) if isinstance(load, list) else load
    recorder = Recorder()
    play(make_policy, load, service, house, observers=[recorder], duration_s=duration_s, seed=seed)
    return recorder.outcome()


def runs(outcome: Outcome) -> list[tuple[str, float, float]]:
    return [("".join(run.members), run.start_ns / MS, run.end_ns / MS) for run in outcome.executions]


def answers(outcome: Outcome) -> dict[str, float]:
    return {name: at_ns / MS for name, at_ns in outcome.answered}


def test_a_batch_leaves_its_answers_before_its_instance_is_free():
    service = Service(Affine(6, 1), pre=Affine(0.5, 0.25), post=Affine(1, 0.5))

    outcome = record([request("a", 0), request("b", 8)], service)

    first, second = outcome.executions
    assert (first.start_ns, first.begins_ns, first.end_ns, first.free_ns) == (0, 0.75 * MS, 7.75 * MS, 9.25 * MS)
    assert second.start_ns == first.free_ns  # b came after the answer of a, but before the instance was free
    assert answers(outcome) == {"a": 7.75, "b": 9.25 + 7.75}


def test_requests_and_answers_travel_one_by_one():
    link = Link(send_ms=0.25, first_answer=Affine(0.5, 0.125), answer_gap_ms=0.0625)

    outcome = record([request("a", 0), request("b", 0), request("c", 1)], Service(Affine(6, 1)), House(network=link))

    assert runs(outcome) == [("ab", 0.25, 8.25), ("c", 8.25, 15.25)]
    assert answers(outcome) == {"a": 8.25 + 0.75, "b": 8.25 + 0.75 + 0.0625, "c": 15.25 + 0.625}


def test_callers_of_a_closed_loop_send_when_they_have_their_own_answer():
    link = Link(send_ms=0.25, first_answer=Affine(0.5), answer_gap_ms=0.125)
    loop = ClosedLoop(clients=2, think=Constant(0.001))

    outcome = record(loop, Service(Affine(10)), House(network=link), duration_s=0.03)

    starts = [(run.start_ns / MS, run.rows) for run in outcome.executions]
    assert starts == [(0.25, 2), (10.25 + 0.5 + 1 + 0.25, 1), (22, 1)]  # the second caller came 0.125 ms too late


def test_one_thread_of_a_load_generator_reads_answers_one_after_another():
    outcome = record([request("a", 0), request("b", 0)], house=House(network=Link(reader_ms=0.5)))

    assert answers(outcome) == {"a": 10.5, "b": 11.0}


def test_a_caller_that_gives_up_is_forgotten_wherever_it_is():
    load = [request("a", 0, leaves_ns=5 * MS), request("b", 1, leaves_ns=2 * MS), request("c", 2, leaves_ns=30 * MS)]

    outcome = record(load)

    assert outcome.withdrawn == [("b", 3 * MS), ("a", 5 * MS)]
    assert runs(outcome) == [("a", 0, 10), ("c", 10, 20)]  # a runs on unheard
    assert answers(outcome) == {"c": 20}


def test_a_refused_caller_of_a_closed_loop_tries_again_later():
    loop = ClosedLoop(clients=2, retry_ns=3 * MS)
    house = House(limits=Limits(max_batch_rows=1, max_rows=1, max_requests=1))

    outcome = record(loop, house=house, duration_s=0.025)

    assert [(name, str(error)) for name, error in outcome.refused] == [("1", "Exceeds maximum queue size (1 requests)")]
    assert runs(outcome) == [("0", 0, 10), ("2", 10, 20), ("3", 20, 30)]  # 2 is the second try of 1, at 3 ms


def test_an_expired_caller_of_a_closed_loop_tries_again_later():
    loop = ClosedLoop(clients=2, retry_ns=3 * MS, requests=Requests(patience_ns=12 * MS))

    outcome = record(loop, house=House(limits=Limits(max_batch_rows=1)), duration_s=0.028)

    assert answers(outcome) == {"0": 10}
    assert outcome.expired == [("1", 12 * MS), ("2", (10 + 12) * MS), ("3", (12 + 3 + 12) * MS)]


def test_who_answers_at_once_comes_after_the_scheduler_has_used_its_free_instance():
    outcome = record(ClosedLoop(clients=3, starts_ns=(0, 1, 2)), duration_s=0.025)

    assert [run.rows for run in outcome.executions] == [1, 2, 1]


def test_a_dropped_caller_learns_of_it_over_the_network():
    class Refuse(Greedy):
        def decide(self, view: View, news: News) -> Sequence[Action]:
            return [Drop(list(view.queue), RefusalReason.OVERLOADED)] if len(view.queue) else ()

    house = House(network=Link(send_ms=1, refusal_ms=2))

    outcome = record(ClosedLoop(clients=1, retry_ns=4 * MS), house=house, make_policy=Refuse, duration_s=0.016)

    assert outcome.dropped == [("0", 1 * MS, "overloaded"), ("1", 8 * MS, "overloaded"), ("2", 15 * MS, "overloaded")]


def test_the_number_of_callers_changes_at_its_time():
    loop = ClosedLoop(clients=2, changes=((0.035, 4), (0.065, 1), (0.085, 2)))

    outcome = record(loop, Service(Affine(10)), House(instances=8), duration_s=0.1)

    starts = [0] * 10
    for run in outcome.executions:
        starts[min(run.start_ns // (10 * MS), 9)] += run.rows
    assert starts == [2, 2, 2, 4, 4, 4, 2, 1, 2, 3]  # those of 35 ms end at 65, the second rests from 70 to 85


def test_mixed_loads_meet_in_one_queue_in_order_of_time():
    mixture = Mixture([Recorded([request("a", 0), request("c", 2)]), Recorded([request("b", 1), request("d", 3)])])

    outcome = record(mixture)

    assert runs(outcome) == [("a", 0, 10), ("bcd", 10, 20)]


def test_recorded_requests_out_of_order_are_refused_with_the_place():
    with pytest.raises(ValueError, match=r"found 'b' at 1000000 ns after 'a' at 2000000 ns; sort them"):
        record([request("a", 2), request("b", 1)])


class Halves(Greedy):
    """Fills every batch up to three rows, cutting the last request."""

    def decide(self, view: View, news: News) -> Sequence[Action]:
        if not view.idle_slots or not len(view.queue):
            return ()
        rows = 0
        for count, ticket in enumerate(view.queue, 1):
            if rows + ticket.rows > 3:
                return (Launch(count, CloseReason.SPLIT, rows_of_last=3 - rows),)
            rows += ticket.rows
            if rows == 3:
                return (Launch(count, CloseReason.FULL),)
        return (Launch(len(view.queue), CloseReason.EAGER),)


def test_a_request_in_parts_is_answered_with_its_last_part():
    load = [request("a", 0, 3), request("b", 1, 2), request("c", 2, 2), request("d", 3, 3)]

    outcome = record(load, house=House(limits=Limits(max_batch_rows=3)), make_policy=Halves)

    assert runs(outcome) == [("a", 0, 10), ("bc", 10, 20), ("cd", 20, 30), ("d", 30, 40)]
    assert answers(outcome) == {"a": 10, "b": 20, "c": 30, "d": 40}


def test_a_request_whose_deadline_passes_between_its_parts_gets_no_answer():
    load = [request("a", 0, 2), request("b", 1, 2), request("c", 2, 2, patience_ns=15 * MS)]

    outcome = record(load, house=House(limits=Limits(max_batch_rows=3)), make_policy=Halves)

    assert runs(outcome) == [("a", 0, 10), ("bc", 10, 20)]  # one row of c
    assert outcome.expired == [("c", 17 * MS)]
    assert answers(outcome) == {"a": 10, "b": 20}


class UrgentFirst:
    """One at a time; an urgent request aborts what is running."""

    queue_order = QueueOrder.ARRIVAL

    def decide(self, view: View, news: News) -> Sequence[Action]:
        first = view.queue.first
        if first is None:
            return ()
        if view.idle_slots:
            return (Launch(1, CloseReason.EAGER),)
        running = next(iter(view.running))
        return (Preempt(running.id),) if first.priority < running.tickets[0].priority else ()

    def wake_at_ns(self, view: View) -> int | None:
        return None


def test_a_preempted_batch_gives_no_answer_and_starts_again():
    load = [request("a", 0, priority=2), request("b", 4, priority=1)]

    outcome = record(load, house=House(can_abort=True), make_policy=UrgentFirst)

    assert runs(outcome) == [("a", 0, 4), ("b", 4, 14), ("a", 14, 24)]
    assert [run.is_aborted for run in outcome.executions] == [True, False, False]
    assert answers(outcome) == {"b": 14, "a": 24}


def test_answers_in_order_wait_for_those_before_them():
    service = Service(Affine(10), factors={"instance_0": 3.0})
    load = [request("a", 0), request("b", 1), request("c", 40)]

    outcome = record(load, service, House(instances=2, preserve_ordering=True))

    assert runs(outcome) == [("a", 0, 30), ("b", 1, 11), ("c", 40, 50)]
    assert answers(outcome) == {"a": 30, "b": 30, "c": 50}


def test_instances_join_leave_and_change_their_cap_at_their_times():
    changes = ((0.005, InstanceLeft("instance_0")), (0.020, InstanceJoined("late")), (0.025, CapChanged("late", 1)))
    load = [request("a", 0), request("b", 1), request("c", 2), request("d", 21), request("e", 22)]

    outcome = record(load, house=House(changes=changes))

    assert runs(outcome) == [("a", 0, 10), ("bc", 20, 30), ("d", 30, 40), ("e", 40, 50)]
    assert [run.instance for run in outcome.executions] == ["instance_0", "late", "late", "late"]


def test_batches_behind_a_shared_pool_run_so_many_at_once():
    load = [request("a", 0), request("b", 1), request("c", 2)]
    house = House(instances=3, limits=Limits(max_batch_rows=1))

    outcome = record(load, Service(Affine(10), at_once=2), house)

    assert [(run.begins_ns / MS, run.end_ns / MS) for run in outcome.executions] == [(0, 10), (1, 11), (10, 20)]


def test_the_end_of_the_time_leaves_things_undone():
    outcome = record([request("a", 0), request("b", 1), request("c", 21)], duration_s=0.02)

    assert runs(outcome) == [("a", 0, 10), ("b", 10, 20)]
    assert answers(outcome) == {"a": 10, "b": 20}


def test_the_short_form_takes_requests_in_any_order_and_planned_events():
    simulation = Simulation(scheduler(Greedy(), 8), lambda _rows: 10 * MS, ["one"])
    simulation.plan(5 * MS, InstanceJoined("two"))

    outcome = simulation.run([request("b", 1), request("a", 0), request("c", 2)])

    assert runs(outcome) == [("a", 0, 10), ("bc", 5, 15)]
    assert len(outcome.commands) == 2


patience = st.none() | st.integers(1, 60 * MS)
requests = st.builds(
    lambda at_ns, rows, patience_ns, leaves_ns, priority: Arrival("", at_ns, rows, patience_ns, leaves_ns, priority),
    *(st.integers(0, 40 * MS), st.integers(1, 3), patience, patience, st.integers(1, 2)),
)
houses = st.builds(
    House,
    limits=st.sampled_from([Limits(max_batch_rows=3), Limits(max_batch_rows=3, max_requests=4, max_rows=6)]),
    instances=st.integers(1, 2),
    replicas=st.integers(1, 3),
    router=st.sampled_from([Random(), RoundRobin(), LeastOutstanding(), PowerOfTwo()]),
    network=st.none() | st.just(Link(send_ms=2, first_answer=Affine(1, 0.2), answer_gap_ms=0.1, jitter=0.5)),
    enforce_deadlines=st.booleans(),
    preserve_ordering=st.booleans(),
)
services = st.sampled_from([TEN_MS, Service(Affine(3, 1), noise=0.3, pre=Affine(1), post=Affine(2), jitter=0.2)])


@given(st.lists(requests, max_size=25), services, houses, st.sampled_from([Greedy, Halves]))
def test_every_request_ends_exactly_once_whatever_lies_between(load, service, house, make_policy):
    ordered = sorted(load, key=lambda arrival: arrival.at_ns)
    named = [arrival._replace(name=str(number)) for number, arrival in enumerate(ordered)]

    outcome = record(named, service, house, make_policy)

    ends = (outcome.answered, outcome.refused, outcome.expired, outcome.withdrawn, outcome.dropped)
    assert sorted(end[0] for kind in ends for end in kind) == sorted(arrival.name for arrival in named)
