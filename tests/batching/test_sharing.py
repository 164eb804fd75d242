"""Live models that take turns, in virtual time: against the simulation, and coming and going."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS, SECOND_NS
from batching.core.actions import Launch
from batching.core.arbiter import EarliestDeadline, RateLimiter, Resources, RoundRobin
from batching.core.batches import CloseReason
from batching.core.errors import BatchingError, PolicyError
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined
from batching.core.limits import Limits
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler
from batching.core.shared_devices import SharedDevices
from batching.policies.greedy import Greedy
from batching.profiles import create_policy
from batching.runner import Runner
from batching.sharing import SharedSchedulers
from batching.simulation import Arrival
from batching.virtual_time import VirtualTimeLoop
from tests.batching.live import SleepingInstance, ask, in_virtual_time, serving
from tests.batching.test_arbiter import House, Run, load, shown

LARGEST = 4
SERVICE_US = {"A": 307, "B": 709, "C": 1103}
NEEDS = {"A": {"memory": 1}, "B": {"memory": 2, "licence": 1}, "C": {"memory": 3}}


def ample() -> Resources:
    return Resources(NEEDS, per_device={"memory": 3}, shared={"licence": 1})


def single() -> Resources:
    return Resources(per_device={"device": 1})


class RecordingInstance(SleepingInstance):
    """Notes what ran when; a batch that is given up has no end."""

    def __init__(self, rack: "Rack", model: str, name: str, device: str) -> None:
        super().__init__(rack.loop.clock, lambda _rows: rack.service_us[model] * MICROSECOND_NS, name)
        self.device = device
        self._rack = rack
        self._model = model

    async def execute(self, batch):
        start_us = self._rack.loop.clock.now_ns() // MICROSECOND_NS
        members = "".join(str(getattr(payload, "name", payload)) for payload in batch)
        run = Run(self._model, self.device, start_us, -1, members)
        self._rack.runs.append(run)
        outcome = await super().execute(batch)
        run.end_us = self._rack.loop.clock.now_ns() // MICROSECOND_NS
        return outcome


@dataclass
class Rack:
    """Runners of several models that share resources."""

    loop: VirtualTimeLoop
    shared: SharedSchedulers
    service_us: dict[str, int]
    runs: list[Run] = field(default_factory=list)
    runners: dict[str, Runner[object, object]] = field(default_factory=dict)

    def add(self, model: str, policy, devices: dict[str, str] | None = None) -> Runner[object, object]:
        seat = self.shared.add(model, Scheduler(policy, Limits(max_batch_rows=LARGEST)))
        places = devices or {f"{model}0": "gpu0"}
        instances = [RecordingInstance(self, model, name, device) for name, device in places.items()]
        self.runners[model] = Runner(seat, instances, self.loop.clock, self.loop.create_alarm)
        return self.runners[model]

    async def play(self, crowd: list[tuple[str, Arrival]]) -> None:
        async with AsyncExitStack() as stack:
            groups = {model: await stack.enter_async_context(serving(runner)) for model, runner in self.runners.items()}
            for model, arrival in crowd:
                groups[model].create_task(call(self.runners[model], arrival))


async def call(runner: Runner[object, object], arrival: Arrival) -> object:
    await until(arrival.at_ns)
    try:
        return await ask(runner, arrival)
    except (BatchingError, TimeoutError, ZeroDivisionError) as error:
        return error


async def until(at_ns: int) -> None:
    await asyncio.sleep(at_ns / SECOND_NS - asyncio.get_running_loop().time())


def rack(loop, arbiter, resources=None, service_us=None) -> Rack:
    shared = SharedSchedulers(arbiter, resources or single(), loop.clock)
    return Rack(loop, shared, service_us or dict.fromkeys("ABC", 1000))


def played(text: str, arbiter, resources=None, models: str = "AB") -> list[Run]:
    async def scenario(loop):
        subject = rack(loop, arbiter, resources)
        for model in models:
            subject.add(model, Greedy(max_requests=1))
        await subject.play(load(text))
        return subject.runs

    return in_virtual_time(scenario)


def waiting(each: int, models: str = "AB") -> str:
    return " ".join(f"{model}{model.lower()}@{number}" for number in range(1, each + 1) for model in models)


def test_when_one_model_frees_the_device_another_starts_at_that_instant():
    assert shown(played("Aa@0 Bb@10 Ac@20 Bd@30", RoundRobin())) == "0:Aa 1000:Bb 2000:Ac 3000:Bd"


def test_what_happens_to_several_models_in_one_turn_of_the_loop_is_seen_together():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        first, second = subject.add("A", Greedy()), subject.add("B", Greedy())
        async with serving(first) as callers, serving(second) as others:
            others.create_task(call(second, Arrival("b", 0)))  # tells its runner first, but then it is a's turn
            callers.create_task(call(first, Arrival("a", 0)))
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa 1000:Bb"


class Hesitant:
    """Waits for 200 us when it first sees a free instance."""

    queue_order = QueueOrder.ARRIVAL

    def __init__(self) -> None:
        self._start_ns: int | None = None

    def decide(self, view, news):
        if not len(view.queue) or not view.idle_slots:
            return []
        if self._start_ns is None:
            self._start_ns = view.now_ns + 200 * MICROSECOND_NS
        return [Launch(1, CloseReason.DELAY)] if self._start_ns <= view.now_ns else []

    def wake_at_ns(self, view):
        return self._start_ns if self._start_ns is not None and view.now_ns < self._start_ns else None


def test_a_policy_that_waits_is_woken_although_another_model_freed_the_device():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        subject.add("A", Greedy())
        subject.add("B", Hesitant())
        await subject.play(load("Aa@0 Bb@10"))
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa 1200:Bb"


def test_a_model_of_priority_two_gets_every_third_turn():
    runs = played(waiting(6), RateLimiter({"B": 2}))

    assert "".join(run.model for run in runs[:9]) == "ABAABAABA"


def test_models_that_need_nothing_of_each_other_do_not_wait():
    resources = Resources({"A": {"memory": 1}, "B": {}}, per_device={"memory": 1})

    assert shown(played("Aa@0 Bb@10 Ac@20", RateLimiter(), resources)) == "0:Aa 10:Bb 1000:Ac"


def test_a_batch_that_fails_gives_its_resource_back():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        bad, good = subject.add("A", Greedy()), subject.add("B", Greedy())
        async with serving(bad) as callers, serving(good) as others:
            failing = callers.create_task(outcome(bad, ZeroDivisionError("broken")))
            await asyncio.sleep(0)
            others.create_task(call(good, Arrival("b", 0)))
        return type(failing.result()), subject.runs[-1]

    error, last = in_virtual_time(scenario)

    assert (error, last.model, last.start_us) == (ZeroDivisionError, "B", 1000)


async def outcome(runner, payload) -> object:
    try:
        return await runner.execute(payload, 1)
    except ZeroDivisionError as error:
        return error


@pytest.mark.parametrize(
    ("leaves_us", "expected"),
    [
        pytest.param(500, "0:Aa 1000:Ac", id="while-it-waits"),
        pytest.param(1500, "0:Aa 1000:Bb 2000:Ac", id="while-it-runs"),
    ],
)
def test_a_caller_that_leaves_gives_back_what_it_has_and_no_more(leaves_us, expected):
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        for model in "AB":
            subject.add(model, Greedy(max_requests=1))
        leaver = Arrival("b", 10 * MICROSECOND_NS, leaves_ns=(leaves_us - 10) * MICROSECOND_NS)
        await subject.play([*load("Aa@0 Ac@20"), ("B", leaver)])
        return subject.runs

    assert shown(in_virtual_time(scenario)) == expected


def test_a_model_may_join_while_others_run():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        first = subject.add("A", Greedy(max_requests=1))
        async with serving(first) as callers:
            for name, at_us in (("a", 0), ("b", 10), ("c", 20)):
                callers.create_task(call(first, Arrival(name, at_us * MICROSECOND_NS)))
            await until(500 * MICROSECOND_NS)
            second = subject.add("B", Greedy())
            async with serving(second) as others:
                others.create_task(call(second, Arrival("d", 600 * MICROSECOND_NS)))
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa 1000:Bd 2000:Ab 3000:Ac"


def test_a_model_that_is_removed_gives_back_what_its_batch_had():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        gone, stays = subject.add("A", Greedy()), subject.add("B", Greedy())
        async with serving(stays) as callers, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(gone.run())
            await asyncio.sleep(0)
            tasks.create_task(call(gone, Arrival("a", 0)))
            callers.create_task(call(stays, Arrival("b", 10 * MICROSECOND_NS)))
            await until(200 * MICROSECOND_NS)
            running.cancel()
            await until(700 * MICROSECOND_NS)  # its executor is busy until then
            subject.shared.remove("A")
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa 700:Bb"


def test_a_model_that_is_removed_gives_nothing_back_twice():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        async with serving(subject.add("A", Greedy())) as callers:
            callers.create_task(call(subject.runners["A"], Arrival("a", 0)))
        subject.shared.remove("A")
        stays = subject.add("B", Greedy(max_requests=1), {"B0": "gpu0", "B1": "gpu0"})
        async with serving(stays) as callers:
            for name in "bc":
                callers.create_task(call(stays, Arrival(name, 1500 * MICROSECOND_NS)))
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa 1500:Bb 2500:Bc"


def test_a_model_that_leaves_while_it_waits_for_its_turn_holds_nobody_up():
    resources = Resources({"A": {"memory": 2}, "B": {"memory": 1}, "C": {"memory": 1}}, per_device={"memory": 2})

    async def scenario(loop):
        subject = rack(loop, RoundRobin(), resources)
        gone, *stay = (subject.add(model, Greedy(max_requests=1)) for model in "ABC")
        async with serving(stay[0]) as callers, serving(stay[1]) as others, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(gone.run())
            callers.create_task(call(stay[0], Arrival("b", 0)))
            await until(100 * MICROSECOND_NS)
            tasks.create_task(call(gone, Arrival("a", 100 * MICROSECOND_NS)))  # needs also what b has
            others.create_task(call(stay[1], Arrival("c", 200 * MICROSECOND_NS)))  # fits, but it is a's turn
            await until(300 * MICROSECOND_NS)
            running.cancel()
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Bb 300:Cc"


def test_a_model_is_not_removed_under_its_runner():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        async with serving(subject.add("A", Greedy())):
            with pytest.raises(RuntimeError, match="model 'A' cannot be removed while its runner runs"):
                subject.shared.remove("A")

    in_virtual_time(scenario)


def test_a_name_is_taken_until_its_model_is_removed():
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        async with serving(subject.add("A", Greedy())):
            pass
        with pytest.raises(ValueError, match="'A' is here already"):
            subject.add("A", Greedy())
        subject.shared.remove("A")
        async with serving(subject.add("A", Greedy())) as callers:
            callers.create_task(call(subject.runners["A"], Arrival("a", 0)))
        return subject.runs

    assert shown(in_virtual_time(scenario)) == "0:Aa"


class Lawless:
    """Starts more than there is."""

    queue_order = QueueOrder.ARRIVAL

    def decide(self, view, news):
        return [Launch(9, CloseReason.EAGER)] if len(view.queue) and view.idle_slots else []

    def wake_at_ns(self, view):
        return None


@pytest.mark.parametrize("first", ["A", "B"], ids=["in-its-own-turn", "in-the-turn-of-another"])
def test_a_policy_that_breaks_a_law_ends_its_own_runner_only(first):
    async def scenario(loop):
        subject = rack(loop, RoundRobin())
        lawless, lawful = subject.add("A", Lawless()), subject.add("B", Greedy(max_requests=1))
        async with serving(lawful) as callers, asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(ending(lawless))
            await asyncio.sleep(0)
            others = [callers.create_task(call(lawful, arrival)) for _, arrival in load("Bb@100 Bc@200 Bd@300")]
            at_us = 50 if first == "A" else 250
            victim = tasks.create_task(call(lawless, Arrival("a", at_us * MICROSECOND_NS)))
            await asyncio.wait(others)
        return ended.result(), victim.result(), shown(subject.runs)

    error, victim, runs = in_virtual_time(scenario)

    assert isinstance(error, PolicyError)
    assert isinstance(victim, BatchingError)
    assert runs == "100:Bb 1100:Bc 2100:Bd"


async def ending(runner) -> Exception:
    try:
        await runner.run()
    except PolicyError as error:
        return error


# Laws

arbiters = st.sampled_from([RoundRobin, RateLimiter, lambda: RateLimiter({"A": 3, "C": 2}), EarliestDeadline])
supplies = st.sampled_from([ample, single])
POLICIES: dict[str, Callable[[], object]] = {
    "greedy": Greedy,
    "one": lambda: Greedy(max_requests=1),
    "triton": lambda: create_policy("triton", {"max_queue_delay_microseconds": 437}, max_batch_rows=LARGEST),
    "shoal": lambda: create_policy("shoal", {}, max_batch_rows=LARGEST),
}


@st.composite
def crowds(draw: st.DrawFn, models: str = "ABC") -> list[tuple[str, Arrival]]:
    """No two at the same instant, nor at that of what follows from another: live, their order is not promised."""
    times_us = draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=30))
    patience = st.none() | st.integers(500, 5_000)
    return [
        (
            draw(st.sampled_from(models)),
            Arrival(
                f"r{number} ",
                at_us * MICROSECOND_NS + 10 * number,
                rows=draw(st.integers(1, 3)),
                patience_ns=None if (us := draw(patience)) is None else us * MICROSECOND_NS + 503,
            ),
        )
        for number, at_us in enumerate(times_us)
    ]


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    return {
        model: {f"{model}{n}": draw(st.sampled_from(["gpu0", "gpu1"])) for n in range(draw(st.integers(1, 2)))}
        for model in "ABC"
    }


def by_time(runs: list[Run]) -> list[tuple[int, str, str, str]]:
    return sorted((run.start_us, run.model, run.device, run.members) for run in runs)


@given(arbiters, supplies, st.fixed_dictionaries(dict.fromkeys("ABC", st.sampled_from(sorted(POLICIES)))), fleets(),
       crowds())  # fmt: skip
def test_live_models_start_what_they_start_in_the_simulation(arbiter, supply, policies, fleet, crowd):
    schedulers = {
        model: Scheduler(POLICIES[name](), Limits(max_batch_rows=LARGEST)) for model, name in policies.items()
    }
    simulated = House(SharedDevices(schedulers, arbiter(), supply()), schedulers, SERVICE_US)
    simulated.play(fleet, crowd)

    async def scenario(loop):
        subject = rack(loop, arbiter(), supply(), SERVICE_US)
        for model, name in policies.items():
            subject.add(model, POLICIES[name](), fleet[model])
        await subject.play(crowd)
        return subject.runs

    assert by_time(in_virtual_time(scenario)) == by_time(simulated.runs)


@st.composite
def stays(draw: st.DrawFn) -> dict[str, tuple[int, int]]:
    """By model that comes and goes, when it does so, in us."""
    return {model: (came := draw(st.integers(0, 4_000)), came + draw(st.integers(0, 5_000))) for model in "AC"}


@given(arbiters, fleets(), crowds(), stays())
def test_while_models_come_and_go_nobody_exceeds_resources_or_starves(arbiter, fleet, crowd, guests):
    async def scenario(loop):
        subject = rack(loop, arbiter(), ample(), SERVICE_US)
        host = subject.add("B", Greedy(), fleet["B"])

        async def visit(model: str, came_us: int, left_us: int) -> None:
            await until(came_us * MICROSECOND_NS)
            runner = subject.add(model, Greedy(), fleet[model])
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(runner.run())
                await asyncio.sleep(0)
                for arrival in (arrival for other, arrival in crowd if other == model):
                    at_ns = max(arrival.at_ns, loop.clock.now_ns())
                    tasks.create_task(call(runner, arrival._replace(at_ns=at_ns)))
                await until(left_us * MICROSECOND_NS)
                running.cancel()
                await asyncio.sleep(SERVICE_US[model] / 1e6)  # until its last batch has ended
            for run in subject.runs:
                if run.model == model and run.end_us < 0:
                    run.end_us = run.start_us + SERVICE_US[model]
            subject.shared.remove(model)

        async with asyncio.TaskGroup() as tasks:
            for model, times_us in guests.items():
                tasks.create_task(visit(model, *times_us))
            async with serving(host) as callers:
                answers = [
                    callers.create_task(call(host, arrival))
                    for model, arrival in crowd
                    if model == "B" and arrival.patience_ns is None
                ]
        return subject.runs, [answer.result() for answer in answers]

    runs, answers = in_virtual_time(scenario)

    check_use(runs)
    assert not any(isinstance(answer, Exception) for answer in answers)


def check_use(runs: list[Run]) -> None:
    for moment in {run.start_us for run in runs}:
        used: Counter[str] = Counter()
        for run in runs:
            if run.start_us <= moment < run.end_us:
                used[run.device] += NEEDS[run.model]["memory"]
                used["licence"] += NEEDS[run.model].get("licence", 0)
        assert used.pop("licence") <= 1
        assert all(amount <= 3 for amount in used.values())


@given(st.fixed_dictionaries(dict.fromkeys("ABC", st.integers(1, 4))), crowds())
def test_while_a_model_waits_another_gets_no_more_turns_than_the_priorities_say(priorities, crowd):
    patient = [(model, arrival._replace(patience_ns=None)) for model, arrival in crowd]
    schedulers = {model: Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=LARGEST)) for model in "ABC"}
    subject = House(SharedDevices(schedulers, RateLimiter(priorities), single()), schedulers, SERVICE_US)

    runs = subject.play({model: {f"{model}0": "gpu0"} for model in "ABC"}, patient)

    arrived = {arrival.name: arrival.at_ns // MICROSECOND_NS for _, arrival in crowd}
    for place, run in enumerate(runs):
        waits_since_us = max([arrived[run.members], *(r.start_us for r in runs[:place] if r.model == run.model)])
        for model, priority in priorities.items():
            turns = sum(r.model == model and waits_since_us < r.start_us for r in runs[:place])
            assert turns <= priorities[run.model] // priority + 1


# Resources that change


def test_what_a_device_has_of_its_own_counts_instead_of_what_each_has():
    resources = Resources({"A": {"memory": 2}}, per_device={"memory": 1}, on_device={("memory", "gpu1"): 2})

    assert [resources.suffice("A", device) for device in ("gpu0", "gpu1")] == [False, True]


def test_what_is_in_use_stays_in_use_when_there_is_less_or_more():
    resources = Resources({"A": {"memory": 2}, "B": {"memory": 1}}, per_device={"memory": 3})
    resources.take("A", "gpu0")

    fits = []
    for total in (2, 3):
        resources.define({"A": {"memory": 2}, "B": {"memory": 1}}, per_device={"memory": total})
        fits.append(resources.fit("B", "gpu0"))

    assert fits == [False, True]


def test_a_definition_that_cannot_be_changes_nothing():
    resources = Resources({"A": {"memory": 2}}, per_device={"memory": 2})

    with pytest.raises(ValueError, match="A needs 3 of resource 'memory', expected 0 to 2"):
        resources.define({"A": {"memory": 3}}, per_device={"memory": 2})

    assert resources.fit("A", "gpu0")


def test_who_needs_nothing_of_a_resource_may_start_although_too_much_of_it_is_in_use():
    resources = Resources({"A": {"memory": 2}, "B": {"memory": 0}}, per_device={"memory": 2})
    resources.take("A", "gpu0")

    resources.define({"A": {"memory": 1}, "B": {"memory": 0}}, per_device={"memory": 1})

    assert resources.fit("B", "gpu0")


def test_an_instance_where_its_model_can_never_run_keeps_nothing_from_others():
    resources = Resources(
        {"A": {"memory": 2}, "B": {"memory": 1}}, per_device={"memory": 1}, on_device={("memory", "gpu1"): 2}
    )
    schedulers = {model: Scheduler(Greedy(), Limits(max_batch_rows=LARGEST)) for model in "AB"}
    subject = House(SharedDevices(schedulers, RoundRobin(), resources), schedulers, {"A": 5000})

    runs = subject.play({"A": {"A0": "gpu0", "A1": "gpu1"}, "B": {"B0": "gpu0"}}, load("Aa@0 Ab@10 Bc@20 Bd@1100"))

    # At 1100 it is A's turn, which has an idle instance on gpu0, but waits for gpu1.
    assert shown(runs) == "0:Aa 20:Bc 1100:Bd 5000:Ab"


def test_a_model_that_comes_back_has_neither_its_old_turn_nor_its_old_priority():
    arbiter = RateLimiter({"A": 9, "B": 1})
    schedulers = {model: Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=LARGEST)) for model in "AB"}
    shared = SharedDevices(schedulers, arbiter)
    shared.handle({"A": [InstanceJoined("A0")]}, 0)
    (start,) = shared.handle({"A": [Arrived(schedulers["A"].reserve(1, 0))]}, 0)["A"]
    shared.handle({"A": [BatchDone(start.batch), InstanceFree(start.batch)]}, 1)

    shared.remove("A")
    schedulers["A"] = Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=LARGEST))
    shared.add("A", schedulers["A"])

    house = House(shared, schedulers)
    runs = house.play({model: {f"{model}0": "gpu0"} for model in "AB"}, load(waiting(2, "BA")))
    assert "".join(run.model for run in runs) == "BABA"
