"""PyTorch executors on a real GPU: overlap, recorded graphs, page-locked slots, memory, faults."""

import asyncio
import gc
import logging
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.errors import DeviceFaultError, LoadError
from backends.members import MemberState
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Executor
from backends.process.slots import Region
from backends.registry import create_executors
from backends.thread_host import ThreadInstance
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from models.spec import DeviceKind, InstanceGroup
from tests.backends.builders import POISON, payload
from tests.gpu.builders import IMAGE, MIB, SIZES, gpu_placement, images, loaded, output, torch_version
from tests.gpu.requirements import needs_compiler, require_gpu, visible_gpu

require_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(120)]

logger = logging.getLogger(__name__)

WEIGHTS_BYTES = 512 * MIB


def seconds(work: Sequence[Callable[[], object]]) -> float:
    """Time of several pieces of work, each in a thread of its own."""
    clock, start = MonotonicClock(), threading.Barrier(len(work) + 1)
    errors: list[BaseException] = []

    def run(piece: Callable[[], object]) -> None:
        start.wait()
        try:
            piece()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(piece,)) for piece in work]
    for thread in threads:
        thread.start()
    start.wait()
    started_ns = clock.now_ns()
    for thread in threads:
        thread.join()
    assert errors == []
    return (clock.now_ns() - started_ns) / 1e9


def repeat(executor: Executor, inputs, times: int) -> Callable[[], None]:  # type: ignore[no-untyped-def]
    def run() -> None:
        for _ in range(times):
            output(executor, inputs)

    return run


