"""Triton's sequence batchers on hand-made examples; a batch takes 1000 us unless given."""

import re
from collections import defaultdict
from collections.abc import Sequence as Several
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.commands import Start
from batching.core.events import (
    Arrived,
    BatchDone,
    CapChanged,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Reconfigured,
)
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.core.tickets import Sequence
from batching.policies.greedy import Greedy
from batching.policies.sequence_direct import SequenceDirect, SequenceDirectSettings
from batching.policies.sequence_oldest import SequenceOldest, SequenceOldestSettings
from batching.simulation import Arrival, Outcome, Simulation
from tests.batching.builders import starts

_REQUEST = re.compile(r"(?P<name>(?P<of>[a-z])\d)@(?P<at>\d+)(?P<flags>s?e?)(#(?P<shape>\w))?(t(?P<timeout>\d+))?")


def requests(text: str, **details) -> list[Arrival]:
    """`a1@0s a2@100 a3@200e`: sequence and number, time in us, START and END, optional shape and timeout in us."""
    found = [_REQUEST.fullmatch(word) for word in text.split()]
    assert all(found), text
    return [
        Arrival(
            match["name"],
            int(match["at"]) * MICROSECOND_NS,
            shape_key=match["shape"],
            timeout_ns=int(match["timeout"]) * MICROSECOND_NS if match["timeout"] else None,
            sequence=Sequence(match["of"], start="s" in match["flags"], end="e" in match["flags"]),
            **details,
        )
        for match in found
        if match
    ]


def run(policy, load: Several[Arrival], max_batch_rows: int, instances: int = 1, service_us: int = 1000) -> Outcome:
    scheduler = Scheduler(policy, Limits(max_batch_rows=max_batch_rows))
    names = [f"i{number}" for number in range(instances)]
    return Simulation(scheduler, lambda rows: service_us * MICROSECOND_NS, names).run(load)


def direct(load: str | Several[Arrival], slots: int = 2, instances: int = 1, **settings) -> Outcome:
    policy = SequenceDirect(SequenceDirectSettings(**settings), slots)
    return run(policy, requests(load) if isinstance(load, str) else load, slots, instances)


def oldest(load: str | Several[Arrival], largest: int = 4, instances: int = 1, **settings) -> Outcome:
    policy = SequenceOldest(SequenceOldestSettings(**settings), largest)
    return run(policy, requests(load) if isinstance(load, str) else load, largest, instances)


def slots(outcome: Outcome) -> list[tuple[int, ...] | None]:
    return [command.slots for _, command in outcome.commands if isinstance(command, Start)]


def drops(outcome: Outcome) -> str:
    return " ".join(f"{now_ns // MICROSECOND_NS}:{name}" for name, now_ns, _ in outcome.dropped)


@pytest.mark.parametrize("batcher", [direct, oldest])
@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param("a1@0s a2@100 a3@200e", "0:a1 1000:a2 2000:a3", id="one-request-of-a-sequence-at-a-time"),
        pytest.param("a1@0se", "0:a1", id="start-and-end-in-one"),
        pytest.param("a1@0s b1@100s a2@200 b2@300", "0:a1 1000:b1a2 2000:b2", id="sequences-share-batches"),
        pytest.param("a1@0s a2@100e a3@200s", "0:a1 1000:a2a3", id="after-the-end-a-name-is-another-sequence"),
        pytest.param("a1@0s a2@100s", "0:a1 1000:a2", id="a-second-start-goes-on-in-the-same-slot"),
    ],
)  # fmt: skip
def test_requests_of_a_sequence_run_in_order(batcher, load, expected):
    outcome = batcher(load)

    assert _sorted_members(starts(outcome)) == _sorted_members(expected)
    assert not outcome.dropped


def _sorted_members(text: str) -> list[tuple[str, list[str]]]:
    """Whoever shares a batch: the two batchers order members by slot and by age."""
    return [(batch.split(":")[0], sorted(re.findall(r"[a-z]\d", batch))) for batch in text.split()]


@pytest.mark.parametrize("batcher", [direct, oldest])
@pytest.mark.parametrize(
    ("load", "rejected"),
    [
        pytest.param("a1@0", "0:a1", id="never-started"),
        pytest.param("a1@0se a2@5000", "5000:a2", id="ended"),
        pytest.param("a1@0s a2@1500000", "1500000:a2", id="idle-for-longer-than-a-second"),
    ],
)
def test_a_request_of_an_unknown_sequence_is_rejected(batcher, load, rejected):
    assert drops(batcher(load)) == rejected


