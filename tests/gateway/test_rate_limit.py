"""Triton's rate limiter: flags and configurations that say who takes turns at what."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from batching.clock import MICROSECOND_NS
from batching.core.errors import ShuttingDownError
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.runner import Runner
from batching.virtual_time import VirtualClock
from gateway.rate_limit import RateLimit, ResourceLimit, parse_resource_limit
from models.errors import ConfigError
from models.spec import DeviceKind, InstanceGroup, ModelSpec, Resource
from tests.batching.live import SleepingInstance, in_virtual_time, serving
from tests.gateway.serving import echo

MEMORY = Resource(name="memory", count=1)
SLOT = Resource(name="slot", count=1)


def needing(name: str, *resources: Resource, priority: int = 0) -> ModelSpec:
    return with_groups(name, (resources, priority))


def with_groups(name: str, *groups: tuple[Sequence[Resource], int]) -> ModelSpec:
    made = [
        InstanceGroup(
            name=f"{name}_{number}", kind=DeviceKind.CPU, count=1, resources=tuple(resources), priority=priority
        )
        for number, (resources, priority) in enumerate(groups)
    ]
    return replace(echo(name), instance_groups=tuple(made))


def memory(count: int) -> Resource:
    return replace(MEMORY, count=count)


def limiter(*flags: str, clock=None) -> RateLimit:
    return RateLimit([parse_resource_limit(flag) for flag in flags], clock or VirtualClock())


def scheduler() -> Scheduler:
    return Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=4))


# Flags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("memory:4", ResourceLimit("memory", 4), id="every-device"),
        pytest.param("slots:2:1", ResourceLimit("slots", 2, 1), id="one-device"),
    ],
)
def test_a_flag_says_how_much_there_is_and_where(text, expected):
    assert parse_resource_limit(text) == expected


@pytest.mark.parametrize("text", ["memory", "memory:", ":4", "memory:-1", "memory:4:gpu0", "memory:1:2:3", "memory:٤"])
def test_a_flag_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match="expected <name>:<count> or <name>:<count>:<device>"):
        parse_resource_limit(text)


# Mistakes


@pytest.mark.parametrize(
    ("flags", "spec", "devices", "expected"),
    [
        pytest.param(
            ["memory:2"], needing("big", memory(3)), [],
            "big/config.pbtxt: instance_group[0].rate_limiter.resources[0].count: found 3 of resource 'memory', "
            "expected at most 2, all there is; ask for less, or start with --rate-limit-resource=memory:3",
            id="more-than-there-is",
        ),
        pytest.param(
            ["memory:1", "memory:9:1"], needing("big", memory(3)), ["gpu1", "gpu0"],
            "big/config.pbtxt: instance_group[0].rate_limiter.resources[0].count: found 3 of resource 'memory', "
            "expected at most 1, all there is on gpu0; ask for less, or start with --rate-limit-resource=memory:3",
            id="more-than-one-device-has",
        ),
        pytest.param(
            ["memory:3:1"], needing("big", memory(3)), ["cpu"],
            "big/config.pbtxt: instance_group[0].rate_limiter.resources[0].count: found 3 of resource 'memory', "
            "expected at most 0, all there is on cpu; ask for less, or start with --rate-limit-resource=memory:3",
            id="only-on-another-device",
        ),
        pytest.param(
            [], with_groups("two", ([memory(1)], 0), ([memory(2)], 0)), [],
            "two/config.pbtxt: instance_group[1].rate_limiter: found other resources or another priority than in "
            "instance_group[0], expected the same in all groups: it is the model's queue that takes turns, and the "
            "groups share it",
            id="groups-with-other-needs",
        ),
        pytest.param(
            [], with_groups("two", ([memory(1)], 1), ([memory(1)], 2)), [],
            "two/config.pbtxt: instance_group[1].rate_limiter: found other resources or another priority than in "
            "instance_group[0], expected the same in all groups: it is the model's queue that takes turns, and the "
            "groups share it",
            id="groups-with-other-priorities",
        ),
        pytest.param(
            [], needing("twice", memory(1), memory(2)), [],
            "twice/config.pbtxt: instance_group[0].rate_limiter.resources: found resource 'memory' twice, expected "
            "each resource once",
            id="a-resource-twice",
        ),
        pytest.param(
            [], needing("other", Resource(name="licence", count=1), Resource(name="memory", count=1, shared=True)), [],
            "other/config.pbtxt: instance_group[0].rate_limiter.resources[1].global: found true for resource "
            "'memory', expected false, as in model 'here'",
            id="global-here-and-not-there",
        ),
    ],
)  # fmt: skip
def test_what_could_never_run_is_refused_before_it_is_loaded(flags, spec, devices, expected):
    subject = limiter(*flags)
    here = needing("here", memory(0), SLOT)

    with subject.share(here, scheduler(), ["cpu"]), pytest.raises(ConfigError) as caught:
        subject.check(spec, devices)

    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("flags", "spec", "devices"),
    [
        pytest.param(["memory:1", "memory:3:1"], needing("a", memory(3)), ["gpu1"], id="the-device-has-more"),
        pytest.param(["memory:3", "memory:1:1"], needing("a", memory(3)), ["gpu1"], id="the-larger-flag-counts"),
        pytest.param(["memory:3:0"], needing("a", memory(3)), ["cpu"], id="the-cpu-is-device-0-too"),
        pytest.param(
            ["licence:3:7"], needing("a", Resource(name="licence", count=3, shared=True)), ["gpu0"],
            id="what-is-global-has-no-device",
        ),
        pytest.param(["memory:1"], needing("a", Resource(name="slots", count=9)), ["gpu0"], id="no-flag-no-limit"),
        pytest.param(
            [], with_groups("a", ([MEMORY, SLOT], 0), ([SLOT, MEMORY], 1)),
            ["cpu"], id="groups-that-say-the-same",
        ),
    ],
)  # fmt: skip
def test_what_can_run_is_accepted(flags, spec, devices):
    with limiter(*flags).share(spec, scheduler(), devices) as shared:
        assert not shared.is_closed


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(needing("plain"), id="nothing-said"),
        pytest.param(with_groups("plain", ([], 1), ([], 2)), id="priorities-alone"),
        pytest.param(needing("plain", memory(0)), id="none-of-something"),
    ],
)
def test_a_model_that_needs_nothing_keeps_its_scheduler(spec):
    own = scheduler()

    with limiter("memory:0").share(spec, own, ["cpu"]) as given:
        assert given is own


# Turns


class Rack:
    """Runs models in virtual time, each on instances that sleep for a millisecond; notes their starts."""

    def __init__(self, loop, limit: RateLimit) -> None:
        self.starts: list[tuple[int, str]] = []
        self._loop = loop
        self._limit = limit

    @contextmanager
    def runner(self, spec: ModelSpec, *devices: str):
        with self._limit.share(spec, scheduler(), devices) as shared:
            instances = [self._instance(spec.name, number, device) for number, device in enumerate(devices)]
            yield Runner(shared, instances, self._loop.clock, self._loop.create_alarm)

    def _instance(self, model: str, number: int, device: str) -> SleepingInstance:
        def start(_rows: int) -> int:
            self.starts.append((self._loop.clock.now_ns() // MICROSECOND_NS, model))
            return 1000 * MICROSECOND_NS

        instance = SleepingInstance(self._loop.clock, start, f"{model}_{number}")
        instance.device = device
        return instance


def starts(*models: tuple[ModelSpec, str, int], flags: Sequence[str] = ()) -> list[tuple[int, str]]:
    """When which model started; each has instances on devices, and gets so many requests at once."""

    async def scenario(loop):
        rack = Rack(loop, limiter(*flags, clock=loop.clock))
        with ExitStack() as stack:
            runners = [stack.enter_context(rack.runner(spec, *devices.split())) for spec, devices, _ in models]
            async with asyncio.TaskGroup() as tasks:
                for runner, (_, _, requests) in zip(runners, models, strict=True):
                    tasks.create_task(crowd(runner, requests))
        return sorted(rack.starts)

    return in_virtual_time(scenario)


async def crowd(runner, requests: int) -> None:
    async with serving(runner) as callers:
        for number in range(requests):
            callers.create_task(runner.execute(number, 1))


@pytest.mark.parametrize("shared", [False, True], ids=["per-device", "global"])
@pytest.mark.parametrize("order", [1, -1], ids=["it-comes-last", "it-comes-first"])
def test_without_flags_there_is_what_the_most_demanding_model_needs(order, shared):
    small, large = (Resource(name="memory", count=count, shared=shared) for count in (1, 2))
    models = (needing("a", small), "cpu cpu cpu", 3), (needing("b", large), "cpu", 0)

    found = starts(*models[::order])

    assert found == [(0, "a"), (0, "a"), (1000, "a")]


def test_the_most_demanding_model_gets_its_turn():
    found = starts((needing("a", memory(1)), "cpu cpu", 2), (needing("b", memory(2)), "cpu", 2))

    assert found == [(0, "a"), (1000, "b"), (2000, "a"), (3000, "b")]


def test_a_model_of_priority_two_gets_half_the_turns():
    found = starts((needing("a", MEMORY), "cpu", 6), (needing("b", MEMORY, priority=2), "cpu", 6))

    assert "".join(model for _, model in found[:9]) == "abaabaaba"


def test_every_device_has_its_own():
    found = starts((needing("a", MEMORY), "gpu0", 1), (needing("b", MEMORY), "gpu1", 1))

    assert found == [(0, "a"), (0, "b")]


def test_without_flags_a_device_has_what_the_most_demanding_model_there_needs():
    found = starts((needing("a", memory(1)), "gpu0 gpu0", 2), (needing("b", memory(2)), "gpu1", 2))

    assert [at_us for at_us, model in found if model == "a"] == [0, 1000]


def test_what_is_global_is_there_once_for_all_devices():
    licence = Resource(name="licence", count=1, shared=True)

    found = starts((needing("a", licence), "gpu0", 1), (needing("b", licence), "gpu1", 1), flags=["licence:1:5"])

    assert found == [(0, "a"), (1000, "b")]


def test_a_flag_lets_more_run_at_once():
    models = (needing("a", MEMORY), "cpu", 1), (needing("b", MEMORY), "cpu", 1)

    assert starts(*models) == [(0, "a"), (1000, "b")]
    assert starts(*models, flags=["memory:2"]) == [(0, "a"), (0, "b")]


def test_when_the_most_demanding_model_has_gone_there_is_less():
    async def scenario(loop):
        rack = Rack(loop, limiter(clock=loop.clock))
        with rack.runner(needing("a", memory(1)), "cpu", "cpu") as stays:
            with rack.runner(needing("b", memory(2)), "cpu") as goes:
                await crowd(goes, 1)
            await crowd(stays, 2)
        return rack.starts

    assert in_virtual_time(scenario) == [(0, "b"), (1000, "a"), (2000, "a")]


def test_a_version_may_be_here_twice_while_it_is_reloaded():
    async def scenario(loop):
        rack = Rack(loop, limiter(clock=loop.clock))
        spec = needing("a", MEMORY)
        with rack.runner(spec, "cpu") as old, rack.runner(spec, "cpu") as new:
            async with asyncio.TaskGroup() as tasks:
                for runner in (old, new):
                    tasks.create_task(crowd(runner, 1))
        return rack.starts

    assert in_virtual_time(scenario) == [(0, "a"), (1000, "a")]


def test_at_the_end_of_the_block_a_model_gives_back_what_a_batch_that_was_given_up_had():
    async def scenario(loop):
        rack = Rack(loop, limiter(clock=loop.clock))
        async with asyncio.TaskGroup() as tasks:
            with rack.runner(needing("b", MEMORY), "cpu") as stays:
                with rack.runner(needing("a", MEMORY), "cpu") as goes:
                    running = tasks.create_task(goes.run())
                    await asyncio.sleep(0)
                    tasks.create_task(unheard(goes))
                    waiting = tasks.create_task(crowd(stays, 1))
                    await asyncio.sleep(0.0002)
                    running.cancel()
                    await asyncio.sleep(0.0005)  # its executor is busy until then
                await waiting
        return rack.starts

    assert in_virtual_time(scenario) == [(0, "a"), (700, "b")]


async def unheard(runner) -> None:
    with pytest.raises(ShuttingDownError):
        await runner.execute(1, 1)
