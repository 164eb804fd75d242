"""Triton's batcher against worked examples of its rule (service time 1000 us, one instance unless given)."""

import re

import pytest

from batching.clock import MICROSECOND_NS
from batching.core.commands import Release, Start
from batching.core.errors import QueueFullError
from batching.core.events import (
    Arrived,
    BatchDone,
    CapChanged,
    InstanceFree,
    InstanceJoined,
    Reconfigured,
    Timer,
)
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.triton import (
    QueuePolicy,
    TritonExperiments,
    TritonLatencies,
    TritonSettings,
    create_triton,
)
from batching.simulation import Arrival
from tests.batching.builders import arrivals, scheduler, simulate, starts

SECOND_US = 1_000_000
LATE = TritonExperiments(bind="late")


def triton(largest, delay_us=0, preferred=(), *, experiments=None, latencies=None, queue=None, **settings):
    if queue is not None:
        settings["default_queue_policy"] = QueuePolicy(**queue)
    return create_triton(
        TritonSettings(preferred_batch_size=preferred, max_queue_delay_microseconds=delay_us, **settings),
        largest,
        experiments=experiments,
        latencies=latencies,
    )


def vector(name, policy, largest, load, expected, *, service_us=1000, instances=1):
    return pytest.param(policy, largest, load, expected, service_us, instances, id=name)


PREFERRED = {"largest": 8, "delay_us": 10 * SECOND_US, "preferred": (2, 6)}
TEN = "a@0 b@100 c@200 d@300 e@400 f@500 g@600 h@700 i@800 j@900"
T5 = "a@0 b@600 c@1200 d@1300"
T13 = "a@0 b@1000 c@1000 d@1000 e@1000 f@1400 g@1500 h@1600 i@1700"


