"""Small model versions, ONNX files and executors that hide what a test does not care about."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from backends.fake import FakeExecutor
from backends.ports import Executor
from backends.thread_host import ThreadInstance
from batching.clock import MonotonicClock
from models.inference import Array, Tensors
from models.spec import BatchingSpec, DeviceKind, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

POISON = -9_999
"""The value on which the identity models fail."""


def tensor(name: str, data_type: DataType = DataType.INT64, dims: tuple[int, ...] = (2,)) -> TensorSpec:
    return TensorSpec(name=name, data_type=data_type, dims=dims)


def model(
    *,
    inputs: Sequence[TensorSpec] = (tensor("x"),),
    outputs: Sequence[TensorSpec] = (tensor("y"),),
    max_batch_rows: int = 32,
    allowed_rows: tuple[int, ...] = (),
    groups: Sequence[InstanceGroup] = (),
    backend: str = "fake",
    file: Path = Path("model.onnx"),
    **parameters: str,
) -> ModelSpec:
    return ModelSpec(
        name="m",
        version=1,
        platform="",
        backend=backend,
        max_batch_rows=max_batch_rows,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        instance_groups=tuple(groups) or (InstanceGroup(name="m", kind=DeviceKind.CPU, count=1),),
        batching=BatchingSpec(allowed_rows=allowed_rows),
        file=file,
        parameters=parameters,
    )


def payload(*rows: int) -> Tensors:
    """A request for `model()`: each number makes one row."""
    return {"x": np.array([[row, row] for row in rows], np.int64)}


def save_onnx(
    file: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    x: tuple[int, Sequence[int | str]] = (TensorProto.INT64, ("N", 2)),
    y: tuple[int, Sequence[int | str]] = (TensorProto.INT64, ("N", 2)),
    constants: Sequence[tuple[str, Array]] = (),
) -> Path:
    """Write a model from input ``x`` to output ``y``."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", *y)],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in constants],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def save_lookup(file: Path) -> Path:
    """The identity on 0..999, by looking the numbers up in a table; other numbers make it fail."""
    table = np.arange(1_000, dtype=np.int64)
    return save_onnx(file, [helper.make_node("Gather", ["table", "x"], ["y"])], constants=[("table", table)])


class Gate:
    """Holds a thread inside an executor until it is opened."""

    def __init__(self) -> None:
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self, _duration_ns: int = 0) -> None:
        self._entered.release()
        assert self._open.wait(timeout=10), "nobody opened the gate"

    async def wait_until_entered(self) -> None:
        assert await asyncio.to_thread(self._entered.acquire, timeout=10), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


def gated(spec: ModelSpec, gate: Gate) -> FakeExecutor:
    """An identity that stops at the gate in each batch."""
    return FakeExecutor(spec, service_ns=lambda rows: 1, sleep=gate.pass_through)


class ScriptedExecutor:
    """The identity, of which a test replaces the steps."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        load: Callable[[], None] = lambda: None,
        warm_up: Callable[[Sequence[int]], None] = lambda sizes: None,
        run: Callable[[Tensors, int], Tensors] | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._load, self._warm_up, self._close = load, warm_up, close
        self._run = run or FakeExecutor(spec).run

    def load(self) -> None:
        self._load()

    def warm_up(self, sizes: Sequence[int]) -> None:
        self._warm_up(sizes)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        return self._run(inputs, rows)

    def close(self) -> None:
        self._close()


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_arguments: object) -> Any:
        raise error

    return fail


def thread_instance(spec: ModelSpec, executor: Executor, *, name: str = "m_0") -> ThreadInstance:
    return ThreadInstance(
        name=name,
        device="cpu",
        spec=spec,
        lanes=[executor],
        clock=MonotonicClock(),
        allowed_rows=spec.batching.allowed_rows,
    )


@asynccontextmanager
async def started(spec: ModelSpec, executor: Executor) -> AsyncIterator[ThreadInstance]:
    instance = thread_instance(spec, executor)
    try:
        await instance.start()
        yield instance
    finally:
        await instance.aclose()


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}
