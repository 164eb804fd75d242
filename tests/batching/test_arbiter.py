"""Models that share devices: orders and resources on hand-made examples, laws on random loads."""

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS
from batching.core.arbiter import EarliestDeadline, RateLimiter, Resources, RoundRobin
from batching.core.commands import Expire, Refuse, Start
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined, InstanceLeft, Timer
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.core.shared_devices import SharedDevices
from batching.core.tickets import Sequence
from batching.policies.greedy import Greedy
from batching.policies.nexus import Nexus, NexusSettings
from batching.policies.sequence_direct import SequenceDirect, SequenceDirectSettings
from batching.policies.sequence_oldest import SequenceOldest, SequenceOldestSettings
from batching.policies.shepherd import Shepherd, ShepherdSettings
from batching.policies.symphony import Symphony, SymphonySettings
from batching.profiles import create_policy
from batching.simulation import Arrival, Simulation
from tests.batching.builders import starts

LARGEST = 4
PROFILE_US = {1: 600, 2: 700}


@dataclass
class Run:
    """A batch that ran: times in us, the instance's device and the members' names."""

    model: str
    device: str
    start_us: int
    end_us: int
    members: str


@dataclass
class House:
    """Plays arrivals of several models on shared devices; every batch takes `service_us`."""

    shared: SharedDevices
    schedulers: dict[str, Scheduler]
    service_us: dict[str, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def play(self, instances: dict[str, dict[str, str]], load: list[tuple[str, Arrival]]) -> list[Run]:
        """`instances`: by model and name, their devices."""
        serial = count()
        heap = [(0, next(serial), model, InstanceJoined(name, device))
                for model, devices in instances.items() for name, device in devices.items()]  # fmt: skip
        heap += [(arrival.at_ns, next(serial), model, arrival) for model, arrival in load]
        heapq.heapify(heap)
        names: dict[tuple[str, int], str] = {}
        while heap or self.shared.wake_at_ns is not None:
            wake_ns = self.shared.wake_at_ns
            now_ns = min(time_ns for time_ns in (heap[0][0] if heap else None, wake_ns) if time_ns is not None)
            events = defaultdict(list)
            while heap and heap[0][0] == now_ns:
                _, _, model, event = heapq.heappop(heap)
                events[model].append(self._admit(model, event, names) if isinstance(event, Arrival) else event)
            for model, commands in self.shared.handle(events, now_ns).items():
                for command in commands:
                    if isinstance(command, Expire | Refuse):
                        self.ended.append(names[model, command.ticket])
                        continue
                    assert isinstance(command, Start)
                    end_ns = now_ns + self.service_us.get(model, 1000) * MICROSECOND_NS
                    heapq.heappush(heap, (end_ns, next(serial), model, BatchDone(command.batch)))
                    heapq.heappush(heap, (end_ns, next(serial), model, InstanceFree(command.batch)))
                    members = "".join(names[model, ticket] for ticket in command.tickets)
                    device = instances[model][command.instance]
                    self.runs.append(
                        Run(model, device, now_ns // MICROSECOND_NS, end_ns // MICROSECOND_NS, members)
                    )  # fmt: skip
        return self.runs

    def _admit(self, model: str, arrival: Arrival, names: dict[tuple[str, int], str]) -> Arrived:
        deadline_ns = None if arrival.patience_ns is None else arrival.at_ns + arrival.patience_ns
        ticket = self.schedulers[model].reserve(
            arrival.rows, arrival.at_ns, deadline_ns=deadline_ns, sequence=arrival.sequence
        )  # fmt: skip
        names[model, ticket] = arrival.name
        return Arrived(ticket)


def house(arbiter, resources=None, models="AB", policy=lambda: Greedy(max_requests=1), **service_us) -> House:
    schedulers = {model: Scheduler(policy(), Limits(max_batch_rows=LARGEST)) for model in models}
    return House(SharedDevices(schedulers, arbiter, resources), schedulers, service_us)


def load(text: str) -> list[tuple[str, Arrival]]:
    """`Aa@0 Bb@100d900`: model, name, time in us, optionally patience in us."""
    found = []
    for word in text.split():
        name, _, times = word.partition("@")
        at, _, patience = times.partition("d")
        patience_ns = int(patience) * MICROSECOND_NS if patience else None
        found.append((name[0], Arrival(name[1:], int(at) * MICROSECOND_NS, patience_ns=patience_ns)))
    return found


def on_one_device(models: str = "AB") -> dict[str, dict[str, str]]:
    return {model: {f"{model}0": "gpu0"} for model in models}


def shown(runs: list[Run]) -> str:
    return " ".join(f"{run.start_us}:{run.model}{run.members}" for run in runs)


def test_round_robin_goes_on_after_the_model_that_started_last():
    runs = house(RoundRobin(), models="ABC").play(
        on_one_device("ABC"), load("Aa@0 Ab@10 Ac@20 Bd@30 Be@40 Cf@50 Cg@2500")
    )

    # A, B and C take turns; at 3000 it is A's turn again, and C, which has ended first, has to wait for B.
    assert shown(runs) == "0:Aa 1000:Bd 2000:Cf 3000:Ab 4000:Be 5000:Cg 6000:Ac"


def test_a_model_whose_turn_it_is_and_that_has_nothing_to_do_is_passed_over():
    runs = house(RoundRobin(), models="ABC").play(on_one_device("ABC"), load("Ca@0 Cb@10 Cc@20 Bd@1500"))

    assert shown(runs) == "0:Ca 1000:Cb 2000:Bd 3000:Cc"


def test_models_on_different_devices_do_not_wait_for_each_other():
    runs = house(RoundRobin()).play({"A": {"A0": "gpu0"}, "B": {"B0": "gpu1"}}, load("Aa@0 Bb@10 Ac@20"))

    assert shown(runs) == "0:Aa 10:Bb 1000:Ac"


def test_an_instance_on_a_free_device_is_used_when_another_device_is_taken():
    instances = {"A": {"A0": "gpu0"}, "B": {"B0": "gpu0", "B1": "gpu1"}}

    runs = house(RoundRobin()).play(instances, load("Aa@0 Bb@10 Bc@20"))

    assert [(run.device, run.start_us) for run in runs] == [("gpu0", 0), ("gpu1", 10), ("gpu0", 1000)]


def test_a_rate_limiter_gives_a_model_of_priority_two_every_third_turn():
    waiting = " ".join(f"{model}{model.lower()}@{number}" for number in range(1, 7) for model in "AB")

    runs = house(RateLimiter({"B": 2})).play(on_one_device(), load(waiting))

    # Its first turn is as soon as that of A; in the long run A has two for each of its own, while A has requests.
    assert "".join(run.model for run in runs[:9]) == "ABAABAABA"


def test_a_model_that_was_idle_does_not_make_up_for_it():
    steady = " ".join(f"Aa@{number}" for number in range(1, 12)) + " " + " ".join(f"Bb@{5500}" for _ in range(4))

    runs = house(RateLimiter()).play(on_one_device(), load(steady))

    assert "".join(run.model for run in runs) == "AAAAAABABABABAA"


@pytest.mark.parametrize("arbiter", [RoundRobin, RateLimiter])
def test_nobody_overtakes_the_model_whose_turn_it_is_while_it_lacks_resources(arbiter):
    resources = Resources({"A": {"memory": 1}, "B": {"memory": 2}}, per_device={"memory": 2})
    instances = {"A": {"A0": "gpu0", "A1": "gpu0"}, "B": {"B0": "gpu0"}}

    runs = house(arbiter(), resources).play(instances, load("Aa@0 Ab@500 Bc@600 Ad@700 Ae@1100"))

    # At 1000 half of the memory is free, enough for A; but it is B's turn, which needs all of it at 1500.
    assert shown(runs) == "0:Aa 500:Ab 1500:Bc 2500:Ad 2500:Ae"


def test_a_model_that_lacks_a_resource_does_not_hinder_those_that_do_not_need_it():
    resources = Resources({"A": {"memory": 1}, "B": {"memory": 2}, "C": {"memory": 1}}, per_device={"memory": 2})
    instances = {"A": {"A0": "gpu0"}, "B": {"B0": "gpu0"}, "C": {"C0": "gpu1"}}

    runs = house(RoundRobin(), resources, "ABC").play(instances, load("Aa@0 Bb@100 Cc@200 Cd@300"))

    assert shown(runs) == "0:Aa 200:Cc 1000:Bb 1200:Cd"


def test_a_shared_resource_is_one_pool_for_all_devices():
    resources = Resources(per_device={"device": 1}, shared={"licence": 1})

    runs = house(RoundRobin(), resources).play({"A": {"A0": "gpu0"}, "B": {"B0": "gpu1"}}, load("Aa@0 Bb@10"))

    assert shown(runs) == "0:Aa 1000:Bb"


@pytest.mark.parametrize(
    ("batch_ns", "expected"),
    [
        pytest.param({}, "0:Ax 1000:Bb 2000:Aa 3000:Cc", id="by-deadline-then-by-arrival"),
        pytest.param({"A": lambda rows: 4_500_000}, "0:Ax 1000:Aa 2000:Bb 3000:Cc", id="less-the-time-of-a-batch"),
    ],
)
def test_the_most_urgent_model_is_first(batch_ns, expected):
    subject = house(EarliestDeadline(batch_ns), models="ABC")

    runs = subject.play(on_one_device("ABC"), load("Ax@0 Cc@100 Aa@200d9000 Bb@300d5000"))

    assert shown(runs) == expected


def test_a_policy_that_waits_is_woken_although_its_slot_is_hidden():
    def waiting():
        return Symphony(SymphonySettings(profile_us=PROFILE_US, slo_us=5000, target_batch=4), LARGEST)

    runs = house(RoundRobin(), policy=waiting).play(on_one_device(), load("Aa@0 Bb@1500"))

    # Each starts when a second row would be too much: 4300 us after its arrival.
    assert shown(runs) == "4300:Aa 5800:Bb"


def test_while_one_model_waits_for_more_requests_another_uses_the_device():
    policies = iter(
        [Symphony(SymphonySettings(profile_us=PROFILE_US, slo_us=9000, target_batch=4), LARGEST), Greedy()]
    )  # fmt: skip

    runs = house(RoundRobin(), policy=lambda: next(policies)).play(on_one_device(), load("Aa@0 Bb@100 Bc@200"))

    assert shown(runs) == "100:Bb 1100:Bc 8300:Aa"


def test_an_expired_request_leaves_its_turn_to_others():
    subject = house(RoundRobin())

    runs = subject.play(on_one_device(), load("Aa@0 Bb@10d500 Ac@20"))

    assert shown(runs) == "0:Aa 1000:Ac"
    assert subject.ended == ["b"]


def test_an_instance_that_leaves_gives_its_resources_back():
    subject = house(RoundRobin())
    shared, schedulers = subject.shared, subject.schedulers
    shared.handle({model: [InstanceJoined(model)] for model in "AB"}, 0)
    tickets = {model: schedulers[model].reserve(1, 0) for model in "AB"}
    (start,) = shared.handle({"A": [Arrived(tickets["A"])]}, 0)["A"]
    assert shared.handle({"B": [Arrived(tickets["B"])]}, 1) == {"B": []}

    shared.handle({"A": [InstanceLeft("A")]}, 2)
    commands = shared.handle({"A": [BatchDone(start.batch), InstanceFree(start.batch)]}, 3)

    assert [start.instance for start in commands["B"]] == ["B"]
    assert schedulers["A"].is_empty


def test_an_idle_instance_may_leave_and_join_again():
    subject = house(RoundRobin())
    subject.shared.handle({"A": [InstanceJoined("A0")]}, 0)

    subject.shared.handle({"A": [InstanceLeft("A0")], "B": [InstanceJoined("B0")]}, 1)
    subject.shared.handle({"A": [InstanceJoined("A0")]}, 2)

    ticket = subject.schedulers["A"].reserve(1, 3)
    (start,) = subject.shared.handle({"A": [Arrived(ticket)]}, 3)["A"]
    assert start.instance == "A0"


@pytest.mark.parametrize(
    ("create", "words"),
    [
        pytest.param(lambda: RateLimiter({"A": 0}), "priority of A must be at least 1", id="priority"),
        pytest.param(
            lambda: Resources({"A": {"memory": 3}}, per_device={"memory": 2}), "A needs 3 of", id="much"
        ),
        pytest.param(lambda: Resources({"A": {"disk": 1}}, shared={"memory": 2}), "'disk', expected", id="unknown"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(create, words):
    with pytest.raises(ValueError, match=words):
        create()


# Laws

arbiters = st.sampled_from([RoundRobin, RateLimiter, lambda: RateLimiter({"A": 3}), EarliestDeadline])


@st.composite
def crowds(draw: st.DrawFn) -> list[tuple[str, Arrival]]:
    times = sorted(draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=40)))
    return [
        (draw(st.sampled_from("ABC")), Arrival(f"r{number} ", at_us * MICROSECOND_NS, rows=draw(st.integers(1, 3))))
        for number, at_us in enumerate(times)
    ]


@st.composite
def houses(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    return {
        model: {f"{model}{n}": draw(st.sampled_from(["gpu0", "gpu1"])) for n in range(draw(st.integers(1, 2)))}
        for model in "ABC"
    }


SERVICE_US = {"A": 300, "B": 700, "C": 1100}
NEEDS = {"A": {"memory": 1}, "B": {"memory": 2, "licence": 1}, "C": {"memory": 3}}


@given(arbiters, houses(), crowds())
def test_resources_are_never_exceeded_and_everybody_is_served(arbiter, instances, crowd):
    resources = Resources(NEEDS, per_device={"memory": 3}, shared={"licence": 1})

    runs = house(arbiter(), resources, "ABC", Greedy, **SERVICE_US).play(instances, crowd)

    assert sorted("".join(run.members for run in runs).split()) == sorted(a.name.strip() for _, a in crowd)
    for moment in {run.start_us for run in runs}:
        used: Counter[str] = Counter()
        for run in runs:
            if run.start_us <= moment < run.end_us:
                used[f"memory {run.device}"] += NEEDS[run.model]["memory"]
                used["licence"] += NEEDS[run.model].get("licence", 0)
        assert used["licence"] <= 1
        assert all(amount <= 3 for amount in used.values())


@given(st.sampled_from([RoundRobin, EarliestDeadline, RateLimiter]), crowds())
def test_no_device_idles_while_a_greedy_model_has_requests(arbiter, crowd):
    runs = house(arbiter(), None, "ABC", Greedy, **SERVICE_US).play(on_one_device("ABC"), crowd)

    arrived = {arrival.name.strip(): arrival.at_ns // MICROSECOND_NS for _, arrival in crowd}
    ends = {run.end_us for run in runs}
    for run in runs:
        first_us = min(arrived[name] for name in run.members.split())
        assert run.start_us == first_us or run.start_us in ends  # who waited, waited for the batch before
        assert sum(other.start_us <= run.start_us < other.end_us for other in runs) == 1


@given(crowds())
def test_in_round_robin_nobody_starts_twice_while_another_waits_for_its_turn(crowd):
    runs = house(RoundRobin(), None, "ABC", Greedy, **SERVICE_US).play(on_one_device("ABC"), crowd)

    arrived = {arrival.name.strip(): arrival.at_ns // MICROSECOND_NS for _, arrival in crowd}
    for place, run in enumerate(runs):
        waits_since_us = min(arrived[name] for name in run.members.split())
        before = [other.model for other in runs[:place] if other.start_us > waits_since_us]
        since_its_last = before[len(before) - before[::-1].index(run.model) :] if run.model in before else before
        assert max(Counter(since_its_last).values(), default=0) <= 1


class Alone:
    """A model on devices of its own, driven through `SharedDevices`, as a scheduler for the simulation."""

    preserves_ordering = False

    def __init__(self, scheduler: Scheduler, arbiter) -> None:
        self.reserve = scheduler.reserve
        resources = Resources(per_device={"device": 8})
        self._shared = SharedDevices(
            {"A": scheduler, "B": Scheduler(Greedy(), Limits(max_batch_rows=1))}, arbiter, resources
        )

    @property
    def wake_at_ns(self):
        return self._shared.wake_at_ns

    def handle(self, events, now_ns):
        return self._shared.handle({"A": list(events) or [Timer()]}, now_ns)["A"]


POLICIES = {
    "greedy": Greedy,
    "nexus": lambda: Nexus(NexusSettings(profile_us=PROFILE_US, slo_us=2500, target_batch=3), LARGEST),
    "symphony": lambda: Symphony(SymphonySettings(profile_us=PROFILE_US, slo_us=2500, target_batch=3), LARGEST),
    "shepherd": lambda: Shepherd(ShepherdSettings(profile_us=PROFILE_US, slo_us=2500)),
    "triton": lambda: create_policy("triton", {"max_queue_delay_microseconds": 300}, max_batch_rows=LARGEST),
    "sequence_direct": lambda: SequenceDirect(
        SequenceDirectSettings(max_queue_delay_microseconds=400, minimum_slot_utilization=0.7), LARGEST
    ),
    "sequence_oldest": lambda: SequenceOldest(SequenceOldestSettings(max_queue_delay_microseconds=300), LARGEST),
}  # fmt: skip


@given(st.sampled_from(sorted(POLICIES)), arbiters, crowds(), st.integers(1, 3))
def test_a_model_alone_behaves_as_without_an_arbiter(policy, arbiter, crowd, instances):
    def play(wrap):
        started = set()
        arrivals = []
        for model, arrival in crowd:
            sequence = Sequence(model, start=model not in started)
            started.add(model)
            arrivals.append(arrival._replace(rows=1, sequence=sequence, patience_ns=4_000_000))
        scheduler = Scheduler(POLICIES[policy](), Limits(max_batch_rows=LARGEST), can_abort=True)
        names = [f"i{number}" for number in range(instances)]
        return Simulation(wrap(scheduler), lambda rows: 500_000 + 100_000 * rows, names).run(arrivals).commands

    assert play(lambda scheduler: Alone(scheduler, arbiter())) == play(lambda scheduler: scheduler)


def test_a_model_alone_has_its_slot_at_the_moment_at_which_it_becomes_free():
    policy = create_policy("triton", {"max_queue_delay_microseconds": 500}, max_batch_rows=8)
    alone = Alone(Scheduler(policy, Limits(max_batch_rows=8)), RoundRobin())

    outcome = Simulation(alone, lambda rows: 2_000_000).run(
        [arrival for _, arrival in load("Aa@0 Ab@600 Ac@1200 Ad@1300")]
    )

    # Triton's instance takes the staged b before its batcher looks at the queue, where c and d are.
    assert starts(outcome) == "500:a 2500:b 4500:cd"
