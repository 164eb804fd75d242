"""What each action of a policy does, one at a time."""

import pytest

from batching.core.actions import (
    Drop,
    Launch,
    Merge,
    Preempt,
    RefusalReason,
    Requeue,
    Seal,
    StartBatch,
    Take,
    Where,
)
from batching.core.batches import CloseReason
from batching.core.commands import Abort, Expire, Part, Refuse, Release, Start
from batching.core.errors import PolicyError, QueueFullError, TooManyRowsError
from batching.core.events import (
    Arrived,
    BatchDone,
    CapChanged,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Reconfigured,
    Timer,
    Withdrawn,
)
from batching.policies.greedy import Greedy
from tests.batching.scripted import Bench, Told, ToldByDeadline

EAGER = CloseReason.EAGER
LATE = RefusalReason.TIMEOUT


def tickets_of(commands: list) -> list[tuple[int, ...]]:
    return [command.tickets for command in commands if isinstance(command, Start)]


def queued(bench: Bench) -> list[int]:
    """Ids of the waiting requests, in service order."""
    seen: list[int] = []
    bench.do(lambda view: seen.extend(ticket.id for ticket in view.queue) or ())
    return seen


# Batches under construction


def test_a_batch_grows_until_it_is_started():
    bench = Bench()
    tickets = [bench.arrive() for _ in range(3)]
    bench.do(Take(1), Take(2, into=1))

    (start,) = bench.do(StartBatch(1, CloseReason.FULL))

    assert (start.tickets, start.rows, start.reason) == (tuple(tickets), 3, CloseReason.FULL)


def test_a_batch_remembers_when_it_was_opened_and_sealed():
    bench = Bench()
    bench.arrive()
    bench.do(Take(1))
    opened_ns = bench.now_ns
    bench.do(Seal(1, CloseReason.DELAY))
    sealed_ns = bench.now_ns

    (start,) = bench.do(StartBatch(1))

    assert (start.opened_ns, start.sealed_ns, start.reason) == (opened_ns, sealed_ns, CloseReason.DELAY)


def test_nobody_joins_a_sealed_batch():
    bench = Bench()
    bench.arrive()
    bench.arrive()
    bench.do(Take(1), Seal(1, EAGER))

    with pytest.raises(PolicyError, match="batch 1 is sealed"):
        bench.do(Take(1, into=1))


def test_merging_appends_the_members_of_one_batch_to_another():
    bench = Bench()
    first, second, third = (bench.arrive() for _ in range(3))
    bench.do(Take(1), Take(2), Merge(2, 1))

    (start,) = bench.do(StartBatch(2))

    assert start.tickets == (second, third, first)


def test_a_batch_bound_to_an_instance_occupies_it_while_it_collects():
    bench = Bench(instances=2)
    bench.arrive()
    bench.do(Take(1, instance="i1"))
    other = bench.arrive()

    (launched,) = bench.do(Launch(1, EAGER))
    (started,) = bench.do(StartBatch(1))

    assert (launched.tickets, launched.instance, started.instance) == ((other,), "i0", "i1")


def test_an_instance_that_collects_cannot_be_bound_again():
    bench = Bench(instances=2)
    bench.arrive()
    bench.arrive()
    bench.do(Take(1, instance="i1"))

    with pytest.raises(PolicyError, match="instance 'i1' cannot take a batch now"):
        bench.do(Take(1, instance="i1"))


def test_a_batch_whose_members_have_all_left_gives_its_instance_back():
    bench = Bench()
    leaver = bench.arrive()
    bench.do(Take(1, instance="i0"))
    stayer = bench.arrive()

    bench.handle(Withdrawn(leaver))

    assert tickets_of(bench.do(Launch(1, EAGER))) == [(stayer,)]


def test_when_an_instance_leaves_what_it_collected_goes_back_to_the_front():
    bench = Bench(instances=2)
    collected = bench.arrive()
    bench.do(Take(1, instance="i1"))
    waiting = bench.arrive()

    bench.handle(InstanceLeft("i1"))

    assert queued(bench) == [collected, waiting]
    assert tickets_of(bench.do(Launch(2, EAGER))) == [(collected, waiting)]


