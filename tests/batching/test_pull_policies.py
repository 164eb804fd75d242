"""What all policies of pulling workers have in common: caps, windows, instances and callers that leave, takeovers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MILLISECOND_NS, SECOND_NS
from batching.core.actions import RefusalReason
from batching.core.commands import Refuse, Start
from batching.core.errors import QueueFullError
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined, InstanceLeft, Reconfigured, Withdrawn
from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.policies.litserve import LitServe, LitServeSettings
from batching.policies.mosec import Mosec, MosecSettings
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.simulation import Arrival, Simulation

BIG = 8  # rows
WINDOW_MS = 2
SLOWEST_NS = (WINDOW_MS + 1) * MILLISECOND_NS  # TorchServe counts whole milliseconds only


def torchserve(requests: int, timeout_ms: int = 60_000, *, faithful: bool = False) -> Policy:
    return TorchServe(
        TorchServeSettings(
            batch_size=requests,
            max_batch_delay_ms=WINDOW_MS,
            client_timeout_in_mills=timeout_ms,
            faithful=faithful,
        )
    )


def mosec(requests: int, timeout_ms: int = 60_000, *, faithful: bool = False) -> Policy:
    return Mosec(MosecSettings(max_batch_size=requests, max_wait_time=WINDOW_MS, timeout=timeout_ms, faithful=faithful))


def litserve(requests: int, timeout_ms: int = 60_000, *, faithful: bool = False) -> Policy:
    return LitServe(
        LitServeSettings(
            max_batch_size=requests, batch_timeout=WINDOW_MS / 1000, timeout=timeout_ms / 1000, faithful=faithful
        )
    )


every_server = pytest.mark.parametrize("make_policy", [torchserve, mosec, litserve])


@st.composite
def loads(draw: st.DrawFn) -> list[Arrival]:
    patience = st.none() | st.integers(1, 8_000_000)
    return [
        Arrival(
            name=f"r{number}",
            at_ns=at_ns,
            rows=draw(st.integers(1, BIG)),
            patience_ns=draw(patience),
            leaves_ns=draw(patience),
            priority=draw(st.integers(1, 2)),
            shape_key=draw(st.sampled_from("pq")),
        )
        for number, at_ns in enumerate(sorted(draw(st.lists(st.integers(1, 20_000_000), max_size=30))))
    ]


def service_ns(rows: int) -> int:
    return 600_007 + 120_011 * rows


@every_server
@given(loads(), st.integers(1, 5), st.integers(1, 3), st.sampled_from([3, 60_000]), st.booleans())
def test_batches_keep_the_caps_and_start_when_their_window_ends(
    make_policy, load, requests, instances, timeout_ms, faithful
):
    policy = make_policy(requests, timeout_ms, faithful=faithful)
    scheduler = Scheduler(policy, Limits(max_batch_rows=BIG))

    outcome = Simulation(scheduler, service_ns, [f"i{number}" for number in range(instances)]).run(load)

    for at_ns, command in outcome.commands:
        if isinstance(command, Start):
            assert len(command.tickets) <= requests
            assert at_ns - command.opened_ns < SLOWEST_NS
    assert scheduler.is_empty


@every_server
@given(load=loads(), instances=st.integers(1, 3))
def test_single_requests_are_served_like_in_any_server(make_policy, load, instances):
    names = [f"i{number}" for number in range(instances)]

    outcomes = [
        Simulation(Scheduler(policy, Limits(max_batch_rows=BIG)), service_ns, names).run(load)
        for policy in (make_policy(1), Greedy(max_requests=1))
    ]

    ours, plain = ([(e.start_ns, e.members) for e in outcome.executions] for outcome in outcomes)
    assert ours == plain


@every_server
@given(load=loads(), instances=st.integers(1, 3))
def test_on_time_nobody_waits_longer_than_the_timeout(make_policy, load, instances):
    names = [f"i{number}" for number in range(instances)]
    by_name = {arrival.name: arrival for arrival in load}
    scheduler = Scheduler(make_policy(4, timeout_ms=3), Limits(max_batch_rows=BIG))

    outcome = Simulation(scheduler, service_ns, names).run(load)

    for execution in outcome.executions:
        assert all(execution.start_ns < by_name[name].at_ns + 3 * MILLISECOND_NS for name in execution.members)
    assert all(at_ns == by_name[name].at_ns + 3 * MILLISECOND_NS for name, at_ns, _ in outcome.dropped)


def open_batch(policy: Policy) -> tuple[Scheduler, int]:
    """A scheduler whose instance i0 is collecting one request, and the request."""
    scheduler = Scheduler(policy, Limits(max_batch_rows=BIG))
    scheduler.handle([InstanceJoined("i0")], 0)
    ticket = scheduler.reserve(1, 0)
    assert scheduler.handle([Arrived(ticket)], 0) == []
    return scheduler, ticket


def starts_at_wake_up(scheduler: Scheduler) -> list[tuple[str, tuple[int, ...]]]:
    assert scheduler.wake_at_ns is not None
    commands = scheduler.handle([], scheduler.wake_at_ns)
    return [(command.instance, command.tickets) for command in commands if isinstance(command, Start)]


@every_server
def test_what_a_leaving_instance_has_collected_is_collected_by_another(make_policy):
    scheduler, ticket = open_batch(make_policy(4))

    scheduler.handle([InstanceLeft("i0"), InstanceJoined("i1")], MILLISECOND_NS)

    assert starts_at_wake_up(scheduler) == [("i1", (ticket,))]


@every_server
def test_a_worker_whose_callers_have_all_left_collects_anew(make_policy):
    scheduler, ticket = open_batch(make_policy(4))
    scheduler.handle([Withdrawn(ticket)], 1)
    later = scheduler.reserve(1, SECOND_NS)

    scheduler.handle([Arrived(later)], SECOND_NS)

    assert starts_at_wake_up(scheduler) == [("i0", (later,))]
    assert scheduler.wake_at_ns is None


@every_server
def test_timeouts_of_requests_that_another_policy_left_behind_are_kept(make_policy):
    scheduler = Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=BIG))
    running, waiting = scheduler.reserve(1, 0), scheduler.reserve(1, 0)
    scheduler.handle([InstanceJoined("i0"), Arrived(running), Arrived(waiting)], 0)
    scheduler.handle([Reconfigured(make_policy(4, timeout_ms=5))], MILLISECOND_NS)

    commands = scheduler.handle([], 5 * MILLISECOND_NS)

    assert [command.ticket for command in commands if isinstance(command, Refuse)] == [waiting]


@pytest.mark.parametrize("make_policy", [torchserve, mosec])
def test_timeouts_within_a_window_outlast_a_change_of_the_fleet(make_policy):
    scheduler, ticket = open_batch(make_policy(4, timeout_ms=1))

    scheduler.handle([InstanceJoined("i1")], MILLISECOND_NS // 2)

    assert scheduler.handle([], MILLISECOND_NS) == [Refuse(ticket, RefusalReason.TIMEOUT)]


def test_who_has_timed_out_in_its_place_is_answered_once():
    scheduler, ticket = open_batch(mosec(4, timeout_ms=1, faithful=True))

    answers = scheduler.handle([], MILLISECOND_NS)
    later = scheduler.handle([InstanceJoined("i1")], MILLISECOND_NS)

    assert answers == [Refuse(ticket, RefusalReason.TIMEOUT)]
    assert later == []
    assert starts_at_wake_up(scheduler) == []


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(TorchServe(TorchServeSettings(job_queue_size=2)), id="torchserve"),
        pytest.param(Mosec(MosecSettings(capacity=2)), id="mosec"),
    ],
)
def test_the_queue_limit_counts_requests_that_are_still_being_decoded(policy):
    scheduler = Scheduler(policy, Limits(max_batch_rows=BIG))
    scheduler.handle([Arrived(scheduler.reserve(1, 0))], 0)
    scheduler.reserve(1, 0)

    with pytest.raises(QueueFullError):
        scheduler.reserve(1, 0)


def test_every_worker_that_joins_brings_a_job_ticket():
    scheduler = Scheduler(job_tickets(), Limits(max_batch_rows=BIG))
    with pytest.raises(QueueFullError):
        scheduler.reserve(1, 0)
    for number in range(2):
        scheduler.handle([InstanceJoined(f"i{number}")], 0)
        scheduler.reserve(1, 0)

    with pytest.raises(QueueFullError):
        scheduler.reserve(1, 0)


def test_a_model_with_a_worker_always_has_a_job_ticket_left():
    scheduler = Scheduler(job_tickets(), Limits(max_batch_rows=BIG))
    scheduler.handle([InstanceJoined("i0"), InstanceJoined("i1")], 0)
    scheduler.handle([Arrived(scheduler.reserve(1, 0)) for _ in range(2)], 0)
    (start,) = scheduler.handle([], scheduler.wake_at_ns)
    scheduler.handle([InstanceLeft("i1")], SECOND_NS)

    scheduler.handle([BatchDone(start.batch), InstanceFree(start.batch)], SECOND_NS)

    assert len(start.tickets) == 2
    assert scheduler.reserve(1, SECOND_NS) > 0


def job_tickets() -> Policy:
    return TorchServe(TorchServeSettings(batch_size=4, use_job_ticket=True))


@pytest.mark.parametrize("requests", [1, 4])
def test_job_tickets_survive_a_takeover(requests):
    scheduler = Scheduler(Greedy(), Limits(max_batch_rows=BIG))
    tickets = [scheduler.reserve(1, 0) for _ in range(requests)]
    scheduler.handle([Arrived(ticket) for ticket in tickets], 0)
    scheduler.handle([InstanceJoined("i0"), InstanceJoined("i1")], 0)
    scheduler.handle([Reconfigured(job_tickets())], 0)
    scheduler.handle([BatchDone(1), InstanceFree(1)], MILLISECOND_NS)

    admitted = [scheduler.reserve(1, MILLISECOND_NS) for _ in range(2)]

    assert len(admitted) == 2