@pytest.fixture
def little_memory() -> Iterator[None]:
    """The process may use 1 GiB of GPU memory more than it does."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 1024 * MIB) / total, 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    torch.cuda.empty_cache()


def test_the_lanes_of_an_instance_copy_while_the_other_computes(tmp_path: Path) -> None:
    numbers = 16 * MIB  # 64 MiB a row
    dims, out_dims = (numbers,), (1,)
    spec = torch_version(tmp_path, "Sums", dims, out_dims)
    with loaded(spec, gpu_placement(tmp_path), [1]) as ((probe, _),):
        repeat(probe, {"x": np.ones((1, numbers), np.float32)}, 3)()  # the first ones load kernels
        times = probe.last_times  # type: ignore[attr-defined]
        repeats = max(1, round(times.copy_in_ns / max(1, times.compute_ns)))
    spec = torch_version(tmp_path, "Sums", dims, out_dims, model_arguments=f'{{"repeats": {repeats}}}')

    with loaded(spec, gpu_placement(tmp_path), [1]) as (lanes,):
        staged = [{"x": lane.stage("x", (1, numbers), np.dtype(np.float32))} for lane in lanes]  # type: ignore[attr-defined]
        for inputs in staged:
            inputs["x"][:] = 1
        one = seconds([repeat(lanes[0], staged[0], 60)])
        two = seconds([repeat(lane, inputs, 30) for lane, inputs in zip(lanes, staged, strict=True)])

    logger.info("60 batches: %.0f ms in one lane, %.0f ms in two, %d passes", one * 1e3, two * 1e3, repeats)
    assert two < 0.85 * one


def test_instances_compute_at_the_same_time(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Deep", (64,), (64,), graphs=True)
    inputs = {"x": np.ones((1, 64), np.float32)}

    with loaded(spec, gpu_placement(tmp_path, instances=2), [1]) as instances:
        first, second = (lanes[0] for lanes in instances)
        alone = seconds([repeat(first, inputs, 200)])
        both = seconds([repeat(first, inputs, 200), repeat(second, inputs, 200)])

    logger.info("200 batches: %.0f ms in one instance, 400: %.0f ms in two", alone * 1e3, both * 1e3)
    assert both < 1.6 * alone


def test_recorded_graphs_answer_as_the_model_does_for_every_size(tmp_path: Path) -> None:
    eager = torch_version(tmp_path, "Convolutions", IMAGE, (16,))
    graphs = torch_version(tmp_path, "Convolutions", IMAGE, (16,), graphs=True)

    with (
        loaded(eager, gpu_placement(tmp_path), SIZES) as ((model, _),),
        loaded(graphs, gpu_placement(tmp_path), SIZES) as (lanes,),
    ):
        for lane in lanes:
            for rows in (*SIZES, *reversed(SIZES)):
                batch = images(rows, seed=rows)
                np.testing.assert_allclose(output(lane, batch), output(model, batch), rtol=1e-3, atol=1e-3)


def test_two_lanes_of_recorded_graphs_never_mix_their_batches(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Convolutions", IMAGE, (16,), graphs=True)
    with loaded(spec, gpu_placement(tmp_path), SIZES) as (lanes,):
        batches = [images(8, seed=seed) for seed in (1, 2)]
        expected = [output(lanes[0], batch) for batch in batches]

        def check(index: int) -> None:
            for _ in range(200):
                np.testing.assert_allclose(output(lanes[index], batches[index]), expected[index], rtol=1e-5, atol=1e-6)

        seconds([lambda: check(0), lambda: check(1)])


def test_a_model_that_cannot_be_recorded_is_refused_and_spoils_nothing_for_others(tmp_path: Path) -> None:
    import torch

    waiting = torch_version(tmp_path, "Waiting", (2,), (2,), graphs=True)
    others = torch_version(tmp_path, "Convolutions", IMAGE, (16,), graphs=True)

    with (
        pytest.raises(LoadError, match=r"recorded kernels \(cuda graphs\) need a model that never waits"),
        loaded(waiting, gpu_placement(tmp_path), [1]),
    ):
        pass

    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.empty_cache()  # fails for good while PyTorch believes that something is being recorded
    with loaded(others, gpu_placement(tmp_path), SIZES) as ((lane, _),):
        assert output(lane, images(2)).shape == (2, 16)


def test_models_may_be_loaded_run_and_closed_while_another_is_recorded(tmp_path: Path) -> None:
    graphs = torch_version(tmp_path, "Convolutions", IMAGE, (16,), graphs=True)
    plain = torch_version(tmp_path, "Convolutions", IMAGE, (16,))
    batch = images(8)
    with loaded(plain, gpu_placement(tmp_path), SIZES) as ((serving, _),):
        expected = output(serving, batch)
        is_serving, is_recorded = threading.Event(), threading.Event()

        def record() -> None:
            try:
                assert is_serving.wait(timeout=30)
                for _ in range(5):
                    with loaded(graphs, gpu_placement(tmp_path), SIZES) as ((lane, _),):
                        np.testing.assert_allclose(output(lane, batch), expected, rtol=1e-3, atol=1e-3)
            finally:
                is_recorded.set()

        def load_others() -> None:
            while not is_recorded.is_set():
                with loaded(plain, gpu_placement(tmp_path), [8]) as ((lane, _),):
                    np.testing.assert_allclose(output(lane, batch), expected, rtol=1e-3, atol=1e-3)

        def serve() -> None:
            while not is_recorded.is_set():
                np.testing.assert_allclose(output(serving, batch), expected, rtol=1e-3, atol=1e-3)
                is_serving.set()  # from now on, in this thread, nothing is initialised any more

        seconds([record, load_others, serve])


def test_instances_in_half_precision_do_not_disturb_each_other(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Convolutions", IMAGE, (16,), precision="fp16")
    with loaded(spec, gpu_placement(tmp_path, instances=3), [8]) as instances:
        lanes = [lane for pair in instances for lane in pair]
        batches = [images(8, seed=seed) for seed in range(len(lanes))]
        expected = [output(lanes[0], batch) for batch in batches]

        def check(index: int) -> None:
            for _ in range(100):
                np.testing.assert_allclose(output(lanes[index], batches[index]), expected[index], rtol=1e-3, atol=1e-3)

        seconds([lambda index=index: check(index) for index in range(len(lanes))])


@needs_compiler
@pytest.mark.filterwarnings("default")  # compilers give advice
def test_compiled_and_recorded_models_answer_as_the_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that outlive the test
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    eager = torch_version(tmp_path, "Convolutions", IMAGE, (16,))
    compiled = torch_version(tmp_path, "Convolutions", IMAGE, (16,), graphs=True, compile="true", channels_last="true")

    with (
        loaded(eager, gpu_placement(tmp_path), [4]) as ((model, _),),
        loaded(compiled, gpu_placement(tmp_path), [4]) as (lanes,),
    ):
        for lane in lanes:
            np.testing.assert_allclose(output(lane, images(4)), output(model, images(4)), rtol=1e-2, atol=1e-3)


def test_every_instance_has_a_stream_of_its_own_as_long_as_it_lives() -> None:
    from backends.torch_engine.cuda_device import CudaDevice

    gc.collect()
    device, streams = CudaDevice(), []

    def take_all() -> None:
        while True:
            streams.append(device.stream())

    with pytest.raises(LoadError, match="expected fewer instances"):
        take_all()

    handles = {stream.handle for stream in streams}
    assert 16 <= len(handles) == len(streams)
    assert device.copy_stream().handle not in handles
    freed = streams.pop().handle
    assert device.stream().handle == freed


def test_inputs_in_a_page_locked_slot_are_copied_from_there(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Convolutions", IMAGE, (16,))
    batch = images(4)["x"]
    with loaded(spec, gpu_placement(tmp_path), [4]) as ((lane, _),), mmap.mmap(-1, 4 * MIB) as slot:
        inputs = np.frombuffer(slot, np.float32, batch.size).reshape(batch.shape)
        inputs[:] = batch
        expected = output(lane, {"x": batch})

        lane.pin_memory(inputs.ctypes.data, 4 * MIB)  # type: ignore[attr-defined]
        found = output(lane, {"x": inputs})
        lane.unpin_memory(inputs.ctypes.data)  # type: ignore[attr-defined]
        del inputs

    np.testing.assert_array_equal(found, expected)


def test_a_slot_may_grow_while_it_is_page_locked(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Convolutions", IMAGE, (16,))
    fd = Region.create_fd()
    ours, theirs = Region(os.dup(fd)), Region(fd)
    with loaded(spec, gpu_placement(tmp_path), [32]) as ((lane, _),):
        answers = []
        for rows in (1, 8, 32):
            batch = images(rows)["x"]
            theirs.reserve(batch.nbytes)
            theirs.view(batch.shape, batch.dtype, 0)[:] = batch
            lane.unpin_memory(ours.address)  # type: ignore[attr-defined]
            ours.follow(theirs.capacity_bytes)
            lane.pin_memory(ours.address, ours.capacity_bytes)  # type: ignore[attr-defined]
            inputs = ours.view(batch.shape, batch.dtype, 0)
            inputs.flags.writeable = False
            answers.append((output(lane, {"x": inputs}), output(lane, {"x": batch})))
        lane.unpin_memory(ours.address)  # type: ignore[attr-defined]
    for region in (ours, theirs):
        region.close()

    for found, expected in answers:
        np.testing.assert_array_equal(found, expected)


def test_shared_memory_can_be_page_locked_once_until_it_is_unlocked() -> None:
    from backends.torch_engine.cuda_device import CudaDevice

    device = CudaDevice()
    with mmap.mmap(-1, MIB) as slot:
        memory = np.frombuffer(slot, np.uint8)
        address = memory.ctypes.data
        answers = [device.pin(address, MIB), device.pin(address, MIB)]
        device.unpin(address)
        answers.append(device.pin(address, MIB))
        device.unpin(address)
        del memory

    assert answers == [True, False, True]


@pytest.mark.usefixtures("little_memory")
async def test_a_batch_above_memory_is_answered_in_halves_and_later_ones_as_ever(tmp_path: Path) -> None:
    spec = torch_version(tmp_path, "Greedy", (2,), (2,))
    (lanes,) = create_executors(spec, gpu_placement(tmp_path))
    instance = ThreadInstance(
        name="m_0", device="gpu0", spec=spec, lanes=lanes, clock=MonotonicClock(), allowed_rows=SIZES
    )
    batch = [{"x": np.full((1, 2), row, np.float32)} for row in range(32)]

    await instance.start([1])
    try:
        large = await instance.execute(batch)
        small = await instance.execute(batch[:4])
        seen = instance.statistics()
    finally:
        await instance.aclose()

    assert [answer["y"][0, 0] for answer in large.results] == list(range(32))  # type: ignore[index]
    assert [answer["y"][0, 0] for answer in small.results] == [0, 1, 2, 3]  # type: ignore[index]
    assert seen.memory_failures > 0
    assert 4 <= seen.cap_rows < 32


async def test_a_broken_device_context_ends_the_worker_and_a_new_one_serves(tmp_path: Path) -> None:
    group = InstanceGroup(name="m", kind=DeviceKind.GPU, count=1)
    spec = torch_version(tmp_path, "Lookup", (2,), (2,))
    spec = replace(spec, instance_groups=(group,))
    clock = MonotonicClock()
    machine = Machine(gpus={0: visible_gpu()}, defaults=gpu_placement(tmp_path))
    async with WorkerHouse(clock) as workers:
        pool = InstancePool(spec, clock=clock, machine=machine, workers=workers)
        await pool.start()
        (member,) = pool.instances
        first_pid = pool.statuses()[0].pid

        with pytest.raises(DeviceFaultError, match="device-side assert"):
            await member.execute([payload(POISON)])
        began_ns = clock.now_ns()
        async with asyncio.timeout(60):
            await pool.wait_until(lambda all_: all_[0].pid not in (0, first_pid) and all_[0].state is MemberState.READY)
        result = await member.execute([payload(7)])
        logger.info("back in service after %.1f s", (clock.now_ns() - began_ns) / 1e9)
        await pool.aclose()

    assert result.results[0]["y"].tolist() == [[7, 7]]  # type: ignore[index]


@pytest.mark.parametrize("instances", [2, 4])
def test_the_weights_are_in_memory_once_for_any_number_of_instances(tmp_path: Path, instances: int) -> None:
    import torch

    def allocated(count: int) -> int:
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        with loaded(spec, gpu_placement(tmp_path, count), [1]):
            return torch.cuda.memory_allocated() - before

    spec = torch_version(tmp_path, "Wide", (4096,), (4096,))
    one, several = allocated(1), allocated(instances)

    logger.info("%.0f MiB for 1 instance, %.0f MiB for %d", one / MIB, several / MIB, instances)
    assert one >= WEIGHTS_BYTES
    assert several - one < WEIGHTS_BYTES / 2  # what each has of its own: library workspaces, staging
