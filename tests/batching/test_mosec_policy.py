"""Mosec's rule: worked examples, a worker's loop written down as such, and its kinship with TorchServe."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from batching.core.commands import Start
from batching.core.errors import QueueFullError
from batching.core.events import Arrived, BatchDone, Event, InstanceFree, InstanceJoined, Reconfigured
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.mosec import Mosec, MosecSettings
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.simulation import Arrival, Outcome
from tests.batching.builders import arrivals, simulate, starts

BIG = 64  # rows; no batch of these tests comes near it unless it says so


def run(load: str, *, service_us: int = 5000, instances: int = 1, rows: int = BIG, **changes: object) -> Outcome:
    settings = MosecSettings(**{"max_batch_size": 4, "max_wait_time": 10, **changes})
    return simulate(Mosec(settings), arrivals(load), max_batch_rows=rows, service_us=service_us, instances=instances)


def dropped_us(outcome: Outcome) -> str:
    return " ".join(f"{name}@{at_ns // MICROSECOND_NS}" for name, at_ns, _ in outcome.dropped)


@pytest.mark.parametrize(
    ("changes", "load", "expected"),
    [
        pytest.param({}, "a@0", "10000:a", id="MS1-alone-it-pays-the-wait"),
        pytest.param({}, "a@0 b@1000 c@2000 d@3000 e@3500", "3000:abcd 18000:e", id="MS2"),
        pytest.param(
            {"service_us": 8000}, "a@0 b@11000 c@12000 d@20000", "10000:a 28000:bcd",
            id="MS3-the-window-begins-when-a-worker-receives",
        ),
        pytest.param(
            {"instances": 2}, "a@0 b@1000 c@2000 d@3000", "10000:ac 11000:bd", id="MS4-arrivals-are-dealt-out"
        ),
        pytest.param({"max_batch_size": 1}, "a@0 b@100", "0:a 5000:b", id="MS5"),
        pytest.param({"max_wait_time": 0}, "a@0", "10000:a", id="no-wait-means-ten-milliseconds"),
        pytest.param({"timer_slack_us": 900}, "a@0", "10900:a", id="late-timers"),
        pytest.param({"instances": 2}, "a@0 b@0 c@0 d@0", "10000:ac 10000:bd", id="so-are-those-of-one-moment"),
        pytest.param(
            {"max_batch_size": 2, "instances": 2, "service_us": 9000}, "a@0 b@0 c@0 d@0 e@1 f@2 g@3",
            "0:ac 0:bd 9000:ef 19000:g", id="of-two-workers-that-end-together-the-first-fills-its-batch",
        ),
        pytest.param({"rows": 4}, "a@0x3 b@100x2", "100:a 15100:b", id="a-batch-is-closed-by-the-cap-in-rows"),
        pytest.param({"rows": 4}, "a@0x3 b@100", "100:ab", id="nothing-more-fits"),
        pytest.param({}, "a@0#p b@100#q c@200#p", "100:a 5100:b 20100:c", id="a-batch-is-closed-by-another-shape"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(changes, load, expected):
    outcome = run(load, **changes)

    assert starts(outcome) == expected


def test_workers_collect_in_the_order_of_the_channel_ms0():
    """Its own test suite's example: 32 ids wait, then batches of at most 8, 1, 20 and 8 are collected."""
    scheduler = Scheduler(collecting(8), Limits(max_batch_rows=BIG))
    tickets = [scheduler.reserve(1, 0) for _ in range(32)]
    scheduler.handle([Arrived(ticket) for ticket in tickets], 0)

    first = started(scheduler, InstanceJoined("worker"))
    second = started_when_free(scheduler, 1, collecting(1))
    third = started_when_free(scheduler, 2, collecting(20))
    before_the_window_ends = started_when_free(scheduler, 3, collecting(8))
    rest = started(scheduler, now_ns=MILLISECOND_NS)

    assert [first, second, third] == [tickets[:8], tickets[8:9], tickets[9:29]]
    assert before_the_window_ends == []
    assert rest == tickets[29:]


def collecting(size: int) -> Mosec:
    return Mosec(MosecSettings(max_batch_size=size, max_wait_time=1))


def started_when_free(scheduler: Scheduler, batch: int, policy: Mosec) -> list[int]:
    scheduler.handle([Reconfigured(policy)], 0)
    return started(scheduler, BatchDone(batch), InstanceFree(batch))


def started(scheduler: Scheduler, *events: Event, now_ns: int = 0) -> list[int]:
    commands = scheduler.handle(events, now_ns)
    return [ticket for command in commands if isinstance(command, Start) for ticket in command.tickets]