# Cutting requests


def test_a_request_is_cut_to_fill_a_batch_and_answered_with_its_last_part():
    bench = Bench(rows=4, slots=2)
    whole, cut = bench.arrive(3), bench.arrive(3)

    (first,) = bench.do(Launch(2, CloseReason.SPLIT, rows_of_last=1))
    (second,) = bench.do(Launch(1, EAGER))

    assert (first.tickets, first.parts, first.rows) == ((whole, cut), (Part(0, 3), Part(0, 1)), 4)
    assert (second.tickets, second.parts, second.rows) == ((cut,), (Part(1, 2),), 2)
    bench.finish(second.batch)
    assert not bench.scheduler.is_empty
    bench.finish(first.batch)
    assert bench.scheduler.is_empty


def test_a_request_may_be_cut_into_many_parts():
    bench = Bench(rows=2, slots=3)
    cut = bench.arrive(2)
    starts = bench.do(Launch(1, CloseReason.SPLIT, rows_of_last=1)) + bench.do(Launch(1, EAGER))

    for start in starts:
        bench.finish(start.batch)

    assert [(start.tickets, start.parts) for start in starts] == [((cut,), (Part(0, 1),)), ((cut,), (Part(1, 1),))]
    assert bench.scheduler.is_empty


def test_a_request_that_is_withdrawn_takes_its_waiting_parts_along():
    bench = Bench(rows=4)
    cut = bench.arrive(4)
    (first,) = bench.do(Launch(1, CloseReason.SPLIT, rows_of_last=3))

    bench.handle(Withdrawn(cut))
    bench.finish(first.batch)

    statistics = bench.scheduler.statistics()
    assert (statistics.waiting_rows, statistics.withdrawn_requests) == (0, 1)
    assert bench.scheduler.is_empty


@pytest.mark.parametrize("rows", [0, 3])
def test_a_cut_leaves_something_on_both_sides(rows):
    bench = Bench()
    bench.arrive(3)

    with pytest.raises(PolicyError, match=f"cannot cut {rows} rows off a request of 3"):
        bench.do(Launch(1, EAGER, rows_of_last=rows))


# Dropping


def test_a_dropped_request_is_refused_with_the_reason_and_frees_its_room():
    bench = Bench()
    bench.arrive()

    commands = bench.do(lambda view: (Drop(list(view.queue), LATE),))

    assert commands == [Refuse(1, LATE)]
    assert bench.scheduler.statistics().dropped_requests == 1
    assert bench.scheduler.is_empty


def test_who_is_dropped_in_place_still_counts_until_its_batch_starts():
    bench = Bench()
    dead, alive = bench.arrive(5), bench.arrive(3)
    bench.do(Take(2))

    commands = bench.do(lambda view: (Drop([view.batches[0].tickets[0]], LATE, keeps_place=True),))

    assert commands == [Refuse(dead, LATE)]
    assert bench.scheduler.statistics().waiting_rows == 8
    (start,) = bench.do(StartBatch(1))
    assert (start.tickets, start.rows) == ((alive,), 3)
    bench.finish(1)
    assert bench.scheduler.is_empty


def test_a_batch_of_the_dead_does_not_start():
    bench = Bench()
    bench.arrive()
    bench.do(Take(1, instance="i0"))
    bench.do(lambda view: (Drop(view.batches[0].tickets, LATE, keeps_place=True),))
    late_comer = bench.arrive()

    assert bench.do(StartBatch(1)) == []
    assert tickets_of(bench.do(Launch(1, EAGER))) == [(late_comer,)]


def test_the_deadline_of_who_was_answered_in_place_means_nothing_any_more():
    bench = Bench()
    bench.arrive(deadline_ns=100)
    bench.do(lambda view: (Drop(list(view.queue), LATE, keeps_place=True),))
    bench.now_ns = 200

    assert bench.handle(Timer()) == []


