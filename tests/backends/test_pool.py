"""A pool: names, devices, warm-up sizes, and all or nothing at the start."""

import asyncio
import threading

import pytest

from backends.errors import InstanceClosedError, LoadError
from backends.fake import FakeExecutor
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Executor, ExecutorFactory, Placement
from backends.registry import create_executors
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from models.spec import DeviceKind, InstanceGroup, ModelSpec
from tests.backends.builders import Gate, ScriptedExecutor, failing, model, payload, thread_names

TWO_AND_ONE = (
    InstanceGroup(name="big", kind=DeviceKind.CPU, count=2),
    InstanceGroup(name="small", kind=DeviceKind.CPU, count=1),
)


def pool(spec: ModelSpec, *, factory: ExecutorFactory = create_executors) -> InstancePool:
    clock = MonotonicClock()
    machine = Machine(gpus={}, defaults=Placement(cores=2))
    return InstancePool(spec, clock=clock, machine=machine, workers=WorkerHouse(clock), factory=factory)


def scripted(*executors: Executor) -> ExecutorFactory:
    return lambda spec, placement: [[executor] for executor in executors]


async def test_groups_become_named_instances_on_the_cpu_in_order():
    instances = pool(model(groups=TWO_AND_ONE))

    await instances.start()
    made = [(each.name, each.device, each.max_in_flight) for each in instances.instances]
    await instances.aclose()

    assert made == [("big_0", "cpu", 1), ("big_1", "cpu", 1), ("small_0", "cpu", 1)]
    assert list(instances.instances) == []
    assert not thread_names() & {"big_0", "big_1", "small_0"}


async def test_statistics_are_those_of_each_instance():
    instances = pool(model(groups=TWO_AND_ONE))

    await instances.start()
    await instances.instances[1].execute([payload(1, 2)])
    rows = {each.statistics.name: each.statistics.rows for each in instances.statuses()}
    await instances.aclose()

    assert rows == {"big_0": 0, "big_1": 2, "small_0": 0}


async def test_instances_load_at_the_same_time_and_warm_up_the_same_sizes():
    together = threading.Barrier(3)
    warmed: list[object] = []
    spec = model(groups=TWO_AND_ONE, max_batch_rows=6)

    def load() -> None:
        together.wait(timeout=10)

    executors = [ScriptedExecutor(spec, load=load, warm_up=warmed.append) for _ in range(3)]
    instances = pool(spec, factory=scripted(*executors))

    await instances.start()
    await instances.aclose()

    assert [list(sizes) for sizes in warmed] == [[1, 2, 4, 6]] * 3


async def test_one_instance_that_fails_closes_those_that_were_started():
    closed: list[str] = []
    spec = model(groups=TWO_AND_ONE)
    instances = pool(
        spec,
        factory=scripted(
            ScriptedExecutor(spec, close=lambda: closed.append("first")),
            ScriptedExecutor(spec, load=failing(LoadError("second is broken"))),
            ScriptedExecutor(spec, close=lambda: closed.append("third")),
        ),
    )

    with pytest.raises(LoadError, match="second is broken"):
        await instances.start()

    assert sorted(closed) == ["first", "third"]
    assert list(instances.instances) == []
    assert not thread_names() & {"big_0", "big_1", "small_0"}


async def test_a_start_that_is_cancelled_leaves_no_thread():
    gate = Gate()
    instances = pool(model(), factory=scripted(ScriptedExecutor(model(), load=gate.pass_through)))
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(instances.start())
        await gate.wait_until_entered()
        starting.cancel()
        gate.open()

    assert starting.cancelled()
    assert "m_0" not in thread_names()


async def test_closing_twice_is_harmless_and_instances_refuse_afterwards():
    instances = pool(model(), factory=scripted(FakeExecutor(model())))
    await instances.start()
    (instance,) = instances.instances

    await instances.aclose()
    await instances.aclose()

    with pytest.raises(InstanceClosedError):
        await instance.execute([payload(1)])


async def test_an_unknown_backend_does_not_start():
    with pytest.raises(LoadError, match="unknown backend 'caffe'"):
        await pool(model(backend="caffe")).start()
