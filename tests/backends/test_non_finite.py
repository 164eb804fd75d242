"""Answers with NaN or infinite numbers: a network in half precision that overflows for some inputs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from backends.errors import LoadError, NonFiniteError
from backends.non_finite import non_finite_rows
from backends.ports import Placement
from backends.registry import create_executors
from backends.thread_host import ThreadInstance
from batching.clock import MonotonicClock
from batching.ports import BatchResult, InstanceStatistics
from models.inference import Array, Tensors
from models.spec import ExecutionSpec, ModelSpec, NonFinite
from models.tensors import DataType
from tests.backends.builders import ScriptedExecutor, model, started, tensor
from tests.backends.overflow import LARGE, save_doubling
from tests.backends.process.builders import remote_executors

INFINITY = float("inf")


def doubling(
    directory: Path, wish: NonFinite, *, has_fp32: bool = True, allowed_rows: tuple[int, ...] = ()
) -> ModelSpec:
    file = save_doubling(directory / "m" / "1", has_fp32=has_fp32)
    spec = floats(wish, file=file, backend="onnxruntime")
    return replace(spec, batching=replace(spec.batching, allowed_rows=allowed_rows))


def floats(wish: NonFinite, *, file: Path = Path("model.onnx"), backend: str = "fake") -> ModelSpec:
    spec = model(inputs=[tensor("x", DataType.FP32)], outputs=[tensor("y", DataType.FP32)], backend=backend, file=file)
    return replace(spec, execution=ExecutionSpec(non_finite=wish))


def row(*values: float) -> Tensors:
    return {"x": np.array([[value, value] for value in values], np.float32)}


BATCH = [row(1), row(2, LARGE), row(3)]


async def run_batch(spec: ModelSpec) -> tuple[BatchResult[Tensors], InstanceStatistics]:
    executor = create_executors(spec, Placement())[0][0]
    async with started(spec, executor) as instance:
        result = await instance.execute(BATCH)
        return result, instance.statistics()


def values(result: BatchResult[Tensors]) -> list[object]:
    return [answer if isinstance(answer, Exception) else answer["y"][:, 0].tolist() for answer in result.results]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bad", [INFINITY, -INFINITY, float("nan")])
def test_rows_with_numbers_that_are_none_are_found(dtype: type, bad: float) -> None:
    scores = np.zeros((4, 3), dtype)
    scores[1, 2] = scores[3, 0] = bad

    assert non_finite_rows({"scores": scores}, 4).tolist() == [1, 3]


def test_every_output_is_looked_at_and_padding_is_not() -> None:
    first, second = np.zeros((4, 2), np.float32), np.zeros((4, 2, 2), np.float32)
    first[2], second[0, 1, 1], first[3] = np.nan, np.nan, np.nan

    assert non_finite_rows({"first": first, "second": second}, 3).tolist() == [0, 2]


@pytest.mark.parametrize("array", [np.zeros((2, 3), np.int64), np.array([[b"nan"]], np.object_), np.zeros((2, 0))])
def test_outputs_of_other_types_have_no_such_rows(array: Array) -> None:
    assert non_finite_rows({"y": array}, array.shape[0]).size == 0


def test_without_batch_dimension_the_answer_is_one_row() -> None:
    scalar = {"y": np.array(np.inf, np.float32)}

    assert non_finite_rows(scalar, 1, has_batch_dimension=False).tolist() == [0]


async def test_counting_answers_what_was_computed(tmp_path: Path) -> None:
    result, statistics = await run_batch(doubling(tmp_path, NonFinite.COUNT, has_fp32=False))

    assert values(result) == [[2.0], [4.0, INFINITY], [6.0]]
    assert (statistics.non_finite_rows, statistics.failed_executions) == (1, 0)


async def test_failing_fails_the_guilty_request_alone(tmp_path: Path) -> None:
    result, statistics = await run_batch(doubling(tmp_path, NonFinite.FAIL, has_fp32=False))

    first, guilty, last = values(result)
    assert (first, last) == ([2.0], [6.0])
    assert isinstance(guilty, NonFiniteError)
    assert str(guilty) == "1 of 2 rows came out as NaN or infinite numbers"
    assert (statistics.non_finite_rows, statistics.executions, statistics.failed_executions) == (1, 1, 1)


@pytest.mark.parametrize("allowed_rows", [(), (4, 8, 32)])
async def test_retrying_answers_the_guilty_row_in_single_precision(
    tmp_path: Path, allowed_rows: tuple[int, ...]
) -> None:
    result, statistics = await run_batch(doubling(tmp_path, NonFinite.RETRY_FP32, allowed_rows=allowed_rows))

    assert values(result) == [[2.0], [4.0, 2 * LARGE], [6.0]]
    assert (statistics.non_finite_rows, statistics.failed_executions) == (1, 0)


@pytest.mark.slow
async def test_a_worker_process_retries_too(tmp_path: Path) -> None:
    spec = doubling(tmp_path, NonFinite.RETRY_FP32)

    async with remote_executors(spec) as (executor, *_), started(spec, executor) as instance:
        result = await instance.execute(BATCH)

    assert values(result) == [[2.0], [4.0, 2 * LARGE], [6.0]]


class Halves:
    """Doubles; above 65 504 it answers infinity, until it is asked for single precision. Notes what it retried."""

    def __init__(self) -> None:
        self.retried: list[list[float]] = []

    def __call__(self, inputs: Tensors, rows: int) -> Tensors:
        doubled = inputs["x"].astype(np.float32) * 2
        return {"y": np.where(doubled > 65_504, np.float32(np.inf), doubled)}

    def run_fp32(self, inputs: Tensors, rows: int) -> Tensors:
        self.retried.append(inputs["x"][:, 0].tolist())
        return {"y": inputs["x"].astype(np.float32) * 2}


class PreciseScript(ScriptedExecutor):
    def __init__(self, spec: ModelSpec, halves: Halves) -> None:
        super().__init__(spec, run=halves)
        self.run_fp32 = halves.run_fp32


async def run_all(spec: ModelSpec, halves: Halves, batch: Sequence[Tensors]) -> BatchResult[Tensors]:
    instance = ThreadInstance(
        name="m_0",
        device="cpu",
        spec=spec,
        lanes=[PreciseScript(spec, halves)],
        clock=MonotonicClock(),
        allowed_rows=(4, 8),
    )
    try:
        await instance.start()
        return await instance.execute(batch)
    finally:
        await instance.aclose()


async def test_only_guilty_rows_are_computed_again_in_a_size_that_is_allowed() -> None:
    halves = Halves()

    await run_all(floats(NonFinite.RETRY_FP32), halves, [row(LARGE), row(1, 2, LARGE + 1), row(3)])

    assert halves.retried == [[LARGE, LARGE + 1, LARGE + 1, LARGE + 1]]


async def test_guilty_requests_are_each_told_their_own_rows() -> None:
    result = await run_all(floats(NonFinite.FAIL), Halves(), [row(LARGE), row(1, LARGE)])

    assert [str(error)[:11] for error in values(result)] == ["1 of 1 rows", "1 of 2 rows"]


async def test_nobody_looks_where_the_version_says_so(caplog: pytest.LogCaptureFixture) -> None:
    spec = floats(NonFinite.OFF)
    async with started(spec, ScriptedExecutor(spec, run=Halves())) as instance:
        result = await instance.execute([row(LARGE)])

    assert values(result) == [[INFINITY]]
    assert (instance.statistics().non_finite_rows, caplog.text) == (0, "")


async def test_the_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    spec = floats(NonFinite.COUNT)

    async with started(spec, ScriptedExecutor(spec, run=Halves())) as instance:
        await asyncio.gather(*(instance.execute([row(LARGE)]) for _ in range(3)))

    warnings = [record.getMessage() for record in caplog.records if "infinite" in record.getMessage()]
    assert warnings == [
        "model 'm' version 1: 1 rows of a batch came out as NaN or infinite numbers (non_finite = count)"
    ]


def test_a_network_without_its_like_in_single_precision_is_refused(tmp_path: Path) -> None:
    spec = doubling(tmp_path, NonFinite.RETRY_FP32, has_fp32=False)

    with pytest.raises(LoadError, match=r"found no file model\.fp32\.onnx .*--keep-fp32"):
        create_executors(spec, Placement())


@pytest.mark.parametrize("backend", ["fake", "python", "tensorrt"])
def test_a_backend_that_cannot_retry_is_refused(backend: str) -> None:
    with pytest.raises(LoadError, match=f"backend '{backend}' cannot compute in fp32 again; onnxruntime, pytorch can"):
        create_executors(floats(NonFinite.RETRY_FP32, backend=backend), Placement())
