"""Every executor that this machine has, here and in a worker process: the same model behind each."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Executor, Placement
from backends.registry import create_executors
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from batching.ports import Instance
from models.inference import Tensors
from models.spec import ExecutionSpec, Host, ModelSpec
from tests.backends.builders import POISON, save_lookup, started
from tests.backends.process.builders import remote_executors

_CODE = f"""
def execute(inputs):
    if (inputs["x"] == {POISON}).any():
        raise ValueError("poison")
    return {{"y": inputs["x"].copy()}}
"""

_TRITON_CODE = f"""
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        if any((x == {POISON}).any() for x in inputs):
            raise ValueError("poison")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in inputs]
"""

BACKENDS = ("fake", "onnxruntime", "python", "triton-python", pytest.param("pytorch", marks=pytest.mark.torch))


def crossed(*hosts: str) -> list[Any]:
    """Parameters (backend, host) for all backends in all these hosts."""
    found = []
    for host in hosts:
        for backend in BACKENDS:
            name, marks = (backend, []) if isinstance(backend, str) else (backend.values[0], list(backend.marks))
            if host != "here":
                marks.append(pytest.mark.slow)  # it starts a process
            found.append(pytest.param((name, host), id=f"{name}-{host}", marks=marks))
    return found


def identity(backend: str, directory: Path, spec: ModelSpec) -> ModelSpec:
    """The version with the identity on 0..999, which fails on POISON, behind it."""
    version = directory / "m" / "1"
    version.mkdir(parents=True)
    match backend:
        case "onnxruntime":
            return replace(spec, backend=backend, file=save_lookup(version / "model.onnx"))
        case "python":
            (version / "model.py").write_text(_CODE)
            return replace(spec, backend=backend, file=version / "model.py")
        case "triton-python":
            (version / "model.py").write_text(_TRITON_CODE)
            return replace(spec, backend="python", file=version / "model.py", wants_requests=True)
        case "pytorch":
            from tests.torch.builders import save_identity

            return replace(spec, backend=backend, parameters=save_identity(version), file=version / "model.pt")
        case _:
            return replace(spec, parameters={"fail_on_value": str(POISON)})


@asynccontextmanager
async def executor_in(host: str, spec: ModelSpec) -> AsyncIterator[Executor]:
    """One that is not loaded."""
    if host == "here":
        yield create_executors(spec, Placement())[0][0]
    else:
        async with remote_executors(spec) as executors:
            yield executors[0]


class Running(NamedTuple):
    """An instance, and how it is closed."""

    instance: Instance[Tensors, Tensors]
    aclose: Callable[[], Awaitable[None]]


@asynccontextmanager
async def instance_in(host: str, spec: ModelSpec) -> AsyncIterator[Running]:
    """One that is started: a thread with an executor here or in a worker, or the only member of a pool."""
    if host != "pool":
        async with executor_in(host, spec) as executor, started(spec, executor) as instance:
            yield Running(instance, instance.aclose)
        return
    clock = MonotonicClock()
    machine = Machine(gpus={}, defaults=Placement())
    async with WorkerHouse(clock) as workers:
        apart = replace(spec, execution=ExecutionSpec(host=Host.PROCESS))
        pool = InstancePool(apart, clock=clock, machine=machine, workers=workers)
        await pool.start()
        try:
            (member,) = pool.instances
            yield Running(member, pool.aclose)
        finally:
            await pool.aclose()