def test_who_was_answered_in_place_and_is_too_large_for_a_lowered_cap_just_leaves():
    bench = Bench()
    bench.arrive(5)
    bench.do(lambda view: (Drop(list(view.queue), LATE, keeps_place=True),))

    assert bench.handle(CapChanged("i0", 3)) == []
    assert bench.scheduler.statistics().waiting_rows == 0


def test_what_runs_cannot_be_dropped():
    bench = Bench()
    bench.arrive()
    members = []
    bench.do(lambda view: members.extend(view.queue) or (Launch(1, EAGER),))

    with pytest.raises(PolicyError, match="ticket 1 cannot be dropped: it is running"):
        bench.do(Drop(members, LATE))


# Putting back


@pytest.mark.parametrize(
    ("where", "order"),
    [
        pytest.param(Where.FRONT, [1, 2, 3], id="front"),
        pytest.param(Where.BACK, [3, 1, 2], id="back"),
        pytest.param(Where.DELAYED, [3, 1, 2], id="delayed"),
    ],
)
def test_staged_requests_go_back_to_the_queue(where, order):
    bench = Bench()
    for _ in range(3):
        bench.arrive()
    bench.do(Take(2))

    bench.do(lambda view: (Requeue(view.batches[0].tickets, where),))

    assert queued(bench) == order


def test_the_delayed_stay_behind_later_arrivals_of_their_level_but_before_the_next_level():
    bench = Bench()
    delayed = bench.arrive(priority=1)
    low = bench.arrive(priority=2)
    bench.do(lambda view: (Requeue([view.queue.first], Where.DELAYED),))

    late_comer = bench.arrive(priority=1)

    assert queued(bench) == [late_comer, delayed, low]


# Preemption


def test_a_preempted_batch_waits_again_at_the_front():
    bench = Bench(can_abort=True)
    first = bench.arrive()
    (start,) = bench.do(Launch(1, EAGER))
    second = bench.arrive()

    commands = bench.do(Preempt(start.batch), Launch(2, EAGER))

    assert commands[0] == Abort(start.batch)
    assert tickets_of(commands) == [(first, second)]
    assert bench.handle(BatchDone(start.batch), InstanceFree(start.batch)) == []  # crossed with the abortion
    bench.finish(commands[1].batch)
    assert bench.scheduler.is_empty


def test_a_driver_that_cannot_abort_is_not_asked_to():
    bench = Bench()
    bench.arrive()
    (start,) = bench.do(Launch(1, EAGER))

    with pytest.raises(PolicyError, match="cannot be preempted"):
        bench.do(Preempt(start.batch))


# Instances and their caps


def test_an_instance_with_a_smaller_cap_lowers_the_cap_of_all():
    bench = Bench(rows=8)
    bench.handle(InstanceJoined("small", max_rows=2))

    with pytest.raises(TooManyRowsError):
        bench.arrive(3)


def test_a_lowered_cap_refuses_what_can_never_run_and_reopens_larger_batches():
    bench = Bench(rows=8)
    large, *small = bench.arrive(5), bench.arrive(2), bench.arrive(2)
    bench.do(Take(1), Take(2))

    commands = bench.handle(CapChanged("i0", 3))

    assert commands == [Refuse(large, RefusalReason.TOO_MANY_ROWS)]
    assert queued(bench) == small


def test_a_request_that_was_decoded_while_the_cap_fell_is_refused_on_arrival():
    bench = Bench(rows=8)
    ticket = bench.scheduler.reserve(5, bench.now_ns)
    bench.handle(CapChanged("i0", 4))

    assert bench.handle(Arrived(ticket)) == [Refuse(ticket, RefusalReason.TOO_MANY_ROWS)]
    assert bench.scheduler.is_empty


def test_a_cap_may_rise_again():
    bench = Bench(rows=8)
    bench.handle(CapChanged("i0", 3))
    bench.handle(CapChanged("i0", 8))

    assert bench.arrive(8)


def test_another_policy_takes_over_with_everything_that_waits():
    bench = Bench()
    tickets = [bench.arrive() for _ in range(3)]
    bench.do(Take(2))

    (start,) = bench.handle(Reconfigured(Greedy()))

    assert start.tickets == tuple(tickets)


