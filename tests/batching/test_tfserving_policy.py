"""TF Serving's batching against worked examples of its rule (largest batch 4, service time 1000 us unless given)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.actions import RefusalReason
from batching.core.commands import Refuse, Start
from batching.core.errors import QueueFullError, TooManyRowsError
from batching.core.events import Arrived, InstanceJoined, Reconfigured
from batching.policies.greedy import Greedy
from batching.policies.tfserving import TFServing, TFServingSettings
from batching.policies.triton import TritonExperiments, TritonSettings, create_triton
from batching.simulation import Arrival
from tests.batching.builders import arrivals, scheduler, simulate, starts


def tfserving(**settings) -> TFServing:
    return TFServing(TFServingSettings(**{"max_batch_size": 4, **settings}))


def dropped(outcome) -> str:
    """`c@20`: who was dropped when, in us."""
    return " ".join(f"{name}@{at_ns // MICROSECOND_NS}" for name, at_ns, _ in outcome.dropped)


@pytest.mark.parametrize(
    ("settings", "service_us", "instances", "load", "expected"),
    [
        pytest.param({}, 1000, 1, "a@0 b@100 c@200", "0:a 1000:bc", id="TF1"),
        pytest.param({"batch_timeout_micros": 500}, 1000, 1, "a@0 b@200 c@600", "500:ab 1500:c", id="TF2"),
        pytest.param(
            {"batch_timeout_micros": 500}, 1000, 1, "a@0 b@100 c@200 d@300 e@350", "300:abcd 1300:e", id="TF3"
        ),
        pytest.param(
            {"batch_timeout_micros": 500}, 1000, 1, "a@0x3 b@100x3 c@200x1", "100:a 1100:bc",
            id="TF4-overflow-closes-before-the-timeout",
        ),
        pytest.param(
            {"batch_timeout_micros": 500}, 2000, 1, "a@0 b@600 c@700 d@1400 e@2400", "500:a 2500:bcde", id="TF5"
        ),
        pytest.param({}, 1000, 2, "a@0 b@10 c@20 d@30", "0:a 10:b 1000:cd", id="TF8-two-threads"),
        pytest.param(
            {"num_batch_threads": 1}, 1000, 2, "a@0 b@10 c@20", "0:a 1000:bc", id="fewer-threads-than-instances"
        ),
        pytest.param(
            {"batch_timeout_micros": 500}, 1000, 1, "a@0#p b@100#q c@200#q", "100:a 1100:bc",
            id="another-shape-closes-the-batch",
        ),
        pytest.param({}, 1000, 1, "a@0x4 b@10x3 c@20x3 d@30x1", "0:a 1000:b 2000:cd", id="no-overtaking-into-room"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(settings, service_us, instances, load, expected):
    outcome = simulate(
        tfserving(**settings), arrivals(load), max_batch_rows=4, service_us=service_us, instances=instances
    )

    assert starts(outcome) == expected
    assert not outcome.dropped


@pytest.mark.parametrize(
    ("batches", "load", "expected", "full"),
    [
        pytest.param(2, "a@0x4 b@10x4 c@20x4 d@30x4", "0:a 1000:b 2000:c", "d@30", id="TF6"),
        pytest.param(1, "a@0x4 b@10x3 c@20x2 d@30x1", "0:a 1000:bd", "c@20", id="TF6b-the-open-batch-counts"),
        pytest.param(1, "a@0x4 b@0x4 c@0x4", "0:a 1000:b", "c@0", id="at-one-instant-the-thread-comes-between"),
    ],
)
def test_a_request_that_needs_one_batch_too_many_is_refused(batches, load, expected, full):
    outcome = simulate(tfserving(max_enqueued_batches=batches), arrivals(load), max_batch_rows=4)

    assert starts(outcome) == expected
    assert dropped(outcome) == full
    assert {reason for _, _, reason in outcome.dropped} == {"queue_full"}


def test_without_faithful_a_full_queue_refuses_before_decoding():
    policy = tfserving(max_enqueued_batches=2, faithful=False)

    outcome = simulate(policy, arrivals("a@0x4 b@10x4 c@20x3 d@30x2 e@40x1"), max_batch_rows=4)

    assert starts(outcome) == "0:a 1000:b 2000:ce"
    assert [(name, type(error)) for name, error in outcome.refused] == [("d", QueueFullError)]


@pytest.mark.parametrize("largest", [pytest.param(4, id="TF9"), pytest.param(8, id="TF9-by-the-setting")])
def test_a_request_larger_than_a_batch_is_refused(largest):
    outcome = simulate(tfserving(), arrivals("a@0x5"), max_batch_rows=largest)

    assert [(name, type(error)) for name, error in outcome.refused] == [("a", TooManyRowsError)]


SPLIT = {"max_batch_size": 16, "max_execution_batch_size": 4, "enable_large_batch_splitting": True}


@pytest.mark.parametrize(
    ("settings", "load", "expected"),
    [
        pytest.param(
            {"max_batch_size": 8, "batch_timeout_micros": 500}, "a@0x3 b@10x5", "10:ab split 1010:b full", id="TF7"
        ),
        pytest.param({}, "a@0x10", "0:a split 1000:a split 2000:a eager", id="larger-than-two-batches"),
        pytest.param({}, "a@0x4 b@10x3 c@20x3", "0:a full 1000:bc split 2000:c eager", id="fills-the-open-batch"),
        pytest.param(
            {"max_enqueued_batches": 2}, "a@0x4 b@10x3 c@20x5", "0:a full 1000:bc split 2000:c full", id="all-room-used"
        ),
        pytest.param({}, "a@0x4 b@10x3#p c@20x3#q", "0:a full 1000:b shape 2000:c eager", id="not-into-another-shape"),
    ],
)
def test_with_splitting_a_request_goes_on_in_the_next_batch(settings, load, expected):
    outcome = simulate(tfserving(**{**SPLIT, **settings}), arrivals(load), max_batch_rows=16)

    begun = [f"{e.start_ns // MICROSECOND_NS}:{''.join(e.members)} {e.reason}" for e in outcome.executions]
    assert " ".join(begun) == expected


def test_a_request_is_cut_into_its_rows_in_order():
    outcome = simulate(tfserving(**{**SPLIT, "batch_timeout_micros": 500}), arrivals("a@0x3 b@10x7"), max_batch_rows=16)

    parts = [command.parts for _, command in outcome.commands if isinstance(command, Start)]
    assert parts == [((0, 3), (0, 1)), ((1, 4),), ((5, 2),)]


def test_with_splitting_a_request_needs_room_for_all_its_rows():
    policy = tfserving(**SPLIT, max_enqueued_batches=2)

    outcome = simulate(policy, arrivals("a@0x4 b@10x3 c@20x6 d@30x5"), max_batch_rows=16)

    assert starts(outcome) == "0:a 1000:bd 2000:d"
    assert dropped(outcome) == "c@20"


def test_without_faithful_room_for_all_rows_is_looked_for_before_decoding():
    policy = tfserving(**SPLIT, max_enqueued_batches=2, faithful=False)

    outcome = simulate(policy, arrivals("a@0x4 b@10x3 c@20x6 d@30x5"), max_batch_rows=16)

    assert [(name, type(error)) for name, error in outcome.refused] == [("c", QueueFullError)]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param("a@100", "1000:a", id="the-poll-after-the-timeout"),
        pytest.param("a@100 b@700", "700:ab", id="an-enqueue-after-the-timeout-wakes-the-thread"),
        pytest.param("a@100 b@1200 c@1300", "1000:a 2000:bc", id="a-thread-that-becomes-free-looks-at-once"),
        pytest.param("a@100 b@1700", "1000:a 3000:b", id="the-grid-begins-when-the-thread-becomes-idle"),
    ],
)
def test_an_idle_thread_notices_the_timeout_by_polling(load, expected):
    policy = tfserving(batch_timeout_micros=500, poll_quantum_us=1000)

    outcome = simulate(policy, arrivals(load), max_batch_rows=4)

    assert starts(outcome) == expected


def timed(name: str, at_us: int, timeout_us: int | None = None) -> Arrival:
    timeout_ns = None if timeout_us is None else timeout_us * MICROSECOND_NS
    return Arrival(name=name, at_ns=at_us * MICROSECOND_NS, timeout_ns=timeout_ns)


@pytest.mark.parametrize(
    ("faithful", "timeout_us", "expected", "late"),
    [
        pytest.param(True, 500, "0:a", "b@1000 c@1000", id="all-late-fail-when-their-batch-starts"),
        pytest.param(True, None, "0:a 1000:bc", "", id="who-is-late-still-runs-with-others"),
        pytest.param(False, 500, "0:a", "b@310 c@520", id="live-each-ends-on-time"),
        pytest.param(False, None, "0:a 1000:c", "b@310", id="live-the-others-run"),
    ],
)
def test_a_requests_own_timeout_counts_only_if_all_of_its_batch_are_late(faithful, timeout_us, expected, late):
    load = [timed("a", 0, 1), timed("b", 10, 300), timed("c", 20, timeout_us)]

    outcome = simulate(tfserving(faithful=faithful), load, max_batch_rows=4)

    assert starts(outcome) == expected
    assert dropped(outcome) == late
    assert all(reason == "timeout" for _, _, reason in outcome.dropped)


def test_all_parts_of_a_late_request_end_together():
    load = [timed("a", 0), Arrival(name="b", at_ns=10, rows=10, timeout_ns=300)]

    outcome = simulate(tfserving(**SPLIT), load, max_batch_rows=16)

    assert starts(outcome) == "0:a"
    assert [name for name, _, _ in outcome.dropped] == ["b"]


def test_without_faithful_a_request_ends_on_time_though_its_batch_waits_for_more():
    policy = tfserving(faithful=False, batch_timeout_micros=500)

    outcome = simulate(policy, [timed("a", 0, 300), timed("b", 100, 1000)], max_batch_rows=4)

    assert dropped(outcome) == "a@300"
    assert starts(outcome) == "500:b"


def test_parts_of_a_late_request_that_meet_in_one_batch_end_it_once():
    core = scheduler(tfserving(**SPLIT), 16)
    ticket = core.reserve(10, 0, timeout_ns=1)
    core.handle([Arrived(ticket)], 0)

    commands = core.handle([Reconfigured(tfserving(max_batch_size=16)), InstanceJoined("i")], 10)

    assert commands == [Refuse(ticket, RefusalReason.TIMEOUT)]


def test_who_is_too_large_for_a_policy_that_takes_over_is_refused():
    core = scheduler(Greedy(), 8)
    tickets = [core.reserve(rows, 0) for rows in (6, 3)]
    core.handle([Arrived(ticket) for ticket in tickets], 0)

    commands = core.handle([Reconfigured(tfserving()), InstanceJoined("i")], 10)

    refused = [command.ticket for command in commands if isinstance(command, Refuse)]
    started = [command.tickets for command in commands if isinstance(command, Start)]
    assert (refused, started) == ([tickets[0]], [(tickets[1],)])


@given(
    st.lists(st.tuples(st.integers(0, 12_000), st.integers(1, 8), st.sampled_from("pq")), min_size=1, max_size=40),
    st.integers(1, 3),
)
def test_without_timeout_and_with_room_it_is_greedy(requests, instances):
    load = [
        Arrival(name=f"r{number}", at_ns=at_us * MICROSECOND_NS, rows=rows, shape_key=shape)
        for number, (at_us, rows, shape) in enumerate(sorted(requests))
    ]
    reference = simulate(Greedy(), load, max_batch_rows=8, instances=instances)

    policy = tfserving(max_batch_size=8, max_enqueued_batches=100)
    outcome = simulate(policy, load, max_batch_rows=8, instances=instances)

    assert [(e.start_ns, e.members) for e in outcome.executions] == [
        (e.start_ns, e.members) for e in reference.executions
    ]


@given(
    st.lists(st.tuples(st.integers(0, 12_000), st.integers(1, 8)), min_size=1, max_size=40, unique_by=lambda r: r[0]),
    st.sampled_from([303, 2_003]),
    st.integers(1, 3),
)
def test_with_a_timeout_and_room_it_is_triton_with_that_delay_formed_late(requests, delay_us, instances):
    load = [
        Arrival(name=f"r{number}", at_ns=at_us * MICROSECOND_NS, rows=rows)
        for number, (at_us, rows) in enumerate(sorted(requests))
    ]
    settings = TritonSettings(max_queue_delay_microseconds=delay_us)
    triton = create_triton(settings, 8, experiments=TritonExperiments(bind="late"))
    reference = simulate(triton, load, max_batch_rows=8, instances=instances, service_us=1_007)
    moments = [moment for arrival in load for moment in (arrival.at_ns, arrival.at_ns + delay_us * MICROSECOND_NS)]
    moments += {execution.end_ns for execution in reference.executions}
    assume(len(moments) == len(set(moments)))  # at one instant either may come first

    policy = tfserving(max_batch_size=8, batch_timeout_micros=delay_us, max_enqueued_batches=100)
    outcome = simulate(policy, load, max_batch_rows=8, instances=instances, service_us=1_007)

    assert [(e.start_ns, e.members) for e in outcome.executions] == [
        (e.start_ns, e.members) for e in reference.executions
    ]


def test_padding_goes_to_the_next_allowed_size():
    settings = TFServingSettings(max_batch_size=8, allowed_batch_sizes=(1, 4, 8))

    assert [settings.padded_rows(rows) for rows in (1, 2, 4, 5, 8)] == [1, 4, 4, 8, 8]
    assert TFServingSettings(max_batch_size=8).padded_rows(5) == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size must be at least 1, found 0", id="batch"),
        pytest.param({"max_enqueued_batches": 0}, "max_enqueued_batches must be at least 1", id="backlog"),
        pytest.param({"num_batch_threads": 0}, "num_batch_threads must be at least 1", id="threads"),
        pytest.param({"batch_timeout_micros": -1}, "batch_timeout_micros must be at least 0, found -1", id="timeout"),
        pytest.param({"poll_quantum_us": -1}, "poll_quantum_us must be at least 0", id="poll"),
        pytest.param({"allowed_batch_sizes": (4, 2)}, "ascend", id="descending"),
        pytest.param({"allowed_batch_sizes": (0, 4)}, "positive", id="empty-size"),
        pytest.param({"allowed_batch_sizes": (2,)}, "end with the largest batch, 4, found", id="last-size"),
        pytest.param({**SPLIT, "allowed_batch_sizes": (8, 16)}, "end with the largest batch, 4", id="last-split-size"),
        pytest.param(
            {**SPLIT, "max_execution_batch_size": 32}, "must not be above max_batch_size 16, found 32", id="execution"
        ),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        tfserving(**settings)
