"""The scheduler's own mechanics, whatever the policy."""

import pytest

from batching.core.actions import Launch, Merge, StartBatch, Take
from batching.core.batches import CloseReason
from batching.core.commands import Expire, Start
from batching.core.errors import (
    DeadlineExceededError,
    PolicyError,
    QueueFullError,
    ShuttingDownError,
    TooManyRowsError,
)
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined, InstanceLeft, Timer, Withdrawn
from batching.core.limits import Limits
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.policies.triton import TritonSettings, create_triton
from tests.batching.builders import scheduler


def arrived(subject: Scheduler, now_ns: int, rows: int = 1, **details) -> tuple[int, list]:
    ticket = subject.reserve(rows, now_ns, **details)
    return ticket, subject.handle([Arrived(ticket)], now_ns)


def greedy(max_batch_rows: int = 4, instances: int = 1, **limits: int) -> Scheduler:
    subject = scheduler(Greedy(), max_batch_rows, **limits)
    subject.handle([InstanceJoined(f"i{number}") for number in range(instances)], 0)
    return subject


def busy(max_batch_rows: int = 4, **limits: int) -> Scheduler:
    """A greedy scheduler whose only instance executes batch 1."""
    subject = greedy(max_batch_rows, **limits)
    arrived(subject, 0)
    return subject


def finish(subject: Scheduler, batch: int, now_ns: int) -> list:
    return subject.handle([BatchDone(batch), InstanceFree(batch)], now_ns)


def test_a_lone_request_starts_at_once():
    ticket, commands = arrived(greedy(), 5)

    assert commands == [
        Start(batch=1, instance="i0", tickets=(ticket,), rows=1, reason=CloseReason.EAGER, opened_ns=5, sealed_ns=5)
    ]


def test_what_piles_up_while_the_instance_is_busy_becomes_one_batch():
    subject = busy()
    tickets = [arrived(subject, 1)[0] for _ in range(5)]

    (start,) = finish(subject, 1, 10)

    assert start.tickets == tuple(tickets[:4])
    assert start.reason is CloseReason.FULL


def test_reservations_count_in_the_limit_of_requests():
    subject = busy(max_requests=2)
    subject.reserve(1, 1)
    subject.reserve(1, 1)

    with pytest.raises(QueueFullError, match="2 requests"):
        subject.reserve(1, 1)


def test_reservations_count_in_the_limit_of_rows():
    subject = busy(max_rows=5)
    subject.reserve(3, 1)

    with pytest.raises(QueueFullError, match="5 rows"):
        subject.reserve(3, 1)


def test_a_started_request_frees_its_room():
    subject = busy(max_requests=1)
    arrived(subject, 1)

    finish(subject, 1, 2)

    assert subject.reserve(1, 3)


@pytest.mark.parametrize("leave", [Withdrawn, None], ids=["withdrawn", "expired"])
def test_a_reservation_that_ends_early_frees_its_room(leave):
    subject = busy(max_requests=1)
    ticket = subject.reserve(1, 1, deadline_ns=5)

    subject.handle([leave(ticket) if leave else Timer()], 5)

    assert subject.reserve(1, 6) > ticket


def test_a_request_larger_than_the_largest_batch_is_refused():
    with pytest.raises(TooManyRowsError) as caught:
        greedy(max_batch_rows=4).reserve(5, 0)

    assert (caught.value.rows, caught.value.limit_rows) == (5, 4)


def test_a_deadline_that_has_passed_is_refused_at_once():
    with pytest.raises(DeadlineExceededError):
        greedy().reserve(1, 10, deadline_ns=10)


def test_a_closed_scheduler_refuses_and_finishes_what_it_has():
    subject = busy()
    ticket, _ = arrived(subject, 1)
    subject.close()

    with pytest.raises(ShuttingDownError):
        subject.reserve(1, 2)
    assert finish(subject, 1, 3)[0].tickets == (ticket,)
    finish(subject, 2, 4)
    assert subject.is_empty


def test_refusals_are_counted():
    subject = busy(max_requests=1)
    subject.reserve(1, 1)
    with pytest.raises(QueueFullError):
        subject.reserve(1, 1)

    assert subject.statistics().refused_requests == 1