@pytest.mark.parametrize("batcher", [direct, oldest])
@pytest.mark.parametrize("fault", [{"sequence": None}, {"rows": 2, "sequence": Sequence("a", start=True)}])
def test_a_request_without_sequence_or_with_more_rows_is_rejected(batcher, fault):
    outcome = batcher([Arrival("a1", 0, **fault)])

    assert outcome.dropped == [("a1", 0, "sequence")]


@pytest.mark.parametrize(
    ("count", "instances", "expected"),
    [
        pytest.param(1, 1, {"a1": ("i0", 0)}, id="the-lowest"),
        pytest.param(2, 2, {"a1": ("i0", 0), "b1": ("i1", 0)}, id="the-lowest-of-all-instances"),
        pytest.param(3, 2, {"a1": ("i0", 0), "b1": ("i1", 0), "c1": ("i0", 1)}, id="then-the-next"),
    ],
)
def test_a_sequence_gets_the_free_slot_with_the_lowest_number(count, instances, expected):
    outcome = direct(" ".join(f"{name}1@{5000 * number}s" for number, name in enumerate("abc"[:count])), 2, instances)

    found = {
        batch.members[0]: (batch.instance, place[0])
        for batch, place in zip(outcome.executions, slots(outcome), strict=True)
    }
    assert found == expected


def test_direct_names_the_slots_of_the_members_and_leaves_gaps():
    outcome = direct("a1@0s b1@100s c1@200s a2@5000 c2@5000", slots=4)

    assert starts(outcome) == "0:a1 1000:b1c1 5000:a2c2"
    assert slots(outcome) == [(0,), (1, 2), (0, 2)]


def test_direct_leaves_another_shape_than_the_first_slots_for_the_next_batch():
    outcome = direct("a1@0s#p b1@0s#p c1@0s#p a2@100#p b2@100#q c2@100#p", slots=3)

    assert starts(outcome) == "0:a1b1c1 1000:a2c2 2000:b2"
    assert [execution.reason for execution in outcome.executions] == ["full", "shape", "eager"]


def test_a_sequence_without_slot_waits_in_the_backlog_for_the_first_that_is_free():
    outcome = direct("a1@0s b1@10s c1@20s d1@30s c2@40e a2@1500e b2@4000e", slots=2)

    # a ends in the batch of 2000: c has its slot from then on, and d the slot of c; b keeps its own.
    assert starts(outcome) == "0:a1 1000:b1 2000:a2 3000:c1 4000:c2 5000:d1b2"
    assert slots(outcome) == [(0,), (1,), (0,), (0,), (0,), (0, 1)]


def test_a_sequence_in_the_backlog_is_rejected_as_a_whole_when_its_smallest_timeout_is_over():
    outcome = direct("a1@0s b1@100st9000 b2@200t500 c1@300s b3@1000 a2@5000e", slots=1)

    assert drops(outcome) == "700:b1 700:b2 1000:b3"
    assert starts(outcome) == "0:a1 5000:a2 6000:c1"


def test_a_timeout_does_not_matter_once_a_sequence_has_a_slot():
    outcome = direct("a1@0s a2@10t5", slots=1)

    assert starts(outcome) == "0:a1 1000:a2"


def test_an_idle_sequence_gives_its_slot_to_the_backlog():
    outcome = direct("a1@0s b1@100s", slots=1, max_sequence_idle_microseconds=20_000)

    assert starts(outcome) == "0:a1 20000:b1"


def test_a_sequence_is_idle_since_its_last_request():
    outcome = direct("a1@0s b1@100s a2@15000", slots=1, max_sequence_idle_microseconds=20_000)

    assert starts(outcome) == "0:a1 15000:a2 35000:b1"


def test_waiting_in_the_backlog_is_not_being_idle():
    outcome = direct("a1@0s b1@100s a2@15000e", slots=1, max_sequence_idle_microseconds=20_000)

    assert starts(outcome) == "0:a1 15000:a2 16000:b1"
    assert not outcome.dropped


def test_who_withdraws_a_waiting_request_ends_the_sequence():
    load = requests("a1@0s") + requests("a2@100", leaves_ns=200_000) + requests("a3@150 a4@400 b1@500s")

    outcome = direct(load, slots=1)

    assert drops(outcome) == "300:a3 400:a4"
    assert starts(outcome) == "0:a1 1000:b1"