def test_the_capacity_counts_only_what_no_worker_has_received_ms6():
    outcome = run("a@0 b@11000 c@11100 d@11200", service_us=8000, capacity=2)

    assert starts(outcome) == "10000:a 28000:bc"
    assert [(name, type(error)) for name, error in outcome.refused] == [("d", QueueFullError)]


def test_who_times_out_is_answered_on_time_and_keeps_its_slot_ms7():
    outcome = run("a@0 b@100 c@200 d@300 e@400 f@14500", service_us=8000, timeout=12)

    assert starts(outcome) == "300:abcd 18300:f"
    assert dropped_us(outcome) == "e@12400"


@pytest.mark.parametrize(
    ("faithful", "expected"),
    [
        pytest.param(True, "300:abcd 14700:fgh", id="faithful"),
        pytest.param(False, "300:abcd 14800:fghi", id="on-time"),
    ],
)
def test_a_timed_out_request_uses_up_a_place_of_its_batch_only_if_faithful(faithful, expected):
    outcome = run(
        "a@0 b@100 c@200 d@300 e@400 f@14500 g@14600 h@14700 i@14800", service_us=8000, timeout=12,
        faithful=faithful,
    )  # fmt: skip

    assert starts(outcome) == expected


def test_a_timed_out_request_uses_up_capacity_only_if_faithful():
    load = "a@0 b@100 c@200 d@300 e@400 f@12500"  # the worker is busy from 300 to 20300, e times out at 12400

    refusals = {
        faithful: [name for name, _ in run(load, service_us=20_000, timeout=12, capacity=1, faithful=faithful).refused]
        for faithful in (True, False)
    }

    assert refusals == {True: ["f"], False: []}


def test_a_batch_of_nothing_but_timed_out_requests_does_not_run():
    outcome = run("a@0 b@20000 c@20100", max_batch_size=2, timeout=5)

    assert starts(outcome) == "20100:bc"
    assert dropped_us(outcome) == "a@5000"


Plain = list[tuple[int, tuple[str, ...]]]


def worker_loop(load: Sequence[Arrival], size: int, wait_ns: int, service_ns: int) -> Plain:
    """The rule as a worker's blocking loop."""
    pending, free_ns, batches = list(load), 0, []
    while pending:
        first = pending.pop(0)
        now = max(free_ns, first.at_ns)
        members, end = [first.name], now + wait_ns
        while len(members) < size and pending and pending[0].at_ns <= end:
            now = max(now, pending[0].at_ns)
            members.append(pending.pop(0).name)
        start = now if len(members) == size else end
        batches.append((start, tuple(members)))
        free_ns = start + service_ns
    return batches


def plain(outcome: Outcome) -> Plain:
    return [(execution.start_ns, execution.members) for execution in outcome.executions]


def loads(unit_ns: int) -> st.SearchStrategy[list[Arrival]]:
    return st.lists(st.integers(1, 60_000_000 // unit_ns), max_size=30, unique=True).map(
        lambda moments: [Arrival(name=f"r{n}", at_ns=at * unit_ns) for n, at in enumerate(sorted(moments))]
    )


@given(loads(1), st.integers(1, 6), st.integers(1, 6))
def test_batches_of_one_worker_are_those_of_its_blocking_loop(load, size, wait_ms):
    settings = MosecSettings(max_batch_size=size, max_wait_time=wait_ms)

    outcome = simulate(Mosec(settings), load, max_batch_rows=BIG, service_us=3_001)

    assert plain(outcome) == worker_loop(load, size, wait_ms * MILLISECOND_NS, 3_001_000)


@given(loads(MILLISECOND_NS), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_in_whole_milliseconds_one_worker_batches_like_one_of_torchserve(load, size, wait_ms, service_ms):
    mosec = Mosec(MosecSettings(max_batch_size=size, max_wait_time=wait_ms))
    torchserve = TorchServe(TorchServeSettings(batch_size=size, max_batch_delay_ms=wait_ms))

    outcomes = [
        simulate(policy, load, max_batch_rows=BIG, service_us=service_ms * 1000) for policy in (mosec, torchserve)
    ]

    assert plain(outcomes[0]) == plain(outcomes[1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size must be at least 1, found 0", id="no-batch"),
        pytest.param({"max_wait_time": -1}, "max_wait_time must be at least 0", id="negative-wait"),
        pytest.param({"capacity": 0}, "capacity must be at least 1", id="no-channel"),
        pytest.param({"timeout": 0}, "timeout must be at least 1", id="no-time"),
        pytest.param({"timer_slack_us": -1}, "timer_slack_us", id="early-timers"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        MosecSettings(**settings)