@pytest.mark.parametrize("stage", ["reserved", "waiting", "running"])
def test_a_deadline_expires_a_ticket_wherever_it_is(stage):
    subject = busy() if stage == "waiting" else greedy()
    ticket = subject.reserve(1, 1, deadline_ns=50)
    if stage != "reserved":
        subject.handle([Arrived(ticket)], 2)

    assert subject.wake_at_ns == 50
    assert subject.handle([Timer()], 49) == []
    assert subject.handle([Timer()], 50) == [Expire(ticket)]
    assert subject.wake_at_ns is None


def test_an_answer_at_the_instant_of_the_deadline_counts():
    subject = greedy()
    arrived(subject, 1, deadline_ns=50)

    assert finish(subject, 1, 50) == []


def test_rows_that_are_ready_after_the_deadline_never_start():
    subject = greedy()
    ticket = subject.reserve(1, 1, deadline_ns=5)
    subject.handle([Timer()], 5)

    assert subject.handle([Arrived(ticket)], 6) == []
    assert subject.is_empty


def test_an_expired_running_request_does_not_disturb_its_batch():
    subject = busy()
    patient, _ = arrived(subject, 1)
    hasty, _ = arrived(subject, 1, deadline_ns=50)
    (start,) = finish(subject, 1, 2)
    assert start.tickets == (patient, hasty)

    subject.handle([Timer()], 50)
    finish(subject, 2, 60)

    assert subject.is_empty
    assert subject.statistics().expired_requests == 1


def test_who_withdraws_at_the_instant_in_which_an_instance_frees_does_not_start():
    subject = busy()
    leaver, _ = arrived(subject, 1)
    stayer, _ = arrived(subject, 1)

    (start,) = subject.handle([BatchDone(1), InstanceFree(1), Withdrawn(leaver)], 9)

    assert start.tickets == (stayer,)


def test_an_arrival_at_the_instant_in_which_an_instance_frees_finds_it():
    subject = busy()
    ticket = subject.reserve(1, 9)

    (start,) = subject.handle([Arrived(ticket), InstanceFree(1), BatchDone(1)], 9)

    assert start.tickets == (ticket,)


def test_a_second_withdrawal_is_ignored():
    subject = busy()
    ticket, _ = arrived(subject, 1)

    subject.handle([Withdrawn(ticket)], 2)
    subject.handle([Withdrawn(ticket)], 3)

    assert subject.statistics().withdrawn_requests == 1


def test_lower_levels_are_served_first():
    subject = busy()
    late, _ = arrived(subject, 1, priority=2)
    urgent, _ = arrived(subject, 2, priority=1)

    assert finish(subject, 1, 3)[0].tickets == (urgent, late)


def test_batches_go_to_the_least_loaded_device():
    subject = scheduler(Greedy(), 1)
    subject.handle([InstanceJoined("a", "gpu0", 2), InstanceJoined("b", "gpu0", 2), InstanceJoined("c", "gpu1", 2)], 0)

    instances = [arrived(subject, 1)[1][0].instance for _ in range(6)]

    assert instances == ["a", "c", "b", "c", "a", "b"]


def test_the_instance_that_has_been_free_longest_is_next():
    subject = greedy(instances=2)
    arrived(subject, 1)
    arrived(subject, 1)
    finish(subject, 2, 5)
    finish(subject, 1, 6)

    assert arrived(subject, 7)[1][0].instance == "i1"


def test_an_instance_that_leaves_takes_no_more_batches():
    subject = greedy(instances=2)
    arrived(subject, 1)
    subject.handle([InstanceLeft("i0")], 2)

    assert arrived(subject, 3)[1][0].instance == "i1"
    assert finish(subject, 1, 4) == []
    assert arrived(subject, 5)[1] == []
    assert subject.statistics().instances == 1


def test_time_never_runs_backwards():
    subject = greedy()
    subject.handle([Timer()], 10)

    with pytest.raises(ValueError, match="backwards"):
        subject.handle([Timer()], 9)


def test_gauges_and_counters_add_up():
    subject = busy()
    arrived(subject, 1, rows=3)
    subject.reserve(2, 1)

    statistics = subject.statistics()

    assert (statistics.reserved_requests, statistics.waiting_requests, statistics.waiting_rows) == (1, 1, 3)
    assert (statistics.running_batches, statistics.admitted_requests) == (1, 3)
    assert statistics.close_reasons == {"eager": 1}


class Scripted:
    """A policy that plays its actions one decision at a time."""

    queue_order = QueueOrder.ARRIVAL

    def __init__(self, *decisions, wake_ns=None):
        self.decisions = list(decisions)
        self.wake_ns = wake_ns

    def decide(self, view, news):
        return self.decisions.pop(0) if self.decisions and len(view.queue) + len(view.batches) else ()

    def wake_at_ns(self, view):
        return self.wake_ns


