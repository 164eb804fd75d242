"""Triton's batcher against worked examples of its rule (service time 1000 us, one instance unless given)."""

import pytest

from batching.clock import MICROSECOND_NS
from batching.policies.triton import TritonPrefetch, TritonSettings
from tests.batching.builders import arrivals, simulate, starts

SECOND_US = 1_000_000


def triton(largest: int, delay_us: int = 0, preferred: tuple[int, ...] = (), *, shapes: bool = False) -> TritonPrefetch:
    settings = TritonSettings(
        preferred_batch_size=preferred, max_queue_delay_ns=delay_us * MICROSECOND_NS, check_shapes=shapes
    )
    return TritonPrefetch(settings, largest)


@pytest.mark.parametrize(
    ("policy", "largest", "service_us", "instances", "load", "expected"),
    [
        pytest.param(triton(4), 4, 1000, 1, "a@0 b@100 c@200 d@300", "0:a 1000:bcd", id="T1"),
        pytest.param(triton(4), 4, 1000, 1, "a@0 b@100 c@200 d@300 e@400 f@500", "0:a 1000:bcde 2000:f", id="T2"),
        pytest.param(
            triton(4, preferred=(2, 4)), 4, 1000, 1, "a@0 b@100 c@200 d@300 e@400 f@500",
            "0:a 1000:bc 2000:de 3000:f", id="T3-saturates-at-the-first-preferred-size",
        ),
        pytest.param(
            triton(8, preferred=(2, 4)), 8, 1000, 1,
            "a@0 b@100 c@200 d@300 e@400 f@500 g@600 h@700 i@800 j@900",
            "0:a 1000:bc 2000:defg 3000:hi 4000:j", id="T3b-two-staged-payloads-at-most",
        ),
        pytest.param(triton(4, 500), 4, 1000, 1, "a@0 b@200 c@400 d@600", "500:abc 1500:d", id="T4"),
        pytest.param(triton(4, 500), 4, 1000, 1, "a@0 b@100 c@200 d@300", "300:abcd", id="T4b"),
        pytest.param(
            triton(8, 500), 8, 2000, 1, "a@0 b@600 c@1200 d@1300", "500:a 2500:b 4500:cd",
            id="T5-single-arrivals-do-not-wake-the-batcher",
        ),
        pytest.param(
            triton(8, 500, shapes=True), 8, 2000, 1, "a@0 b@600 c@1200 d@1300", "500:a 2500:bcd",
            id="T5s-with-shape-checks-they-do",
        ),
        pytest.param(triton(4), 4, 1000, 1, "a@0x3 b@10x3 c@20x2 d@30x1", "0:a 1000:b 2000:cd", id="T6"),
        pytest.param(
            triton(4, 500), 4, 1000, 1, "a@0x3 b@10x3 c@20x1", "10:a 1010:bc", id="T6d-overflow-sends-early"
        ),
        pytest.param(triton(4), 4, 1000, 2, "a@0 b@10 c@20 d@30 e@40", "0:a 10:b 1000:cde", id="T7-two-instances"),
        pytest.param(
            triton(4, shapes=True), 4, 1000, 1, "a@0#p b@100#p c@200#q d@300#p", "0:a 1000:b 2000:c 3000:d",
            id="T8-nothing-overtakes-another-shape",
        ),
        pytest.param(
            triton(8, 500, (4,)), 8, 1000, 1, "a@0 b@10 c@20 d@30 e@40 f@50", "30:abcd 1030:ef", id="T11"
        ),
        pytest.param(
            triton(8, 500, (4,)), 8, 3000, 1, "a@0 b@1000 c@1000 d@1000 e@1000 f@1400 g@1500 h@1600 i@1700",
            "500:a 3500:bcdefghi", id="T13-payloads-merge-at-dequeue",
        ),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, f"a@0x2 b@{SECOND_US}x6", f"0:a {SECOND_US}:b", id="Q1"
        ),
        pytest.param(triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, "a@0x3", f"{10 * SECOND_US}:a", id="Q2"),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, "a@0x7", "0:a", id="Q3-above-the-largest-preferred-at-once"
        ),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, f"a@0 b@{SECOND_US}x3", f"{10 * SECOND_US}:ab", id="Q4"
        ),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6), shapes=True), 8, 1000, 1,
            f"a@0#p b@0x3#p c@{SECOND_US}#q d@{SECOND_US}x5#q", f"{SECOND_US}:ab {SECOND_US + 1000}:cd",
            id="Q5-another-shape-closes-the-batch",
        ),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, f"a@0x3 b@{SECOND_US}x4",
            f"{SECOND_US}:a {11 * SECOND_US}:b", id="Q6",
        ),
        pytest.param(
            triton(8, 10 * SECOND_US, (2, 6)), 8, 1000, 1, f"a@0x3 b@{SECOND_US}x7",
            f"{SECOND_US}:a {SECOND_US + 1000}:b", id="Q7",
        ),
        pytest.param(
            triton(6, preferred=(4, 6)), 6, 1000, 1, "a@0 b@0 c@0 d@0 e@0 f@0 g@0", "0:abcdef 1000:g",
            id="Q9-the-largest-preferred-size-then-the-rest",
        ),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(policy, largest, service_us, instances, load, expected):
    outcome = simulate(
        policy, arrivals(load), max_batch_rows=largest, service_us=service_us, instances=instances
    )  # fmt: skip

    assert starts(outcome) == expected


def test_a_request_behind_a_staged_payload_is_found_by_the_poll():
    load = arrivals(f"a@0 b@600 c@1200 d@{3 * SECOND_US}")

    outcome = simulate(triton(8, 500), load, max_batch_rows=8, service_us=2 * SECOND_US)

    # c does not wake the batcher; its poll, 500 ms after it staged b at 1100 us, lets c join b.
    assert starts(outcome) == f"500:a {2 * SECOND_US + 500}:bc {4 * SECOND_US + 500}:d"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"preferred_batch_size": (0,)}, "positive", id="zero"),
        pytest.param({"preferred_batch_size": (4, 2)}, "ascend", id="descending"),
        pytest.param({"max_queue_delay_ns": -1}, "negative", id="negative-delay"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        TritonSettings(**settings)


def test_a_preferred_size_above_the_cap_is_refused():
    with pytest.raises(ValueError, match="16 is above max_batch_size 8"):
        TritonPrefetch(TritonSettings(preferred_batch_size=(16,)), 8)