def test_a_policy_is_told_how_long_a_batch_kept_its_instance():
    bench = Bench(slots=2)
    bench.arrive()
    bench.arrive()
    bench.do(Launch(1, EAGER), Launch(1, EAGER))
    started_ns = bench.now_ns
    bench.finish(1)
    first_ns = bench.now_ns - started_ns
    bench.handle(Timer())

    bench.handle(BatchDone(2), InstanceFree(2, failed=True))

    assert [word for word in bench.policy.heard if word.startswith("freed")] == [
        f"freed 1 after {first_ns}",
        "freed 2 after 2 (failed)",  # counted from the end of the batch before it
    ]


# Order


def test_a_policy_may_serve_by_deadline():
    bench = Bench(ToldByDeadline())
    never = bench.arrive()
    late = bench.arrive(deadline_ns=9_000)
    soon = bench.arrive(deadline_ns=5_000)

    assert queued(bench) == [soon, late, never]


def test_an_objective_orders_those_who_bring_no_deadline():
    class WithObjective(ToldByDeadline):
        objective_ns = 100

    bench = Bench(WithObjective())
    plain = bench.arrive()
    later = bench.arrive(deadline_ns=5_000)
    soon = bench.arrive(deadline_ns=50)

    assert queued(bench) == [soon, plain, later]


def test_chosen_requests_are_taken_whole_and_as_many_as_said():
    bench = Bench()
    bench.arrive(2)

    with pytest.raises(PolicyError, match="1 chosen requests are taken as 7"):
        bench.do(lambda view: (Launch(7, EAGER, tickets=list(view.queue)),))


def test_withdrawing_by_deadline_keeps_the_order():
    bench = Bench(ToldByDeadline())
    tickets = [bench.arrive(deadline_ns=5_000 - number) for number in range(4)]

    bench.handle(Withdrawn(tickets[2]))

    assert queued(bench) == [tickets[3], tickets[1], tickets[0]]


def test_answers_leave_in_the_order_in_which_requests_left_the_queue():
    bench = Bench(slots=3, preserve_ordering=True)
    first, second, third = (bench.arrive() for _ in range(3))
    bench.do(Launch(1, EAGER), Launch(1, EAGER), Launch(1, EAGER))

    assert bench.finish(3) == []
    assert bench.finish(1) == [Release(first)]
    assert bench.finish(2) == [Release(second), Release(third)]
    assert bench.scheduler.is_empty


def test_who_leaves_or_expires_holds_no_answers_up():
    bench = Bench(slots=3, preserve_ordering=True)
    leaver, late, last = bench.arrive(), bench.arrive(deadline_ns=1_000), bench.arrive()
    bench.do(Launch(1, EAGER), Launch(1, EAGER), Launch(1, EAGER))
    bench.finish(3)

    assert bench.handle(Withdrawn(leaver)) == []
    bench.now_ns = 2_000
    assert bench.handle(Timer()) == [Expire(late), Release(last)]


# Admission and deadlines


class Picky(Told):
    def admit(self, view, rows, priority):
        return RefusalReason.QUEUE_FULL if view.reserved_requests + len(view.queue) >= 2 else None


def test_a_policy_may_refuse_before_admission():
    bench = Bench(Picky())
    bench.arrive()
    bench.scheduler.reserve(1, bench.now_ns)

    with pytest.raises(QueueFullError, match="Exceeds maximum queue size"):
        bench.arrive()

    assert bench.scheduler.statistics().refused_requests == 1


def test_deadlines_can_be_left_to_the_policy():
    bench = Bench(enforce_deadlines=False)
    bench.arrive(deadline_ns=5)
    bench.now_ns = 10

    assert bench.scheduler.wake_at_ns is None
    assert bench.handle(Timer()) == []


def test_a_policy_that_turns_in_circles_is_found_out():
    class Restless(Told):
        def decide(self, view, news):
            return (Requeue([view.queue.first], Where.BACK),) if len(view.queue) else ()

    with pytest.raises(PolicyError, match="does not come to rest"):
        Bench(Restless()).arrive()


