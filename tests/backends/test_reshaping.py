"""Executors of models whose configuration reshapes tensors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement, PreciseExecutor, StagingExecutor
from backends.registry import create_executors
from backends.reshaping import ReshapingExecutor, inner_spec
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from models.inference import Array, Tensors
from models.reshaping import can_reshape, reshaped
from models.spec import Host, ModelSpec
from tests.models.builders import identity_model, spec_of, write_model

ONE_PICTURE = """\
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 4, 5 ] reshape { shape: [ 1, 3, 4, 5 ] } }
output { name: "y" data_type: TYPE_FP32 dims: [ 60 ] reshape { shape: [ 1, 3, 4, 5 ] } }
"""
SCALARS = """\
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
output { name: "y" data_type: TYPE_FP32 dims: [ 1, 1 ] reshape { } }
"""


def onnx_spec(root: Path, config: str, *dims: int | str) -> ModelSpec:
    return spec_of(write_model(root, config, model=identity_model(dims)))


async def answer_of(spec: ModelSpec, x: Array) -> Array:
    """What an instance makes of one request."""
    clock = MonotonicClock()
    machine = Machine(gpus={}, defaults=Placement(cores=1, cache_dir=spec.file.parent))
    async with WorkerHouse(clock) as workers:
        instances = InstancePool(spec, clock=clock, machine=machine, workers=workers)
        await instances.start()
        run = await instances.instances[0].execute([{"x": x}])
        await instances.aclose()
    (answer,) = run.results
    assert not isinstance(answer, Exception)
    return answer["y"]


@pytest.mark.parametrize("host", [Host.THREAD, Host.PROCESS])
async def test_callers_see_dims_and_the_model_the_reshaped_ones(tmp_path: Path, host: Host) -> None:
    spec = onnx_spec(tmp_path, ONE_PICTURE, 1, 3, 4, 5)
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)

    y = await answer_of(replace(spec, execution=replace(spec.execution, host=host)), x)

    assert y.shape == (60,)
    assert np.array_equal(y, x.reshape(60))


async def test_rows_of_a_batch_may_be_scalars_to_the_model(tmp_path: Path) -> None:
    spec = onnx_spec(tmp_path, SCALARS, "N")

    y = await answer_of(spec, np.array([[1], [2], [3]], np.float32))

    assert np.array_equal(y, np.array([[[1]], [[2]], [[3]]], np.float32))


class Recorder:
    """An executor with memory of its own that can compute in single precision; keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[Array] = []
        self.memory = np.zeros(64, np.float32)

    def load(self) -> None: ...

    def warm_up(self, sizes: object) -> None: ...

    def close(self) -> None: ...

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        self.seen.append(inputs["x"])
        return {"y": inputs["x"]}

    run_fp32 = run

    def stage(self, name: str, shape: tuple[int, ...], dtype: object) -> Array:
        return self.memory[: int(np.prod(shape))].reshape(shape)


def test_nothing_is_copied(tmp_path: Path) -> None:
    recorder, spec = Recorder(), onnx_spec(tmp_path, SCALARS, "N")
    executor = ReshapingExecutor(recorder, spec)

    staged = executor.stage("x", (3, 1), np.dtype(np.float32))
    outputs = executor.run({"x": staged}, 3)

    assert recorder.seen[0].shape == (3,)
    assert outputs["y"].shape == (3, 1, 1)
    assert np.shares_memory(outputs["y"], recorder.memory)


def test_it_can_do_what_the_executor_inside_can(tmp_path: Path) -> None:
    spec = onnx_spec(tmp_path, SCALARS, "N")
    ((plain,),) = create_executors(inner_spec(replace(spec, instance_groups=spec.instance_groups[:1])), Placement())

    able, unable = ReshapingExecutor(Recorder(), spec), ReshapingExecutor(plain, spec)

    assert [isinstance(able, kind) for kind in (StagingExecutor, PreciseExecutor)] == [True, True]
    assert isinstance(unable, StagingExecutor) == isinstance(plain, StagingExecutor)
    assert isinstance(unable, PreciseExecutor) == isinstance(plain, PreciseExecutor)


def test_single_precision_is_reshaped_too(tmp_path: Path) -> None:
    executor = ReshapingExecutor(Recorder(), onnx_spec(tmp_path, SCALARS, "N"))

    assert executor.run_fp32({"x": np.ones((2, 1), np.float32)}, 2)["y"].shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("dims", "shape", "can"),
    [
        ([3, 224, 224], [1, 3, 224, 224], True),
        ([1], [], True),
        ([6], [2, 3], True),
        ([6], [2, 2], False),
        ([-1, 4], [-1, 2, 2], True),
        ([4, -1], [-1, 4], False),
        ([-1], [-1, -1], False),
        ([2, -1, 3, -1], [2, 1, -1, 3, -1, 1], True),
    ],
)
def test_shapes_go_together_as_triton_says(dims: list[int], shape: list[int], can: bool) -> None:
    assert can_reshape(dims, shape) is can


@given(st.lists(st.one_of(st.just(-1), st.integers(1, 4)), max_size=5), st.data())
def test_a_row_keeps_its_elements_and_comes_back(dims: list[int], data: st.DataObject) -> None:
    shape = [size for size in dims if size != 1]
    row = tuple(data.draw(st.integers(0, 4)) if size < 0 else size for size in dims)

    inside = reshaped(row, dims, shape)

    assert can_reshape(dims, shape)
    assert np.prod(inside) == np.prod(row)
    assert reshaped(inside, shape, dims) == row


def test_a_reshape_that_the_model_does_not_take_is_told_when_read(tmp_path: Path) -> None:
    write_model(tmp_path, ONE_PICTURE, model=identity_model((1, 3, 4, 5)))
    onnx.save(identity_model((3, 4, 5)), tmp_path / "m" / "1" / "model.onnx")

    from models.model_directory import read_model

    problems = read_model(tmp_path / "m").problems

    assert [problem.fix for problem in problems] == ["reshape { shape: [ 3, 4, 5 ] }"] * 2  # type: ignore[attr-defined]
