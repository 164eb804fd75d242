"""An executor in a worker process does what it would do here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import pytest_asyncio

from backends.errors import ExecutionError, LoadError, WorkerLostError
from backends.gather import gather
from backends.ports import Placement, StagingExecutor
from backends.process.remote_executor import RemoteExecutor
from backends.process.worker_process import WorkerProcess
from models.inference import Array
from models.tensors import DataType
from tests.backends.builders import POISON, model, payload, tensor
from tests.backends.process.builders import busy, loaded, remote_executors, save_code, started_worker

in_thread: Callable[..., Any] = asyncio.to_thread


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def worker() -> AsyncIterator[WorkerProcess]:
    """One for all tests that leave it alive."""
    async with started_worker() as worker:
        yield worker


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def identity(worker: WorkerProcess) -> RemoteExecutor:
    return await loaded(worker, model(fail_on_value=str(POISON)))


@pytest.mark.parametrize("rows", [1, 2, 7])
async def test_every_row_is_answered_at_its_place(worker: WorkerProcess, rows: int):
    executor = await identity(worker)

    outputs = await in_thread(executor.run, payload(*range(rows)), rows)

    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], payload(*range(rows))["x"])


async def test_an_answer_stays_as_it_is_while_later_batches_run(worker: WorkerProcess):
    executor = await identity(worker)

    first = await in_thread(executor.run, payload(1, 2), 2)
    await in_thread(executor.run, payload(8, 9), 2)

    np.testing.assert_array_equal(first["y"], payload(1, 2)["x"])


async def test_rows_that_are_gathered_straight_into_the_slot_arrive(worker: WorkerProcess):
    executor = await identity(worker)
    assert isinstance(executor, StagingExecutor)

    inputs = gather([payload(1), payload(2, 3)], [1, 2], 4, executor.stage)
    outputs = await in_thread(executor.run, inputs, 4)

    np.testing.assert_array_equal(outputs["y"], payload(1, 2, 3, 3)["x"])


async def test_read_only_reversed_and_big_endian_inputs_are_accepted(worker: WorkerProcess):
    executor = await identity(worker)
    array = payload(1, 2, 3)["x"].astype(">i8")[::-1]
    array.flags.writeable = False

    outputs = await in_thread(executor.run, {"x": array}, 3)

    np.testing.assert_array_equal(outputs["y"], payload(3, 2, 1)["x"])


async def test_a_failure_is_an_execution_error_and_the_next_batch_succeeds(worker: WorkerProcess):
    executor = await identity(worker)

    with pytest.raises(ExecutionError, match="on which this fake model fails"):
        await in_thread(executor.run, payload(1, POISON), 2)

    outputs = await in_thread(executor.run, payload(5), 1)
    np.testing.assert_array_equal(outputs["y"], [[5, 5]])


async def test_elements_that_cannot_be_served_fail_their_batch_only(worker: WorkerProcess):
    executor = await identity(worker)

    with pytest.raises(ExecutionError, match="tensor 'x' has elements complex128"):
        await in_thread(executor.run, {"x": np.array([[1j, 1j]])}, 1)

    outputs = await in_thread(executor.run, payload(5), 1)
    np.testing.assert_array_equal(outputs["y"], [[5, 5]])


async def test_closing_twice_is_harmless_and_loading_again_works(worker: WorkerProcess):
    executor = await identity(worker)
    await in_thread(executor.close)
    await in_thread(executor.close)

    await in_thread(executor.load)

    outputs = await in_thread(executor.run, payload(5), 1)
    np.testing.assert_array_equal(outputs["y"], [[5, 5]])


async def test_warming_up_makes_room_for_the_largest_batch(worker: WorkerProcess):
    wide = model(inputs=[tensor("x", DataType.FP64, (1 << 16,))], outputs=[tensor("y", DataType.FP64, (1 << 16,))])
    executor = await loaded(worker, wide)
    await in_thread(executor.warm_up, [1, 4])

    rows = np.random.default_rng(1).standard_normal((4, 1 << 16))
    outputs = await in_thread(executor.run, {"x": rows}, 4)

    np.testing.assert_array_equal(outputs["y"], rows)


async def test_batches_that_grow_and_shrink_are_answered(worker: WorkerProcess):
    executor = await loaded(worker, model(inputs=[tensor("x", dims=(-1,))], outputs=[tensor("y", dims=(-1,))]))

    for width in (1, 10_000, 3, 100_000, 0):
        rows = np.arange(2 * width).reshape(2, width)
        outputs = await in_thread(executor.run, {"x": rows}, 2)
        np.testing.assert_array_equal(outputs["y"], rows)


@pytest.mark.parametrize("data_type", DataType)
async def test_every_element_type_and_an_empty_and_a_single_value_are_answered(
    worker: WorkerProcess, data_type: DataType
):
    def value(number: int) -> Array:
        kind = data_type.numpy
        return np.array(b"%d" % number if data_type is DataType.BYTES else number, kind)

    names = ["row", "none", "one"]
    declared = [tensor("row", data_type, (3,)), tensor("none", data_type, (0,)), tensor("one", data_type, ())]
    answered = [tensor(f"{one.name} again", one.data_type, one.dims) for one in declared]
    executor = await loaded(worker, model(inputs=declared, outputs=answered, max_batch_rows=0))
    inputs = {"row": np.stack([value(1), value(0), value(7)]), "none": np.empty(0, data_type.numpy), "one": value(5)}

    outputs = await in_thread(executor.run, inputs, 1)

    for name in names:
        found = outputs[f"{name} again"]
        assert (found.dtype, found.shape, found.tolist()) == (
            inputs[name].dtype,
            inputs[name].shape,
            inputs[name].tolist(),
        )


async def test_lanes_of_an_instance_compute_at_the_same_time(tmp_path: Path):
    code = """