EAGER = CloseReason.EAGER


@pytest.mark.parametrize(
    ("decisions", "law"),
    [
        pytest.param([[Launch(3, EAGER)]], "cannot take 3 of 2", id="more-than-there-is"),
        pytest.param([[Launch(0, EAGER)]], "cannot take 0", id="empty-batch"),
        pytest.param([[Launch(2, EAGER)]], "passes the cap of 4", id="over-the-cap"),
        pytest.param([[Launch(1, EAGER)], [Launch(1, EAGER)]], "without an idle instance", id="no-instance"),
        pytest.param([[StartBatch(7)]], "batch 7 is not staged", id="unknown-batch"),
        pytest.param([[Take(1), Take(1), Merge(1, 2)]], "passes the cap", id="merge-over-the-cap"),
    ],
)
def test_a_policy_that_breaks_a_law_is_found_out(decisions, law):
    subject = scheduler(Scripted(*decisions), 4)
    tickets = [subject.reserve(3, 0), subject.reserve(2, 0)]

    with pytest.raises(PolicyError, match=law):
        subject.handle([InstanceJoined("i0"), *map(Arrived, tickets)], 0)


def test_a_policy_must_not_mix_shapes():
    subject = scheduler(Scripted([Take(2)]), 4)
    tickets = [subject.reserve(1, 0, shape_key=shape) for shape in "pq"]

    with pytest.raises(PolicyError, match="mixes shapes"):
        subject.handle([Arrived(ticket) for ticket in tickets], 0)


def test_a_policy_must_not_ask_to_be_woken_in_the_past():
    with pytest.raises(PolicyError, match="wants to be asked at 5 ns"):
        scheduler(Scripted(wake_ns=5), 4).handle([Timer()], 5)


def test_withdrawing_the_last_member_of_a_staged_batch_discards_it():
    subject = scheduler(Scripted([Take(1)], [], [StartBatch(1)]), 4)
    ticket, _ = arrived(subject, 0)

    subject.handle([Withdrawn(ticket)], 1)

    assert subject.is_empty
    assert subject.statistics().waiting_requests == 0


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        pytest.param({"max_batch_rows": 0}, "max_batch_rows must be at least 1", id="no-batch"),
        pytest.param({"max_batch_rows": 8, "max_rows": 4}, "must hold one batch", id="queue-smaller-than-a-batch"),
    ],
)
def test_impossible_limits_are_refused_by_name(limits, words):
    with pytest.raises(ValueError, match=words):
        Limits(**limits)


def test_many_deadlines_that_do_not_come_to_pass_are_forgotten():
    subject = greedy()
    for number in range(500):
        arrived(subject, number, deadline_ns=10**9 + number)
        finish(subject, number + 1, number)

    assert subject.is_empty
    subject.handle([Timer()], 500)
    assert subject.wake_at_ns is None


def test_who_was_answered_at_this_instant_is_not_late():
    subject = greedy()
    ticket, _ = arrived(subject, 1, deadline_ns=50)

    commands = subject.handle([Withdrawn(ticket), BatchDone(1), InstanceFree(1)], 60)

    assert commands == []
    assert subject.statistics().expired_requests == 0
    assert subject.is_empty


def test_any_event_at_the_time_of_the_wake_up_serves_as_the_timer():
    subject = scheduler(create_triton(TritonSettings(max_queue_delay_microseconds=500), 4), 4)
    subject.handle([InstanceJoined("i0")], 0)
    ticket, _ = arrived(subject, 0)

    (start,) = subject.handle([Withdrawn(ticket + 1)], 600_000)  # of a ticket that is long gone

    assert start.tickets == (ticket,)


def test_nothing_starts_on_an_instance_that_leaves_while_somebody_expires():
    subject = scheduler(create_triton(TritonSettings(max_queue_delay_microseconds=500), 4), 4)
    subject.handle([InstanceJoined("i0"), InstanceJoined("i1")], 0)
    ticket, _ = arrived(subject, 0)
    subject.reserve(1, 0, deadline_ns=600_000)

    commands = subject.handle([InstanceLeft("i0")], 600_000)  # when the delay is over and the deadline has come

    assert [command.instance for command in commands if isinstance(command, Start)] == ["i1"]
    assert [command.ticket for command in commands if isinstance(command, Expire)] == [ticket + 1]
