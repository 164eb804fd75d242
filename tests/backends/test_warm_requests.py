"""The requests of ``model_warmup`` run on every instance before it serves, and again on each that replaces it."""

import os
import signal
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from backends.errors import LoadError, WorkerLostError
from backends.fake import FakeExecutor
from backends.warm_requests import tensors
from loadtest.soak import identity, serving
from models.inference import Tensors
from models.spec import DeviceKind, InstanceGroup, ModelSpec, WarmupData, WarmupInput, WarmupSample
from models.tensors import DataType
from tests.backends.builders import ScriptedExecutor, failing, model, started, thread_instance
from tests.backends.process.builders import until

ZERO, RANDOM, FILE = WarmupData.ZERO, WarmupData.RANDOM, WarmupData.FILE


def sample(
    data: WarmupData = ZERO,
    data_type: DataType = DataType.INT64,
    *,
    dims: tuple[int, ...] = (2,),
    rows: int = 1,
    count: int = 1,
    file: Path | None = None,
) -> WarmupSample:
    """A request for `model()`."""
    given = WarmupInput(data_type=data_type, dims=dims, data=data, file=file)
    return WarmupSample(name="first", rows=rows, count=count, inputs={"x": given})


def with_warmup(*samples: WarmupSample, **more: int) -> ModelSpec:
    return replace(model(**more), warmup=samples)  # type: ignore[arg-type]


NUMPY = {kind: np.dtype(kind.numpy) for kind in DataType}


@pytest.mark.parametrize("data", [ZERO, RANDOM])
@pytest.mark.parametrize("data_type", DataType)
def test_made_up_rows_have_the_type_and_shape_of_the_input(data_type: DataType, data: WarmupData) -> None:
    made = tensors(sample(data, data_type, dims=(3, 4), rows=2))["x"]

    assert (made.shape, made.dtype) == ((2, 3, 4), NUMPY[data_type])
    assert (made[0] == made[1]).all()
    assert (len(set(made.ravel().tolist())) > 1) is (data is RANDOM)


def test_random_rows_are_numbers_that_models_take() -> None:
    floats = tensors(sample(RANDOM, DataType.BF16, dims=(100,)))["x"]
    whole = tensors(sample(RANDOM, DataType.INT8, dims=(1000,)))["x"]
    words = tensors(sample(RANDOM, DataType.BYTES, dims=(5,)))["x"].ravel().tolist()

    assert floats.dtype == ml_dtypes.bfloat16
    assert 0 <= floats.astype(float).min() < floats.astype(float).max() <= 1
    assert (whole.min(), whole.max()) == (0, 127)
    assert all(type(word) is bytes and len(word) == 8 for word in words)


def test_a_request_without_batch_dimension_has_the_dims_alone() -> None:
    assert tensors(sample(rows=0, dims=(3, 4)))["x"].shape == (3, 4)


def test_a_file_holds_one_row_which_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(np.array([3, 4], np.int64).tobytes())
    (tmp_path / "words").write_bytes(struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0))

    numbers = tensors(sample(FILE, file=tmp_path / "numbers", rows=2))["x"]
    words = tensors(sample(FILE, DataType.BYTES, file=tmp_path / "words"))["x"]

    assert numbers.tolist() == [[3, 4], [3, 4]]
    assert words.tolist() == [[b"ab", b""]]


async def test_every_request_runs_as_often_as_it_says_after_the_usual_warm_up() -> None:
    steps: list[object] = []
    spec = with_warmup(sample(rows=2, count=2), sample(rows=1), allowed_rows=(1, 4))  # type: ignore[arg-type]

    def run(inputs: Tensors, rows: int) -> Tensors:
        steps.append((rows, inputs["x"].shape))
        return FakeExecutor(spec).run(inputs, rows)

    executor = ScriptedExecutor(spec, warm_up=lambda sizes: steps.append("sizes"), run=run)

    async with started(spec, executor) as instance:
        statistics = instance.statistics()

    assert steps == ["sizes", (4, (4, 2)), (4, (4, 2)), (1, (1, 2))]  # padded as any batch is
    assert statistics.executions == 0  # nobody's requests


@pytest.mark.parametrize("max_batch_rows", [0, 8])
async def test_a_request_that_fails_fails_the_load_with_its_name(max_batch_rows: int) -> None:
    spec = with_warmup(sample(rows=min(2, max_batch_rows)), max_batch_rows=max_batch_rows)
    instance = thread_instance(spec, ScriptedExecutor(spec, run=failing(ValueError("no such index"))))

    with pytest.raises(LoadError, match=r"model 'm' version 1: the request 'first' of model_warmup failed: .*no such"):
        await instance.start()

    await instance.aclose()


async def test_a_file_that_is_gone_fails_the_load_without_a_path_of_the_machine(tmp_path: Path) -> None:
    spec = with_warmup(sample(FILE, file=tmp_path / "gone"))
    instance = thread_instance(spec, FakeExecutor(spec))

    with pytest.raises(LoadError, match=r"'first' of model_warmup cannot be read: No such file or directory$"):
        await instance.start()

    await instance.aclose()


async def test_a_lost_worker_is_no_fault_of_the_request() -> None:
    spec = with_warmup(sample())
    instance = thread_instance(spec, ScriptedExecutor(spec, run=failing(WorkerLostError("killed"))))

    with pytest.raises(WorkerLostError, match=r"^killed$"):
        await instance.start()

    await instance.aclose()


NOTING = """
import pathlib

class Model:
    def execute(self, inputs):
        with pathlib.Path(__file__).with_name("runs.txt").open("a") as runs:
            runs.write(f"{inputs['x'].tolist()}\\n")
        return {"y": inputs["x"].copy()}
"""


def noting(directory: Path, samples: Sequence[WarmupSample], *, instances: int) -> ModelSpec:
    """A Python model that notes what it runs."""
    (directory / "model.py").write_text(NOTING)
    group = InstanceGroup(name="i", kind=DeviceKind.CPU, count=instances)
    base = replace(identity(instances), name="noting", backend="python", file=directory / "model.py", parameters={})
    return replace(base, instance_groups=(group,), warmup=tuple(samples))


async def test_each_instance_in_a_worker_runs_them_before_it_serves_and_after_its_worker_was_replaced(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs.txt"

    async with serving(noting(tmp_path, [sample(rows=2)], instances=2)) as (_, pool):
        at_start = runs.read_text()
        (victim, _other) = pool.statuses()
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: sum(status.restarts for status in pool.statuses()) > 0)
        await pool.wait_until(lambda statuses: all(status.state.value == "ready" for status in statuses))

    assert at_start == "[[0, 0], [0, 0]]\n" * 2
    assert len(runs.read_text().splitlines()) > 2