@pytest.mark.parametrize(
    ("policy", "largest", "load", "expected", "service_us", "instances"),
    [
        vector("T1", triton(4), 4, "a@0 b@100 c@200 d@300", "0:a 1000:bcd"),
        vector("T2", triton(4), 4, "a@0 b@100 c@200 d@300 e@400 f@500", "0:a 1000:bcde 2000:f"),
        vector(
            "T3-saturates-at-the-first-preferred-size", triton(4, preferred=(2, 4)), 4,
            "a@0 b@100 c@200 d@300 e@400 f@500", "0:a 1000:bc 2000:de 3000:f",
        ),
        vector(
            "T3b-two-staged-payloads-at-most", triton(8, preferred=(2, 4)), 8, TEN,
            "0:a 1000:bc 2000:defg 3000:hi 4000:j",
        ),
        vector("T4", triton(4, 500), 4, "a@0 b@200 c@400 d@600", "500:abc 1500:d"),
        vector("T4b", triton(4, 500), 4, "a@0 b@100 c@200 d@300", "300:abcd"),
        vector(
            "T5-single-arrivals-do-not-wake-the-batcher", triton(8, 500), 8, T5, "500:a 2500:b 4500:cd",
            service_us=2000,
        ),
        vector(
            "T5s-with-shape-checks-they-do", triton(8, 500, check_shapes=True), 8, T5, "500:a 2500:bcd",
            service_us=2000,
        ),
        vector(
            "T5n-with-a-queue-policy-nothing-is-staged", triton(8, 500, queue={"max_queue_size": 100}), 8, T5,
            "500:a 2500:bcd", service_us=2000,
        ),
        vector("T6", triton(4), 4, "a@0x3 b@10x3 c@20x2 d@30x1", "0:a 1000:b 2000:cd"),
        vector("T6d-overflow-sends-early", triton(4, 500), 4, "a@0x3 b@10x3 c@20x1", "10:a 1010:bc"),
        vector("T7-two-instances", triton(4), 4, "a@0 b@10 c@20 d@30 e@40", "0:a 10:b 1000:cde", instances=2),
        vector(
            "T8-nothing-overtakes-another-shape", triton(4, check_shapes=True), 4, "a@0#p b@100#p c@200#q d@300#p",
            "0:a 1000:b 2000:c 3000:d",
        ),
        vector(
            "T9d-delayed-behind-the-others",
            triton(2, queue={"default_timeout_microseconds": 300, "timeout_action": "DELAY"}), 2,
            "a@0 b@100 c@900 d@950", "0:a 1000:cd 2000:b",
        ),
        vector("T11", triton(8, 500, (4,)), 8, "a@0 b@10 c@20 d@30 e@40 f@50", "30:abcd 1030:ef"),
        vector(
            "T13-payloads-merge-at-dequeue", triton(8, 500, (4,)), 8, T13, "500:a 3500:bcdefghi", service_us=3000
        ),
        vector(
            "T14-the-more-urgent-level-first", triton(2, priority_levels=2, default_priority_level=2), 2,
            "a@0p2 b@100p2 c@200p1", "0:a 1000:cb",
        ),
        vector("Q1", triton(**PREFERRED), 8, f"a@0x2 b@{SECOND_US}x6", f"0:a {SECOND_US}:b"),
        vector("Q2", triton(**PREFERRED), 8, "a@0x3", f"{10 * SECOND_US}:a"),
        vector("Q2-one", triton(**PREFERRED), 8, "a@0", f"{10 * SECOND_US}:a"),
        vector("Q3-above-the-largest-preferred-at-once", triton(**PREFERRED), 8, "a@0x7", "0:a"),
        vector("Q4", triton(**PREFERRED), 8, f"a@0 b@{SECOND_US}x3", f"{10 * SECOND_US}:ab"),
        vector(
            "Q5-another-shape-closes-the-batch", triton(**PREFERRED, check_shapes=True), 8,
            f"a@0#p b@0x3#p c@{SECOND_US}#q d@{SECOND_US}x5#q", f"{SECOND_US}:ab {SECOND_US + 1000}:cd",
        ),
        vector("Q6", triton(**PREFERRED), 8, f"a@0x3 b@{SECOND_US}x4", f"{SECOND_US}:a {11 * SECOND_US}:b"),
        vector("Q7", triton(**PREFERRED), 8, f"a@0x3 b@{SECOND_US}x7", f"{SECOND_US}:a {SECOND_US + 1000}:b"),
        vector(
            "Q9-the-largest-preferred-size-then-the-rest", triton(6, preferred=(4, 6)), 6,
            "a@0 b@0 c@0 d@0 e@0 f@0 g@0", "0:abcdef 1000:g",
        ),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(policy, largest, load, expected, service_us, instances):
    outcome = simulate(policy, arrivals(load), max_batch_rows=largest, service_us=service_us, instances=instances)

    assert starts(outcome) == expected


def enter(subject: Scheduler, at_us: int, *rows: int) -> list[int]:
    tickets = [subject.reserve(count, at_us * MICROSECOND_NS) for count in rows]
    subject.handle([Arrived(ticket) for ticket in tickets], at_us * MICROSECOND_NS)
    return tickets


def test_q8_a_batch_whose_delay_is_over_passes_the_preferred_sizes():
    subject = scheduler(triton(**PREFERRED), 8)
    waiting = [*enter(subject, 0, 3, 4), *enter(subject, 11 * SECOND_US, 1)]

    (started,) = subject.handle([InstanceJoined("i")], 11 * SECOND_US * MICROSECOND_NS)

    assert started.tickets == tuple(waiting)


def test_q10_the_rest_of_a_preferred_batch_waits_from_its_own_arrival():
    subject = scheduler(triton(**PREFERRED), 8)
    *both, last = [*enter(subject, 0, 1, 1), *enter(subject, SECOND_US, 1)]

    (first,) = subject.handle([InstanceJoined("i")], SECOND_US * MICROSECOND_NS)
    subject.handle([BatchDone(first.batch), InstanceFree(first.batch)], (SECOND_US + 1000) * MICROSECOND_NS)
    due_ns = subject.wake_at_ns
    (second,) = subject.handle([Timer()], due_ns)

    assert first.tickets == tuple(both)
    assert second.tickets == (last,)
    assert due_ns == 11 * SECOND_US * MICROSECOND_NS


def test_t9_a_late_request_is_refused_when_the_batcher_passes_it():
    policy = triton(4, queue={"default_timeout_microseconds": 300})

    outcome = simulate(policy, arrivals("a@0 b@100 c@900"), max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:c"
    assert list(outcome.dropped) == [("b", 1000 * MICROSECOND_NS, "timeout")]


def test_t9_unfaithfully_a_late_request_is_refused_on_time():
    policy = triton(4, queue={"default_timeout_microseconds": 300}, faithful=False)

    outcome = simulate(policy, arrivals("a@0 b@100 c@900"), max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:c"
    assert list(outcome.dropped) == [("b", 400 * MICROSECOND_NS, "timeout")]


def test_t9d_unfaithfully_a_delayed_request_moves_on_time():
    policy = triton(
        2, queue={"default_timeout_microseconds": 300, "timeout_action": "DELAY"}, faithful=False
    )  # fmt: skip

    outcome = simulate(policy, arrivals("a@0 b@100 c@900 d@950"), max_batch_rows=2)

    assert starts(outcome) == "0:a 1000:cd 2000:b"


def test_t10_a_full_level_refuses_at_once():
    policy = triton(4, queue={"max_queue_size": 2})

    outcome = simulate(policy, arrivals("a@0 b@100 c@200 d@300"), max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:bc"
    ((name, error),) = outcome.refused
    assert name == "d"
    assert isinstance(error, QueueFullError)


def test_t12_a_request_may_shorten_its_timeout():
    policy = triton(8, 500, queue={"default_timeout_microseconds": 1000, "allow_timeout_override": True})
    load = [
        Arrival(name="a", at_ns=0, timeout_ns=200 * MICROSECOND_NS),
        Arrival(name="b", at_ns=50 * MICROSECOND_NS),
    ]

    outcome = simulate(policy, load, max_batch_rows=8)

    assert starts(outcome) == "550:b"
    assert list(outcome.dropped) == [("a", 200 * MICROSECOND_NS + 1, "timeout")]  # strictly after


@pytest.mark.parametrize(
    ("timeout_us", "queue"),
    [
        pytest.param(2000, {"default_timeout_microseconds": 400, "allow_timeout_override": True}, id="not-longer"),
        pytest.param(200, {"default_timeout_microseconds": 400}, id="not-without-leave"),
    ],
)
def test_a_request_may_not_choose_its_timeout_otherwise(timeout_us, queue):
    load = [Arrival(name="a", at_ns=0, timeout_ns=timeout_us * MICROSECOND_NS)]

    outcome = simulate(triton(8, 500, queue=queue), load, max_batch_rows=8)

    assert list(outcome.dropped) == [("a", 400 * MICROSECOND_NS + 1, "timeout")]


def test_without_a_default_timeout_an_override_means_nothing():
    load = [Arrival(name="a", at_ns=0, timeout_ns=200 * MICROSECOND_NS)]

    outcome = simulate(triton(8, 500, queue={"allow_timeout_override": True}), load, max_batch_rows=8)

    assert starts(outcome) == "500:a"


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [pytest.param(None, "0:a 1000:c", id="T15-prefetch"), pytest.param(LATE, "0:a 1000:c", id="T15-late")],
)
def test_t15_who_leaves_before_the_batch_starts_is_not_in_it(experiments, expected):
    a, b, c = arrivals("a@0 b@100 c@200")
    leaving = Arrival(name=b.name, at_ns=b.at_ns, leaves_ns=400 * MICROSECOND_NS)

    outcome = simulate(triton(4, experiments=experiments), [a, leaving, c], max_batch_rows=4)

    assert starts(outcome) == expected


def test_t16_answers_leave_in_the_order_of_batching():
    subject = Scheduler(
        triton(1, preserve_ordering=True), Limits(max_batch_rows=1), preserve_ordering=True
    )  # fmt: skip
    subject.handle([InstanceJoined("i"), InstanceJoined("j")], 0)
    a, b = subject.reserve(1, 0), subject.reserve(1, 0)
    (slow,) = subject.handle([Arrived(a)], 0)
    (fast,) = subject.handle([Arrived(b)], 100 * MICROSECOND_NS)

    early = subject.handle([BatchDone(fast.batch), InstanceFree(fast.batch)], 1100 * MICROSECOND_NS)
    late = subject.handle([BatchDone(slow.batch), InstanceFree(slow.batch)], 3000 * MICROSECOND_NS)

    assert isinstance(slow, Start)
    assert isinstance(fast, Start)
    assert early == []
    assert late == [Release(a), Release(b)]


def test_a_request_behind_a_staged_payload_is_found_by_the_poll():
    load = arrivals(f"a@0 b@600 c@1200 d@{3 * SECOND_US}")

    outcome = simulate(triton(8, 500), load, max_batch_rows=8, service_us=2 * SECOND_US)

    # c does not wake the batcher; its poll, 500 ms after it staged b at 1100 us, lets c join b.
    assert starts(outcome) == f"500:a {2 * SECOND_US + 500}:bc {4 * SECOND_US + 500}:d"


def test_behind_busy_instances_late_requests_are_refused_at_the_second_poll():
    policy = triton(4, queue={"default_timeout_microseconds": 300})

    outcome = simulate(policy, arrivals("a@0 b@100"), max_batch_rows=4, service_us=3 * SECOND_US)

    # The first poll, 500 ms after the queue was empty, finds b and no idle instance; the second gives up on it.
    assert list(outcome.dropped) == [("b", SECOND_US * MICROSECOND_NS, "timeout")]


def test_a_more_urgent_arrival_goes_before_a_pending_prefix():
    policy = triton(3, 500, priority_levels=2, default_priority_level=2)

    outcome = simulate(policy, arrivals("a@0p2 b@100p1"), max_batch_rows=3)

    assert starts(outcome) == "500:ba"  # the delay is that of the oldest, not of the first


def test_a_limit_counts_each_level_and_those_who_are_still_decoded():
    policy = triton(4, priority_levels=2, default_priority_level=1, queue={"max_queue_size": 1})
    subject = scheduler(policy, 4)
    subject.reserve(1, 0, priority=1)

    subject.reserve(1, 0, priority=2)

    with pytest.raises(QueueFullError):
        subject.reserve(1, 0, priority=1)


def test_levels_may_have_policies_of_their_own():
    settings = TritonSettings(
        priority_levels=2,
        default_priority_level=2,
        priority_queue_policy={1: QueuePolicy(default_timeout_microseconds=300)},
    )

    outcome = simulate(create_triton(settings, 4), arrivals("a@0p2 b@100p1 c@200p2"), max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:c"
    assert [name for name, _, _ in outcome.dropped] == ["b"]


def test_who_joins_a_staged_payload_leaves_it_with_the_others():
    a, b, c, d = arrivals("a@0 b@100 c@200 d@400")
    leaving = [Arrival(name=one.name, at_ns=one.at_ns, leaves_ns=150 * MICROSECOND_NS) for one in (b, c)]

    outcome = simulate(triton(4), [a, *leaving, d], max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:d"


@pytest.mark.parametrize(
    ("latencies", "policy", "load", "expected"),
    [
        pytest.param({"reaction_us": 50}, {}, "a@0 b@30 c@60", "50:ab 1050:c", id="the-batcher-wakes-late"),
        pytest.param({"handoff_us": 60}, {}, "a@0 b@30 c@70 d@80", "60:ab 1060:cd", id="the-instance-takes-late-once"),
        pytest.param(
            {"timer_slack_us": 60}, {"delay_us": 500}, "a@0 b@540 c@570", "560:ab 1560:c", id="the-wait-ends-late",
        ),
        pytest.param(
            {"reaction_us": 50, "handoff_us": 60}, {}, "a@0 b@55 c@70 d@71 e@120", "110:abcd 1110:e", id="both",
        ),
        pytest.param(
            {"reaction_us": 50, "jitter": lambda latency_ns: 2 * latency_ns}, {}, "a@0 b@70", "100:ab",
            id="with-jitter",
        ),
        pytest.param(
            {"reaction_us": 50}, {"experiments": LATE}, "a@0 b@100 c@1040", "50:a 1100:bc",
            id="late-binding-reacts-to-a-completion",
        ),
    ],
)  # fmt: skip
def test_threads_of_a_real_server_need_time(latencies, policy, load, expected):
    subject = triton(8, latencies=TritonLatencies(**latencies), **policy)

    assert starts(simulate(subject, arrivals(load), max_batch_rows=8)) == expected


@pytest.mark.parametrize(
    ("experiments", "policy", "load", "service_us", "expected"),
    [
        pytest.param(
            {"merge_at_dequeue": False}, {"delay_us": 500, "preferred": (4,)}, T13, 3000, "500:a 3500:bcdef 6500:ghi",
            id="no-merge",
        ),
        pytest.param(
            {"staged_payloads_per_instance": 1}, {"preferred": (2, 4)}, TEN, 1000, "0:a 1000:b 2000:cdef 3000:ghij",
            id="one-staged-payload",
        ),
        pytest.param(
            {"staged_payloads_per_instance": None}, {"preferred": (2, 4)}, TEN, 1000,
            "0:a 1000:bc 2000:de 3000:fg 4000:hi 5000:j", id="any-number-of-staged-payloads",
        ),
        pytest.param({"every_arrival_wakes": True}, {"delay_us": 500}, T5, 2000, "500:a 2500:bcd", id="all-wake"),
        pytest.param({"dequeue_first": False}, {"delay_us": 500}, T5, 2000, "500:a 2500:bcd", id="batcher-first"),
        pytest.param({"bind": "late"}, {"delay_us": 500}, T5, 2000, "500:a 2500:bcd", id="late"),
        pytest.param(
            {"bind": "prefetch"}, {"delay_us": 500, "queue": {"max_queue_size": 9}}, T5, 2000, "500:a 2500:b 4500:cd",
            id="prefetch",
        ),
    ],
)  # fmt: skip
def test_experiments_change_one_part_of_the_rule(experiments, policy, load, service_us, expected):
    subject = triton(8, experiments=TritonExperiments(**experiments), **policy)

    assert starts(simulate(subject, arrivals(load), max_batch_rows=8, service_us=service_us)) == expected


LEVELS = {"priority_levels": 2, "default_priority_level": 1}
DELAYS = QueuePolicy(timeout_action="DELAY", default_timeout_microseconds=5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TritonSettings(preferred_batch_size=(0,)), "preferred_batch_size must be positive, found [0]"),
        (lambda: TritonSettings(max_queue_delay_microseconds=-1), "max_queue_delay_microseconds must not be negative"),
        (lambda: TritonSettings(priority_levels=-1), "priority_levels must not be negative, found -1"),
        (lambda: TritonSettings(priority_levels=2), "default_priority_level must be 1 to 2, found 0"),
        (lambda: TritonSettings(default_priority_level=1), "default_priority_level must be 0 without priority levels"),
        (
            lambda: TritonSettings(**LEVELS, priority_queue_policy={3: QueuePolicy()}),
            "priority_queue_policy must name existing levels only, found 3 with priority_levels 2",
        ),
        (
            lambda: TritonSettings(**LEVELS, preserve_ordering=True),
            "preserve_ordering must be false with more than one",
        ),
        (
            lambda: TritonSettings(default_queue_policy=DELAYS, preserve_ordering=True),
            "preserve_ordering must be false with a queue policy",
        ),
        (lambda: QueuePolicy(max_queue_size=-1), "max_queue_size must not be negative, found -1"),
        (lambda: QueuePolicy(default_timeout_microseconds=-1), "default_timeout_microseconds must not be negative"),
        (lambda: QueuePolicy(timeout_action="DROP"), "timeout_action must be REJECT or DELAY, found 'DROP'"),
        (lambda: TritonLatencies(handoff_us=-1), "handoff_us must not be negative, found -1"),
        (lambda: triton(8, preferred=(16,)), "preferred_batch_size 16 is above max_batch_size 8"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


def test_a_lowered_cap_makes_a_full_batch():
    subject = scheduler(triton(8, 500), 8)
    subject.handle([InstanceJoined("i"), CapChanged("i", 2)], 0)
    first, second = subject.reserve(1, 0), subject.reserve(1, 0)
    subject.handle([Arrived(first)], 0)

    (started,) = subject.handle([Arrived(second)], 100 * MICROSECOND_NS)

    assert started.tickets == (first, second)


def test_another_policy_takes_over_what_waits():
    subject = scheduler(triton(4, 500), 4)
    subject.handle([InstanceJoined("i")], 0)
    waiting = enter(subject, 0, 1, 1)

    (started,) = subject.handle([Reconfigured(triton(4))], 100 * MICROSECOND_NS)

    assert started.tickets == tuple(waiting)


def test_preferred_sizes_are_a_set():
    unordered = simulate(triton(8, preferred=(4, 2, 2)), arrivals(TEN), max_batch_rows=8)

    assert starts(unordered) == starts(simulate(triton(8, preferred=(2, 4)), arrivals(TEN), max_batch_rows=8))