import threading
both = threading.Barrier(2, timeout=20)

class Model:
    thread_safe = True

    def execute(self, inputs):
        both.wait()
        return {"y": inputs["x"]}
"""
    async with remote_executors(save_code(tmp_path, code, max_in_flight="2")) as (first, second):
        await asyncio.gather(in_thread(first.load), in_thread(second.load))
        answers = await asyncio.gather(in_thread(first.run, payload(1), 1), in_thread(second.run, payload(2), 1))

    assert [answer["y"].tolist() for answer in answers] == [[[1, 1]], [[2, 2]]]


async def test_outputs_in_odd_layouts_arrive(tmp_path: Path):
    code = """
class Model:
    def execute(self, inputs):
        return {"y": inputs["x"].astype(">i8")[:, ::-1]}
"""
    async with remote_executors(save_code(tmp_path, code)) as (executor,):
        await in_thread(executor.load)
        outputs = await in_thread(executor.run, {"x": np.array([[1, 2], [3, 4]])}, 2)

    assert outputs["y"].tolist() == [[2, 1], [4, 3]]


async def test_a_model_that_cannot_be_loaded_says_why_and_its_worker_lives_on(tmp_path: Path):
    async with started_worker() as worker:
        with pytest.raises(LoadError, match=r"model 'm' version 1: .*no such weights"):
            await loaded(worker, save_code(tmp_path, "raise OSError('no such weights')"))
        executor = await identity(worker)
        outputs = await in_thread(executor.run, payload(5), 1)

    np.testing.assert_array_equal(outputs["y"], [[5, 5]])


async def test_a_lane_that_was_disconnected_fails_its_batch_and_its_worker_serves_others(worker: WorkerProcess):
    staying = await identity(worker)
    leaving = await loaded(worker, model(service_base_us="1000000"))
    steps = len(worker.pulse().steps)

    running = asyncio.ensure_future(in_thread(leaving.run, payload(1), 1))
    await busy(worker)
    leaving.disconnect()
    leaving.disconnect()

    with pytest.raises(WorkerLostError, match="model 'm' was taken from it"):
        await running
    with pytest.raises(WorkerLostError):
        leaving.stage("x", (1, 2), np.dtype(np.int64))
    await in_thread(leaving.close)
    assert len(worker.pulse().steps) == steps - 1
    outputs = await in_thread(staying.run, payload(5), 1)
    np.testing.assert_array_equal(outputs["y"], [[5, 5]])


async def test_many_models_come_and_go_in_one_worker(worker: WorkerProcess):
    steps = len(worker.pulse().steps)

    for _ in range(50):
        executor = await identity(worker)
        await in_thread(executor.run, payload(1), 1)
        executor.disconnect()

    assert len(worker.pulse().steps) == steps


async def test_half_precision_survives_bit_by_bit(worker: WorkerProcess):
    spec = model(inputs=[tensor("x", DataType.BF16)], outputs=[tensor("y", DataType.BF16)])
    executor = await loaded(worker, spec)
    rows = np.array([[np.nan, -0.0], [np.inf, 1e-40]], ml_dtypes.bfloat16)

    outputs = await in_thread(executor.run, {"x": rows}, 2)

    assert outputs["y"].tobytes() == rows.tobytes()


async def test_a_backend_that_is_not_there_is_refused(worker: WorkerProcess):
    with pytest.raises(LoadError, match="unknown backend 'tarot', expected one of"):
        await worker.assign(model(backend="tarot"), Placement())