# Parts, caps, places and order together


def test_a_lowered_cap_refuses_a_request_once_however_many_of_its_parts_wait():
    bench = Bench()
    cut = bench.arrive(8)
    bench.do(Take(1, rows_of_last=4))
    bench.do(lambda view: (Requeue(view.batches[0].tickets, Where.FRONT),))

    assert bench.handle(CapChanged("i0", 3)) == [Refuse(cut, RefusalReason.TOO_MANY_ROWS)]
    assert f"gone {cut}" in bench.policy.heard


def test_an_instance_that_joins_with_a_smaller_cap_takes_larger_batches_apart():
    bench = Bench()
    large, *small = bench.arrive(5), bench.arrive(2), bench.arrive(2)
    bench.do(Take(1), Take(2))

    assert bench.handle(InstanceJoined("small", max_rows=2)) == [Refuse(large, RefusalReason.TOO_MANY_ROWS)]
    assert queued(bench) == small


def test_who_is_refused_for_a_lowered_cap_holds_no_answers_up():
    bench = Bench(instances=2, preserve_ordering=True)
    large = bench.arrive(8)
    bench.do(Take(1))
    small = bench.arrive()
    bench.do(Launch(1, EAGER))
    bench.finish(2)

    assert bench.handle(CapChanged("i0", 4)) == [Refuse(large, RefusalReason.TOO_MANY_ROWS), Release(small)]


def test_no_part_of_a_request_that_was_answered_in_place_starts():
    bench = Bench()
    bench.arrive(4)
    bench.do(Take(1, rows_of_last=1))
    bench.do(lambda view: (Drop([view.queue.first], LATE, keeps_place=True),))

    assert bench.do(StartBatch(1)) == []
    assert bench.do(Launch(1, EAGER, rows_of_last=1)) == []


def test_a_part_that_is_cut_again_is_still_a_part_of_the_request():
    bench = Bench(can_abort=True)
    request = bench.arrive(4)
    bench.do(Launch(1, EAGER, rows_of_last=3), Preempt(1))

    (start,) = bench.do(Launch(1, EAGER, rows_of_last=1))

    assert (start.tickets, start.parts) == ((request,), (Part(0, 1),))


def test_who_was_answered_in_place_holds_no_answers_up():
    bench = Bench(instances=2, preserve_ordering=True)
    bench.arrive()
    bench.do(Take(1))
    other = bench.arrive()
    bench.do(Launch(1, EAGER))
    bench.do(lambda view: (Drop(view.batches[0].tickets, LATE, keeps_place=True),))

    assert bench.finish(2) == [Release(other)]


def test_nothing_is_merged_into_a_sealed_batch():
    bench = Bench()
    bench.arrive()
    bench.arrive()
    bench.do(Take(1), Take(1), Seal(1, EAGER))

    with pytest.raises(PolicyError, match="batch 1 is sealed"):
        bench.do(Merge(1, 2))


def test_requests_that_run_in_parts_are_counted_once():
    bench = Bench()
    bench.arrive(4)
    bench.do(Take(1, rows_of_last=1))

    assert bench.scheduler.statistics().waiting_requests == 1


def test_a_policy_that_takes_over_finds_no_notes_of_the_one_before():
    bench = Bench()
    bench.arrive()
    bench.do(lambda view: setattr(view.queue.first, "note", "old") or ())
    found = []
    successor = Told()
    successor.next = lambda view: found.append(view.queue.first.note) or ()

    bench.handle(Reconfigured(successor))

    assert found == [None]


def test_a_request_is_put_back_once():
    bench = Bench()
    bench.arrive()

    with pytest.raises(PolicyError, match="put back twice"):
        bench.do(lambda view: (Requeue([view.queue.first, view.queue.first], Where.BACK),))


def test_a_request_has_rows():
    with pytest.raises(ValueError, match="at least 1 row, found 0"):
        Bench().arrive(0)
