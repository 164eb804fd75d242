"""The real service over fake executors, in the test's own event loop."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import uvicorn

from backends.fake import FakeExecutor
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Executor, Placement
from backends.workers import WorkerHouse
from batching.alarm import create_alarm
from batching.clock import MonotonicClock
from gateway.app import create_rest_app
from gateway.catalogue import Catalogue
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.decoding import Decoder
from gateway.engine import Engine
from gateway.hosted import Hosted
from gateway.lifecycle import Move
from gateway.policies import create_scheduler
from gateway.served import Served
from gateway.service import InferenceService
from models.errors import BrokenImageError
from models.inference import Array, ClassifyRequest, InferRequest
from models.preprocessing import Preprocessing
from models.spec import BatchingSpec, ModelSpec, Oversize
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor

POISON = -1.0
"""The value on which the fake models fail."""
PLAIN = Preprocessing(resize=2, crop=2, output="probabilities")
FP32 = DataType.FP32


def echo(name: str = "echo", *, version: int = 1, max_batch_rows: int = 4, dims: int = 2, **batching: Any) -> ModelSpec:
    """From `x` to the same `y`; splits what is too large, unless told otherwise."""
    spec = make_spec(name, [tensor("x", FP32, dims)], [tensor("y", FP32, dims)], max_batch_rows)
    rules = BatchingSpec(**{"oversize": Oversize.SPLIT, **batching})
    return replace(spec, version=version, batching=rules)


def mirror(name: str = "mirror") -> ModelSpec:
    """A classifier of 12 classes, labelled a, b and c, whose probabilities are the decoded row."""
    labels = ("a", "b", "c")
    inputs, outputs = [tensor("image", FP32, 3, 2, 2)], [tensor("scores", FP32, 3, 2, 2, labels=labels)]
    return replace(make_spec(name, inputs, outputs), preprocessing=PLAIN)


class ByteDecoder:
    """Decodes b"3" to a row that is most like class 3; everything that is no number is broken."""

    async def decode(self, data: bytes, how: Preprocessing) -> Array:
        if not data.isdigit():
            raise BrokenImageError(f"found {data!r}, expected a number")
        row = np.zeros(how.row_shape, np.float32)
        row.flat[int(data)] = 1
        return row


class Gate:
    """Stops every batch until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.entered = threading.Semaphore(0)

    def open(self) -> None:
        self._open.set()

    def wait(self, _ns: int) -> None:
        self.entered.release()
        self._open.wait()


@asynccontextmanager
async def serving(
    *specs: ModelSpec,
    gate: Gate | None = None,
    decoder: Decoder | None = None,
    timeout_s: float = 30,
    kind: type[InferenceService] = InferenceService,
) -> AsyncIterator[InferenceService]:
    """A running service of these versions, each with one instance."""
    clock, loop = MonotonicClock(), asyncio.get_running_loop()

    def executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
        sleep = gate.wait if gate else lambda _ns: None
        return [[FakeExecutor(spec, lambda _rows: 1, sleep, fail_on_value=POISON)] for _ in range(placement.instances)]

    catalogue = Catalogue()
    machine = Machine(gpus={}, defaults=Placement())
    async with WorkerHouse(clock) as workers, AsyncExitStack() as stack:
        every = []
        for spec in specs:
            pool = InstancePool(spec, clock=clock, machine=machine, workers=workers, factory=executors)
            await pool.start()
            stack.push_async_callback(pool.aclose)
            served = Served(
                spec,
                create_scheduler(spec),
                pool,
                decoder or ByteDecoder(),
                clock,
                lambda ring: create_alarm(loop, clock, ring),
                round(timeout_s * 1e9),
            )
            version = catalogue.record(spec.name).version(spec.version)
            version.move(Move.LOAD)
            version.put_in(Hosted(served, AsyncExitStack()), spec)
            every.append(served)
        stack.callback(gate.open if gate else lambda: None)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(served.run()) for served in every]
            for served in every:
                await served.running.wait()
            yield kind(catalogue)
            for task in tasks:
                task.cancel()


async def one_turn() -> None:
    """Let the event loop do what is due."""
    await asyncio.sleep(0)


def rows(*values: float, model: str = "echo", **more: Any) -> InferRequest:
    """A request for an echo; each number makes one row."""
    return InferRequest(model=model, inputs={"x": np.array([[value, value] for value in values], np.float32)}, **more)


def values(response) -> list[float]:
    return response.outputs["y"][:, 0].tolist()


def images(*data: Any, model: str | None = None, **more: Any) -> ClassifyRequest:
    return ClassifyRequest(model=model, images=data, **more)


def rest_app(engine: Engine, **limits: int) -> Any:
    """Everything but v2."""
    surface = ClassifySurface(engine, ClassifyLimits(**limits), offload=asyncio.to_thread)
    return create_rest_app(engine, surface, "1.2.3")


def client_of(engine: Engine, **limits: int) -> httpx.AsyncClient:
    """A client of everything but v2, without a socket."""
    transport = httpx.ASGITransport(rest_app(engine, **limits), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://shoal")


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an application from a thread; yields its URL."""
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
