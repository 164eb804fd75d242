"""Workers and models that are code, which hide what a test does not care about."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from backends.ports import Placement
from backends.process.remote_executor import RemoteExecutor
from backends.process.worker_process import WorkerProcess
from batching.clock import MonotonicClock
from models.spec import ModelSpec
from tests.backends.builders import model

LOOP, SEGFAULT, EXIT, RAISE, WRITE_TO_SOCKETS, CLOSE_SOCKETS = range(1_001, 1_007)
"""Values on which `save_deeds` misbehaves."""

_DEEDS = f"""
import ctypes, os
from pathlib import Path

def sockets():
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [int(link.name) for link in links if str(os.readlink(link)).startswith("socket:")]

def loop():
    while True:
        pass

DEEDS = {{
    {LOOP}: loop,
    {SEGFAULT}: lambda: ctypes.string_at(0),
    {EXIT}: lambda: os._exit(3),
    {RAISE}: lambda: 1 / 0,
    {WRITE_TO_SOCKETS}: lambda: [os.write(fd, b"hello, I am a log line") for fd in sockets()],
    {CLOSE_SOCKETS}: lambda: [os.close(fd) for fd in sockets()] + [loop()],
}}

class Model:
    def execute(self, inputs):
        DEEDS.get(int(inputs["x"][0, 0]), lambda: None)()
        return {{"y": inputs["x"]}}
"""


def save_code(directory: Path, code: str, **parameters: str) -> ModelSpec:
    """A model version that is this code."""
    version = directory / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(code)
    return model(backend="python", file=version / "model.py", **parameters)


def save_deeds(directory: Path) -> ModelSpec:
    """The identity, except on the values above."""
    return save_code(directory, _DEEDS)


@asynccontextmanager
async def started_worker(name: str = "w", environment: Mapping[str, str] | None = None) -> AsyncIterator[WorkerProcess]:
    worker = WorkerProcess(name, clock=MonotonicClock(), environment=environment or {})
    try:
        await worker.start()
        yield worker
    finally:
        await worker.aclose()


@asynccontextmanager
async def remote_executors(spec: ModelSpec, placement: Placement | None = None) -> AsyncIterator[list[RemoteExecutor]]:
    """All lanes of a model in a worker process of its own, not loaded."""
    async with started_worker() as worker:
        instances = await worker.assign(spec, placement or Placement())
        yield [lane for lanes in instances for lane in lanes]


async def loaded(worker: WorkerProcess, spec: ModelSpec) -> RemoteExecutor:
    """The only lane of a model in this worker."""
    ((lane,),) = await worker.assign(spec, Placement())
    await asyncio.to_thread(lane.load)
    return lane


async def busy(worker: WorkerProcess) -> None:
    """Until a step runs in the worker."""
    await until(lambda: any(worker.pulse().steps.values()))


async def until(condition: Callable[[], bool]) -> None:
    """For what no event tells."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)


def shared_memory() -> list[str]:
    """The descriptors and mappings of shared memory that this process has."""
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return [text for text in (*open_fds().values(), *mapped) if "memfd:shoal" in text]


def open_fds() -> Mapping[str, str]:
    """What the descriptors of this process are of."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the directory
            found[link.name] = str(link.readlink())
    return found