def test_several_requests_of_a_sequence_may_be_withdrawn_at_one_instant():
    load = requests("a1@0s") + requests("a2@100", leaves_ns=300_000) + requests("a3@200", leaves_ns=200_000)

    outcome = direct(load)

    assert starts(outcome) == "0:a1"
    assert [name for name, _ in outcome.withdrawn] == ["a2", "a3"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, "0:a1 1000:b1 2000:c1", id="at-once"),
        pytest.param({"max_queue_delay_microseconds": 5000}, "0:a1 1000:b1 2000:c1", id="at-once-without-utilization"),
        pytest.param({"minimum_slot_utilization": 0.75}, "0:a1 1000:b1 2000:c1", id="at-once-without-delay"),
        pytest.param(
            {"max_queue_delay_microseconds": 5000, "minimum_slot_utilization": 0.75}, "1500:a1b1c1", id="enough-slots"
        ),
        pytest.param(
            {"max_queue_delay_microseconds": 700, "minimum_slot_utilization": 0.75}, "700:a1b1 2200:c1", id="delay"
        ),
    ],
)  # fmt: skip
def test_direct_waits_only_with_a_delay_and_a_utilization(settings, expected):
    assert starts(direct("a1@0s b1@600s c1@1500s", slots=4, **settings)) == expected


@pytest.mark.parametrize(
    ("settings", "load", "expected"),
    [
        pytest.param({}, "a1@0s b1@10s c1@20s a2@30", "0:a1 1000:b1c1a2", id="oldest-first-when-handed-on"),
        pytest.param(
            {"max_candidate_sequences": 1}, "a1@0s b1@10s a2@20e", "0:a1 1000:a2 2000:b1", id="one-candidate-at-a-time"
        ),
        pytest.param(
            {"preferred_batch_size": (2,)}, "a1@0s b1@10s c1@20s d1@30s", "0:a1 1000:b1c1 2000:d1", id="preferred-size"
        ),
        pytest.param({"max_queue_delay_microseconds": 500}, "a1@0s b1@200s c1@600s", "500:a1b1 1500:c1", id="delay"),
        pytest.param(
            {"max_queue_delay_microseconds": 500, "preferred_batch_size": (2,)}, "a1@0s b1@200s c1@300s",
            "200:a1b1 1200:c1", id="a-preferred-size-ends-the-delay",
        ),
        pytest.param(
            {"max_queue_delay_microseconds": 500}, "a1@0s#p b1@200s#q", "200:a1 1200:b1", id="another-shape-ends-it"
        ),
        pytest.param(
            {"max_queue_delay_microseconds": 500}, "a1@0s a2@100", "500:a1 2000:a2", id="a-delay-begins-at-handing-on"
        ),
    ],
)  # fmt: skip
def test_oldest_forms_dynamic_batches_of_what_was_handed_on(settings, load, expected):
    assert starts(oldest(load, **settings)) == expected


def test_oldest_does_not_name_slots():
    assert slots(oldest("a1@0s")) == [None]


@pytest.mark.parametrize("batcher", [direct, oldest])
def test_a_sequence_stays_on_its_instance(batcher):
    outcome = batcher("a1@0s b1@10s a2@5000 b2@5000 a3@9000 b3@9001", instances=2)

    places = {execution.members[0]: execution.instance for execution in outcome.executions}
    assert places == {"a1": "i0", "b1": "i1", "a2": "i0", "b2": "i1", "a3": "i0", "b3": "i1"}


