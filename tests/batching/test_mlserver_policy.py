"""MLServer's adaptive batching against worked examples (largest batch 4, window 10 ms), and its forming."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.commands import Start
from batching.core.events import Arrived, InstanceJoined
from batching.policies.mlserver import MLServer, MLServerSettings
from batching.policies.rayserve import RayServe, RayServeSettings
from batching.simulation import Arrival
from tests.batching.builders import arrivals, scheduler, simulate, starts
from tests.batching.formed import formed


def mlserver(**settings) -> MLServer:
    return MLServer(MLServerSettings(**{"max_batch_size": 4, "max_batch_time": 0.01, **settings}))


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param("a@0", "10000:a", id="ML1-a-lone-request-waits-the-window"),
        pytest.param("a@0 b@1000 c@2000 d@3000 e@3500", "3000:abcd 13500:e", id="ML2"),
        pytest.param("a@0 b@9000 c@12000 d@25000", "10000:ab 22000:c 35000:d", id="ML3"),
        pytest.param("a@0 b@0 c@0 d@0 e@0 f@0", "0:abcd 10000:ef", id="ML4-the-rest-begins-at-the-hand-over"),
        pytest.param("a@0x9 b@0x9 c@0x9 d@0x9", "0:abcd", id="requests-count-whatever-their-rows"),
    ],
)
def test_batches_are_those_of_the_worked_example(load, expected):
    outcome = simulate(mlserver(), arrivals(load), max_batch_rows=100, instances=8)

    assert starts(outcome) == expected


def test_batches_overlap_without_limit():
    load = [Arrival(name=name, at_ns=number * 500 * MICROSECOND_NS) for number, name in enumerate("abcdefghijkl")]

    outcome = simulate(mlserver(max_batch_size=2), load, max_batch_rows=2, service_us=1_000_000, instances=6)

    assert starts(outcome) == "500:ab 1500:cd 2500:ef 3500:gh 4500:ij 5500:kl"  # ML5


def test_without_an_idle_slot_formed_batches_start_in_order():
    outcome = simulate(mlserver(), arrivals("a@0 b@11000 c@22000 d@22001"), max_batch_rows=4, service_us=50_000)

    assert starts(outcome) == "10000:a 60000:b 110000:cd"
    assert formed(outcome) == "10000:a 21000:b 32000:cd"


def test_the_cap_in_rows_and_another_shape_close_a_batch():
    outcome = simulate(mlserver(), arrivals("a@0x3 b@100x2 c@200#q"), max_batch_rows=4, instances=3)

    assert starts(outcome) == "100:a 200:b 10200:c"


def test_who_comes_after_the_window_does_not_join_although_the_clock_is_looked_at_late():
    core = scheduler(mlserver(), 4)
    core.handle([InstanceJoined("i"), Arrived(core.reserve(1, 0))], 0)

    (start,) = core.handle([Arrived(core.reserve(1, 10_000_001))], 10_000_001)

    assert start.tickets == (1,)
    assert core.wake_at_ns == 20_000_001


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_batch_size": 0}, id="default-size"),
        pytest.param({"max_batch_size": 1}, id="one"),
        pytest.param({"max_batch_time": 0.0}, id="no-time"),
    ],
)
def test_batching_is_off_unless_size_and_time_are_given(settings):
    outcome = simulate(mlserver(**settings), arrivals("a@0 b@0 c@100"), max_batch_rows=8)

    assert starts(outcome) == "0:a 1000:b 2000:c"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": -1}, "max_batch_size must not be negative", id="size"),
        pytest.param({"max_batch_time": -0.1}, "max_batch_time must not be negative", id="time"),
        pytest.param({"max_batch_time": float("inf")}, "max_batch_time", id="endless"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        MLServerSettings(**settings)


def by_a_loop(moments_us: list[int], largest: int, window_us: int) -> list[tuple[int, int]]:
    """When which number of requests is closed, by the loop as one would write it on paper."""
    batches, now_us = [], 0
    waiting = list(moments_us)
    while waiting:
        now_us = max(now_us, waiting[0])
        ends_us = now_us + window_us
        members = [moment for moment in waiting[:largest] if moment <= ends_us]
        now_us = max(now_us, members[-1]) if len(members) == largest else ends_us
        batches.append((now_us, len(members)))
        waiting = waiting[len(members) :]
    return batches


@given(
    st.lists(st.integers(0, 30_000) | st.sampled_from([0, 5_000, 10_000]), min_size=1, max_size=40),
    st.integers(2, 5),
    st.sampled_from([500, 2_000, 10_000]),
    st.integers(1, 3),
)
def test_mlserver_and_ray_serve_form_batches_alike(moments_us, largest, window_us, instances):
    moments_us = sorted(moments_us)
    load = [Arrival(name=f"r{n}", at_ns=at_us * MICROSECOND_NS) for n, at_us in enumerate(moments_us)]
    ray = RayServe(
        RayServeSettings(
            max_batch_size=largest, batch_wait_timeout_s=window_us / 1_000_000, max_concurrent_batches=1000
        )
    )
    policies = (mlserver(max_batch_size=largest, max_batch_time=window_us / 1_000_000), ray)

    outcomes = [simulate(policy, load, max_batch_rows=8, instances=instances) for policy in policies]

    for outcome in outcomes:
        begun = [command for _, command in outcome.commands if isinstance(command, Start)]
        assert [(start.sealed_ns // MICROSECOND_NS, start.rows) for start in begun] == by_a_loop(
            moments_us, largest, window_us
        )
