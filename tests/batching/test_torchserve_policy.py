"""TorchServe's rule: worked examples, and a worker's loop written down as such."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.errors import QueueFullError
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import arrivals, constant_us, simulate, starts

BIG = 64  # rows; no batch of these tests comes near it unless it says so


def run(load: str, *, service_us: int = 1000, instances: int = 1, rows: int = BIG, **changes: object) -> Outcome:
    settings = TorchServeSettings(**{"batch_size": 4, "max_batch_delay_ms": 2, **changes})
    return simulate(
        TorchServe(settings), arrivals(load), max_batch_rows=rows, service_us=service_us, instances=instances
    )


def dropped_us(outcome: Outcome) -> str:
    return " ".join(f"{name}@{at_ns // MICROSECOND_NS}" for name, at_ns, _ in outcome.dropped)


def refused(outcome: Outcome) -> str:
    assert all(isinstance(error, QueueFullError) for _, error in outcome.refused)
    return " ".join(name for name, _ in outcome.refused)


@pytest.mark.parametrize(
    ("changes", "load", "expected"),
    [
        pytest.param({}, "a@0", "2000:a", id="TS1-alone-it-pays-the-delay"),
        pytest.param({}, "a@0 b@500 c@900 d@1500 e@1600", "1500:abcd 4500:e", id="TS2"),
        pytest.param(
            {"service_us": 5000}, "a@0 b@2500 c@2600", "2000:a 9000:bc", id="TS3-the-window-begins-when-a-worker-comes"
        ),
        pytest.param(
            {"service_us": 5000}, "a@0 b@500 c@3000 d@6900", "2500:ab 9500:cd", id="TS3b-only-whole-ms-are-deducted"
        ),
        pytest.param(
            {"service_us": 5000, "exact_clock": True}, "a@0 b@500 c@3000 d@6900", "2000:ab 9000:cd",
            id="TS3b-with-an-exact-clock",
        ),
        pytest.param(
            {"service_us": 5000}, "a@0 b@2100 c@2200 d@2300 e@2400 f@2500", "2000:a 7000:bcde 14000:f", id="TS4"
        ),
        pytest.param(
            {"service_us": 10_000, "instances": 2}, "a@0 b@100 c@2500 d@2600", "2100:ab 4600:cd", id="TS5-two-workers"
        ),
        pytest.param(
            {"service_us": 5000, "max_batch_delay_ms": 0}, "a@0 b@100 c@200 d@300 e@400", "0:a 5000:bc 10000:de",
            id="TS6-without-delay-two-at-most",
        ),
        pytest.param({"batch_size": 1}, "a@0 b@100 c@200", "0:a 1000:b 2000:c", id="TS7"),
        pytest.param({"timer_slack_us": 350}, "a@0", "2350:a", id="late-timers"),
        pytest.param({"rows": 4}, "a@0x3 b@100x2", "100:a 3100:b", id="a-batch-is-closed-by-the-cap-in-rows"),
        pytest.param({"rows": 4}, "a@0x3 b@100", "100:ab", id="nothing-more-fits"),
        pytest.param({}, "a@0#p b@100#q c@200#p", "100:a 1100:b 4100:c", id="a-batch-is-closed-by-another-shape"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(changes, load, expected):
    outcome = run(load, **changes)

    assert starts(outcome) == expected


def test_two_workers_collect_one_after_the_other_in_the_order_in_which_they_became_idle():
    outcome = run("a@0 b@100 c@2500 d@2600", service_us=10_000, instances=2)

    assert [execution.instance for execution in outcome.executions] == ["instance_0", "instance_1"]


def test_the_queue_limit_counts_only_what_no_worker_has_taken_ts8():
    outcome = run("a@0 b@2100 c@2200 d@2300", service_us=5000, job_queue_size=2)

    assert starts(outcome) == "2000:a 9000:bc"
    assert refused(outcome) == "d"


def test_a_job_ticket_is_needed_to_be_admitted_ts9():
    outcome = run("a@1000 b@1100 c@4500", use_job_ticket=True)  # at 0 the worker has not come

    assert starts(outcome) == "3000:a 6500:c"
    assert refused(outcome) == "b"


def test_a_batch_of_two_brings_back_one_job_ticket():
    outcome = run("a@1000 b@1100 c@9000 d@9100 e@20000", use_job_ticket=True, instances=2)

    assert starts(outcome) == "3100:ab 11000:c 22000:e"
    assert refused(outcome) == "d"


def test_who_leaves_before_its_batch_starts_gives_its_job_ticket_back():
    scheduler = Scheduler(TorchServe(TorchServeSettings(batch_size=4, use_job_ticket=True)), Limits(max_batch_rows=BIG))
    load = [
        Arrival(name="a", at_ns=1 * MICROSECOND_NS, leaves_ns=MICROSECOND_NS),
        Arrival(name="b", at_ns=3 * MICROSECOND_NS),
        Arrival(name="c", at_ns=4 * MICROSECOND_NS),
    ]

    outcome = Simulation(scheduler, constant_us(1000)).run(load)

    assert starts(outcome) == "100003:b"
    assert refused(outcome) == "c"


def test_expired_requests_use_up_polls_and_the_first_is_not_checked_ts10():
    outcome = run("a@0 b@2100 c@2200 d@2300 e@7500 f@7600", service_us=6000, client_timeout_in_mills=3)

    assert starts(outcome) == "2000:a 8000:be 16000:f"
    assert dropped_us(outcome) == "c@8000 d@8000"


def test_without_faithfulness_requests_expire_on_time():
    outcome = run("a@0 b@2100 c@2200 d@2300 e@7500 f@7600", service_us=6000, client_timeout_in_mills=3, faithful=False)

    assert starts(outcome) == "2000:a 10000:ef"
    assert dropped_us(outcome) == "b@5100 c@5200 d@5300"


def test_without_faithfulness_a_request_may_expire_within_a_window():
    outcome = run("a@0 b@8000", client_timeout_in_mills=3, max_batch_delay_ms=10, batch_size=2, faithful=False)

    assert starts(outcome) == ""
    assert dropped_us(outcome) == "a@3000 b@11000"


Plain = tuple[int, tuple[str, ...]]


def worker_loop(load: Sequence[Arrival], settings: TorchServeSettings, service_ns: int, workers: int) -> list[Plain]:
    """The rule as a worker's blocking loop; workers take the lock in the order in which they became idle."""
    tick = 1 if settings.exact_clock else 1_000_000
    pending, free, lock_ns, batches = list(load), [0] * workers, 0, []
    while pending:
        now = max(free.pop(0), lock_ns, pending[0].at_ns)
        members = [pending.pop(0).name]
        remaining, began = settings.max_batch_delay_ms * 1_000_000, now
        for _ in range(settings.batch_size - 1):
            if not pending or pending[0].at_ns > now + remaining:
                now += remaining
                break
            found = pending.pop(0)
            now = max(now, found.at_ns)
            remaining -= (now // tick - began // tick) * tick
            began = now
            if not settings.timeout_ns or now - found.at_ns <= settings.timeout_ns:
                members.append(found.name)
            if remaining <= 0:
                break
        lock_ns = now
        batches.append((now, tuple(members)))
        free = sorted([*free, now + service_ns])
    return batches


loads = st.lists(st.integers(1, 40_000_000), max_size=30, unique=True).map(
    lambda moments: [Arrival(name=f"r{number}", at_ns=at_ns) for number, at_ns in enumerate(sorted(moments))]
)
configurations = st.builds(
    TorchServeSettings,
    batch_size=st.integers(1, 6),
    max_batch_delay_ms=st.integers(0, 5),
    client_timeout_in_mills=st.sampled_from([0, 3, 8]),
    exact_clock=st.booleans(),
)


@given(loads, configurations, st.integers(1, 3))
def test_batches_are_those_of_a_workers_blocking_loop(load, settings, workers):
    outcome = simulate(TorchServe(settings), load, max_batch_rows=BIG, service_us=3_001, instances=workers)

    batches = [(execution.start_ns, execution.members) for execution in outcome.executions]
    assert batches == worker_loop(load, settings, 3_001_000, workers)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"batch_size": 0}, "batch_size must be at least 1, found 0", id="no-batch"),
        pytest.param({"max_batch_delay_ms": -1}, "max_batch_delay_ms must be at least 0", id="negative-delay"),
        pytest.param({"job_queue_size": 0}, "job_queue_size must be at least 1", id="no-queue"),
        pytest.param({"client_timeout_in_mills": -1}, "client_timeout_in_mills", id="negative-timeout"),
        pytest.param({"timer_slack_us": -1}, "timer_slack_us", id="early-timers"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        TorchServeSettings(**settings)
