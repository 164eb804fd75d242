"""Made-up machines, plans and ONNX files for tests of the TensorRT engine."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from backends.fake import FakeExecutor
from backends.ports import Executor, Placement
from backends.tensorrt_engine.executor import Tools
from backends.tensorrt_engine.fake_api import FakeContext, FakeTensorRt
from backends.tensorrt_engine.fake_models import FakeModel
from backends.tensorrt_engine.jobs import BuildJob, build_job, find_sources
from backends.tensorrt_engine.keys import Machine
from backends.tensorrt_engine.messages import with_logger
from backends.torch_engine.fake_device import FakeDevice
from batching.clock import MonotonicClock
from models.inference import Tensors
from models.spec import ExecutionSpec, ModelSpec
from models.tensors import DataType
from tests.backends.builders import model, tensor

MACHINE = Machine(tensorrt_version="11.4.0", gpu_name="Fake 1000", compute_capability="9.0", driver_major="575")


def profile(least: int, best: int, most: int) -> Mapping[str, Sequence[Sequence[int]]]:
    """Of an engine with the input x of two elements a row."""
    return {"x": [(least, 2), (best, 2), (most, 2)]}


def plan(*, least: int = 1, most: int = 8, version: str = "11.4.0", compute: str = "9.0") -> FakeModel:
    """A plan with one profile."""
    return FakeModel(profiles=(profile(least, most, most),), version=version, compute=compute)


def saved(directory: Path, *, plan: FakeModel | None = None, onnx: FakeModel | None = None) -> Path:
    """The model file of a version directory with these contents."""
    for content, name in ((plan, "model.plan"), (onnx, "model.onnx")):
        if content is not None:
            (directory / name).write_bytes(content.to_bytes())
    return directory / ("model.onnx" if plan is None else "model.plan")


def version(
    file: Path, *, max_batch_rows: int = 8, allowed_rows: tuple[int, ...] = (), graphs: bool = False, **parameters: str
) -> ModelSpec:
    """A version of one input and one output of two fp32 numbers a row."""
    spec = model(
        inputs=[tensor("x", DataType.FP32)],
        outputs=[tensor("y", DataType.FP32)],
        max_batch_rows=max_batch_rows,
        allowed_rows=allowed_rows,
        backend="tensorrt",
        file=file,
        **parameters,
    )
    return replace(spec, execution=ExecutionSpec(cuda_graphs=graphs))


def placement(directory: Path, instances: int = 1) -> Placement:
    return Placement(device="gpu0", instances=instances, cache_dir=directory / "cache")


class OtherBackends:
    """A factory of fakes that notes which backends were asked for; those in `broken` cannot load."""

    def __init__(self, *broken: str) -> None:
        self._broken = broken
        self.asked: list[ModelSpec] = []

    def __call__(self, spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
        from backends.errors import LoadError

        self.asked.append(spec)
        if spec.backend in self._broken:
            raise LoadError(f"{spec.backend} finds no GPU")
        return [[FakeExecutor(spec)] for _ in range(placement.instances)]


def tools(api: FakeTensorRt, *, device: FakeDevice | None = None, others: OtherBackends | None = None) -> Tools:
    device = device or FakeDevice()
    api.execute = identity(device)
    return Tools(
        library=with_logger(api),
        device=device,
        machine=MACHINE,
        clock=MonotonicClock(),
        factory=others or OtherBackends(),
    )


def identity(device: FakeDevice):  # type: ignore[no-untyped-def]
    """Executions that copy input k to output k, where the context says they are, when their turn comes."""

    def execute(context: FakeContext, _stream_handle: int) -> None:
        pairs = zip(context.model.outputs, context.model.inputs, strict=True)
        moves = [
            (context.addresses[y.name], context.addresses[x.name], 4 * int(np.prod(context.shapes[x.name])))
            for y, x in pairs
        ]
        device.launch(lambda: [ctypes.memmove(*move) for move in moves] and None)

    return execute


def job(spec: ModelSpec, directory: Path, machine: Machine = MACHINE) -> BuildJob:
    onnx = find_sources(spec).onnx
    assert onnx is not None
    return build_job(spec, onnx, placement(directory).cache_dir, machine, "it was asked for")


def rows(*numbers: float) -> Tensors:
    """A batch: each number makes one row."""
    return {"x": np.array([[number, number] for number in numbers], np.float32)}


def loaded(executors: Sequence[Sequence[Executor]]) -> Sequence[Sequence[Executor]]:
    for lanes in executors:
        for lane in lanes:
            lane.load()
    return executors