POLICIES = {
    "direct": lambda: SequenceDirect(SequenceDirectSettings(), 2),
    "oldest": lambda: SequenceOldest(SequenceOldestSettings(), 2),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_sequences_of_an_instance_that_leaves_are_rejected(policy):
    simulation = Simulation(Scheduler(POLICIES[policy](), Limits(max_batch_rows=2)), lambda rows: 1_000_000, ["i0"])
    simulation.plan(500_000, InstanceLeft("i0"))
    simulation.plan(600_000, InstanceJoined("i1"))

    outcome = simulation.run(requests("a1@0s a2@100 b1@2000s c1@2000s a3@4000"))

    assert drops(outcome) == "500:a2 4000:a3"
    assert starts(outcome) == "0:a1 2000:b1c1"


@pytest.mark.parametrize("policy", POLICIES)
def test_an_instance_that_joins_takes_sequences_from_the_backlog(policy):
    simulation = Simulation(Scheduler(POLICIES[policy](), Limits(max_batch_rows=2)), lambda rows: 1_000_000, ["i0"])
    simulation.plan(500_000, InstanceJoined("i1"))

    outcome = simulation.run(requests("a1@0s b1@10s c1@20s"))

    assert starts(outcome) == "0:a1 500:c1 1000:b1"


def test_slots_above_a_lowered_cap_are_given_up():
    simulation = Simulation(Scheduler(POLICIES["direct"](), Limits(max_batch_rows=2)), lambda rows: 1_000_000, ["i0"])
    simulation.plan(2_500_000, CapChanged("i0", 1))

    outcome = simulation.run(requests("a1@0s b1@100s a2@3000 b2@3000"))

    assert drops(outcome) == "3000:b2"
    assert starts(outcome) == "0:a1 1000:b1 3000:a2"


@pytest.mark.parametrize("policy", POLICIES)
def test_sequences_that_wait_when_the_policy_takes_over_are_served(policy):
    subject = Scheduler(Greedy(), Limits(max_batch_rows=2))
    subject.handle([InstanceJoined("i0")], 0)
    tickets = [subject.reserve(1, 0, sequence=Sequence(name, start=True)) for name in "ab"]
    subject.handle([Arrived(tickets[0])], 0)
    subject.handle([Arrived(tickets[1])], 1)

    subject.handle([Reconfigured(POLICIES[policy]())], 2)
    (start,) = subject.handle([BatchDone(1), InstanceFree(1)], 3)

    assert start.tickets == (tickets[1],)


@st.composite
def conversations(draw: st.DrawFn) -> list[Arrival]:
    """Well-formed sequences whose requests come at random, some with a timeout or an impatient caller."""
    load = []
    for name in "abcdefgh"[: draw(st.integers(1, 8))]:
        times = sorted(draw(st.lists(st.integers(1, 20_000_000), min_size=1, max_size=6, unique=True)))
        for number, at_ns in enumerate(times):
            load.append(
                Arrival(
                    f"{name}{number}",
                    at_ns,
                    leaves_ns=draw(st.sampled_from([None, None, None, 700_000])),
                    timeout_ns=draw(st.sampled_from([None, None, 2_000_000])),
                    shape_key=draw(st.sampled_from("ppq")),
                    sequence=Sequence(name, start=number == 0, end=number == len(times) - 1),
                )
            )
    return load


@given(st.sampled_from(sorted(POLICIES)), conversations(), st.integers(1, 2))
def test_laws_of_sequences_hold_on_random_conversations(policy, load, instances):
    outcome = run(POLICIES[policy](), load, 2, instances)

    ended = [name for batch in outcome.executions for name in batch.members]
    ended += [name for name, *_ in outcome.dropped]
    gave_up = {name for name, _ in outcome.withdrawn}
    assert len(ended) == len(set(ended))
    assert {arrival.name for arrival in load} == set(ended) | gave_up
    by_sequence = defaultdict(list)
    for batch in outcome.executions:
        assert len({name[0] for name in batch.members}) == len(batch.members)  # one request of a sequence in a batch
        for name in batch.members:
            by_sequence[name[0]].append((name, batch))
    for members in by_sequence.values():
        for (name, batch), (next_name, next_batch) in pairwise(members):
            assert int(next_name[1:]) == int(name[1:]) + 1  # in order, without a hole
            assert next_batch.start_ns >= batch.end_ns  # one at a time
            assert next_batch.instance == batch.instance


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(lambda: SequenceDirectSettings(max_sequence_idle_microseconds=0), "idle_micro", id="idle"),
        pytest.param(lambda: SequenceDirectSettings(max_queue_delay_microseconds=-1), "delay_micro", id="delay"),
        pytest.param(lambda: SequenceDirectSettings(minimum_slot_utilization=1.5), "0 to 1", id="share"),
        pytest.param(lambda: SequenceOldestSettings(max_candidate_sequences=-1), "candidate", id="candidates"),
        pytest.param(lambda: SequenceOldestSettings(preferred_batch_size=(4, 2)), "ascend", id="descending"),
        pytest.param(lambda: SequenceOldestSettings(preferred_batch_size=(0,)), "positive", id="zero"),
        pytest.param(
            lambda: SequenceOldest(SequenceOldestSettings(preferred_batch_size=(8,)), 4), "8 is above", id="too-large"
        ),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        settings()
