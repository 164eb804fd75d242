"""The real manager over directories of fake models, in the test's own event loop."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backends.workers import WorkerHouse
from batching.alarm import create_alarm
from batching.clock import MonotonicClock
from gateway.answering import Answering
from gateway.catalogue import Catalogue
from gateway.loading import Loader, LoadingSite
from gateway.manager import ControlRules, ModelManager
from gateway.polling import Poller
from gateway.service import InferenceService
from gateway.settings import Settings
from models.inference import InferRequest
from models.repository import Repository
from tests.gateway.serving import ByteDecoder

CONFIG = """
backend: "fake"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
PATIENCE_S = 20
BROKEN = 'backend: "fake" max_batch_sise: 4'


class Managed(NamedTuple):
    """What a test drives, and what it asks."""

    manager: ModelManager
    catalogue: Catalogue
    service: InferenceService
    poller: Poller
    problems: list[str]

    async def answer(self, model: str = "m", version: int | None = None, value: float = 7) -> tuple[int, float]:
        """The version that answered, and what it answered."""
        request = InferRequest(model=model, version=version, inputs={"x": np.full((1, 1), value, np.float32)})
        response = await self.service.infer(request)
        return response.version, float(response.outputs["y"][0, 0])

    async def states(self) -> list[tuple[str, int | None, str | None]]:
        """The index without reasons."""
        return [(name, version, state and state.value) for name, version, state, _ in await self.manager.index()]

    async def reason(self, model: str = "m", version: int | None = 1) -> str:
        """Of one version, out of the index."""
        (found,) = [entry.reason for entry in await self.manager.index() if entry[:2] == (model, version)]
        return found

    async def until_ready(self, model: str = "m") -> None:
        """Let the loop run until the model answers."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._is_ready(model):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)

    async def until_state(self, model: str, state: str) -> None:
        """Let the loop run until version 1 is in a state."""
        async with asyncio.timeout(PATIENCE_S):
            while (model, 1, state) not in await self.states():
                pass

    async def until_task(self, task: "asyncio.Task[None]") -> None:
        """Let the loop run until a load of `code` is under way again."""
        async with asyncio.timeout(PATIENCE_S):
            while self.catalogue.record("code").version(1).loading is None and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0)

    def _is_ready(self, model: str) -> bool:
        return model in self.service.model_names() and self.service.is_model_ready(model)

    def answering(self, model: str = "m") -> Answering:
        """What answers now."""
        return self.catalogue.find(model, None).served

    async def follow(self) -> None:
        """Two looks, which is what a change needs, and its consequences."""
        await self.poller.look()
        await self.poller.look()
        await self.poller.settled()


def add_model(root: Path, name: str = "m", *versions: int, config: str = CONFIG, side: str = "") -> Path:
    """A model, or another configuration or more versions of one; every call changes it."""
    directory = root / name
    for version in versions or (1,):
        (directory / str(version)).mkdir(parents=True, exist_ok=True)
    for file, text in (("config.pbtxt", config), ("shoal.toml", side)):
        write(directory / file, text)
    return directory


def write(file: Path, text: str) -> None:
    """Write a file so that it looks changed, however coarse the clock of the file system is."""
    before_ns = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    if file.stat().st_mtime_ns <= before_ns:
        os.utime(file, ns=(before_ns + 1, before_ns + 1))


@asynccontextmanager
async def managing(root: Path, mode: Any = "explicit", load: tuple[str, ...] = ("*",)) -> AsyncIterator[Managed]:
    """A manager that has loaded what is there."""
    clock, loop = MonotonicClock(), asyncio.get_running_loop()
    settings = Settings(cache_dir=root / ".cache")
    catalogue, look = Catalogue(), Repository([root]).places
    async with WorkerHouse(clock) as workers:
        site = LoadingSite(
            settings, {}, workers, None, ByteDecoder(), clock, lambda ring: create_alarm(loop, clock, ring)
        )
        rules = ControlRules(mode=mode, load_model=load)
        async with ModelManager(catalogue, look, rules, partial(Loader, site, catalogue)) as manager:
            await manager.survey()
            service = InferenceService(catalogue)
            poller = Poller(manager, clock, every_s=1, settle_s=0)
            problems = list(await manager.start())
            yield Managed(manager, catalogue, service, poller, problems)
