"""LitServe's rule: worked examples, a worker's loop written down as such, and its kinship with greedy."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from batching.policies.greedy import Greedy
from batching.policies.litserve import LitServe, LitServeSettings
from batching.simulation import Arrival, Outcome
from tests.batching.builders import arrivals, simulate, starts

BIG = 64  # rows; no batch of these tests comes near it unless it says so


def run(load: str, *, service_us: int = 5000, instances: int = 1, rows: int = BIG, **changes: object) -> Outcome:
    settings = LitServeSettings(**{"max_batch_size": 4, "batch_timeout": 0.01, **changes})
    return simulate(LitServe(settings), arrivals(load), max_batch_rows=rows, service_us=service_us, instances=instances)


def dropped_us(outcome: Outcome) -> str:
    return " ".join(f"{name}@{at_ns // MICROSECOND_NS}" for name, at_ns, _ in outcome.dropped)


@pytest.mark.parametrize(
    ("changes", "load", "expected"),
    [
        pytest.param({}, "a@13000", "20000:a", id="LS1-windows-run-from-when-the-worker-entered"),
        pytest.param({}, "a@19900 b@20100", "20000:a 35000:b", id="LS2"),
        pytest.param({}, "a@12000 b@13000 c@14000 d@15000 e@15500", "15000:abcd 30000:e", id="LS3"),
        pytest.param({}, "a@12000 b@21000 c@24000 d@26000", "20000:a 35000:bcd", id="LS4"),
        pytest.param({"batch_timeout": 0}, "a@100 b@200 c@300 d@6000", "100:a 5100:bc 10100:d", id="LS5"),
        pytest.param(
            {"batch_timeout": 0}, "a@100 b@200 c@300 d@400 e@450 f@460", "100:a 5100:bcde 10100:f", id="LS6"
        ),
        pytest.param(
            {"instances": 2}, "a@12000 b@13000 c@14000 d@15000", "20000:ac 20000:bd", id="LS7-workers-take-turns"
        ),
        pytest.param(
            {"instances": 2}, "a@100 b@100 c@100 d@100", "10000:ac 10000:bd", id="also-with-those-of-one-moment"
        ),
        pytest.param({"max_batch_size": 1}, "a@100 b@200", "100:a 5100:b", id="single-requests-do-not-wait"),
        pytest.param({}, "a@20000", "30000:a", id="the-end-of-a-window-belongs-to-the-next"),
        pytest.param({}, "a@15000 b@20000", "20000:a 35000:b", id="so-nobody-joins-at-the-very-end"),
        pytest.param({"answer_us": 50}, "a@19900 b@20100", "20000:a 35050:b", id="answering-comes-before-the-window"),
        pytest.param(
            {"answer_us": 50, "batch_timeout": 0}, "a@0 b@100 c@5020", "0:a 5050:bc", id="answering-comes-before-taking"
        ),
        pytest.param(
            {"get_us": 50, "batch_timeout": 0}, "a@0 b@0 c@60", "150:abc", id="who-comes-during-a-get-joins"
        ),
        pytest.param(
            {"get_us": 400, "batch_timeout": 0.001}, "a@0 b@0 c@0 d@0", "1200:abc 7200:d",
            id="a-window-has-time-for-so-many-gets",
        ),
        pytest.param({"rows": 4}, "a@1000x3 b@1100x2", "1100:a 16100:b", id="a-batch-is-closed-by-the-cap-in-rows"),
        pytest.param({"rows": 4}, "a@1000x3 b@1100", "1100:ab", id="nothing-more-fits"),
        pytest.param({}, "a@1#p b@100#q c@200#p", "100:a 5100:b 20100:c", id="a-batch-is-closed-by-another-shape"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(changes, load, expected):
    outcome = run(load, **changes)

    assert starts(outcome) == expected


def test_who_is_too_late_is_refused_when_a_worker_takes_it_ls8():
    outcome = run("a@100 b@200 c@4900", batch_timeout=0, timeout=0.004)

    assert starts(outcome) == "100:a 5100:c"
    assert dropped_us(outcome) == "b@5100"


def test_who_is_too_late_does_not_count_for_the_batch():
    load = "a@100 b@200 c@300 d@4900 e@4901 f@4902 g@4903"

    outcome = run(load, batch_timeout=0, timeout=0.004)

    assert starts(outcome) == "100:a 5100:defg"
    assert dropped_us(outcome) == "b@5100 c@5100"


def test_who_is_too_late_does_not_close_a_batch():
    load = "a@0 b@2000x2p2 c@10000x3p1"  # the worker is free at 11000; b would not fit beside c

    outcome = run(load, rows=4, batch_timeout=0.001, timeout=0.004, service_us=10_000)

    assert starts(outcome) == "1000:a 12000:c"
    assert dropped_us(outcome) == "b@11000"


def test_without_faithfulness_requests_are_refused_on_time():
    outcome = run("a@100 b@200 c@4900", batch_timeout=0, timeout=0.004, faithful=False)

    assert starts(outcome) == "100:a 5100:c"
    assert dropped_us(outcome) == "b@4200"


@pytest.mark.parametrize("timeout", [None, False, -1, 0])
def test_the_timeout_can_be_turned_off(timeout):
    outcome = run("a@100 b@200", batch_timeout=0, timeout=timeout, service_us=40_000_000)

    assert starts(outcome) == "100:a 40000100:b"


def test_empty_windows_cost_nothing():
    hour_us = 3_600_000_000

    outcome = run(f"a@{hour_us + 1}")

    assert starts(outcome) == f"{hour_us + 10_000}:a"
    assert len(outcome.commands) == 1


Plain = list[tuple[int, tuple[str, ...]]]


def worker_loop(load: Sequence[Arrival], settings: LitServeSettings, service_ns: int) -> Plain:
    """The rule as a worker's blocking loop, window by window."""
    pending, now, batches = list(load), 0, []
    while pending:
        members, end = [], now + settings.window_ns
        while len(members) < settings.max_batch_size and pending and pending[0].at_ns < end:
            found = pending.pop(0)
            now = max(now, found.at_ns)
            if settings.timeout_ns is None or now - found.at_ns <= settings.timeout_ns:
                members.append(found.name)
        now = now if len(members) == settings.max_batch_size else end
        if members:
            batches.append((now, tuple(members)))
            now += service_ns
    return batches


def plain(outcome: Outcome) -> Plain:
    return [(execution.start_ns, execution.members) for execution in outcome.executions]


loads = st.lists(st.integers(1, 60_000_000), max_size=30, unique=True).map(
    lambda moments: [Arrival(name=f"r{number}", at_ns=at_ns) for number, at_ns in enumerate(sorted(moments))]
)


@given(loads, st.integers(2, 6), st.integers(1, 6), st.sampled_from([None, 0.006, 0.009]))
def test_batches_of_one_worker_are_those_of_its_blocking_loop(load, size, window_ms, timeout_s):
    settings = LitServeSettings(max_batch_size=size, batch_timeout=window_ms / 1000, timeout=timeout_s)

    outcome = simulate(LitServe(settings), load, max_batch_rows=BIG, service_us=7_001)

    assert plain(outcome) == worker_loop(load, settings, 7_001_000)


@given(loads, st.integers(1, 6), st.integers(1, 3))
def test_without_a_window_it_is_greedy(load, size, instances):
    reference = simulate(Greedy(max_requests=size), load, max_batch_rows=BIG, service_us=3_001, instances=instances)
    assume(not {arrival.at_ns for arrival in load} & {execution.end_ns for execution in reference.executions})

    policy = LitServe(LitServeSettings(max_batch_size=size))
    outcome = simulate(policy, load, max_batch_rows=BIG, service_us=3_001, instances=instances)

    assert plain(outcome) == plain(reference)


@given(loads, st.integers(1, 6), st.integers(0, 3), st.integers(1, 3))
def test_slow_gets_lose_nobody_and_keep_the_order(load, size, window_ms, instances):
    settings = LitServeSettings(max_batch_size=size, batch_timeout=window_ms / 1000, get_us=170, answer_us=90)

    outcome = simulate(LitServe(settings), load, max_batch_rows=BIG, service_us=1_001, instances=instances)

    in_order = sorted(
        (name for execution in outcome.executions for name in execution.members), key=lambda n: int(n[1:])
    )
    assert in_order == [arrival.name for arrival in load]
    for execution in outcome.executions:
        latest_ns = max(arrival.at_ns for arrival in load if arrival.name in execution.members)
        assert execution.start_ns >= latest_ns + 170 * MICROSECOND_NS
        assert execution.rows <= size


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size must be at least 1, found 0", id="no-batch"),
        pytest.param({"batch_timeout": -0.1}, "batch_timeout must be at least 0", id="negative-window"),
        pytest.param({"timeout": -2}, "timeout must be positive, or None, False or -1", id="negative-timeout"),
        pytest.param({"batch_timeout": 2, "timeout": 1}, "batch_timeout must not be above timeout", id="longer"),
        pytest.param({"get_us": -1}, "get_us", id="gets-before-their-time"),
        pytest.param({"answer_us": -1}, "answer_us", id="answers-before-their-time"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        LitServeSettings(**settings)


def test_a_window_may_be_longer_than_a_timeout_that_is_off():
    assert LitServeSettings(batch_timeout=60, max_batch_size=2, timeout=-1).window_ns == 60_000 * MILLISECOND_NS
