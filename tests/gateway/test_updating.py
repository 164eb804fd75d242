"""What happens to one model, with a loader that does as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from backends.errors import LoadError, NoInstanceError
from batching.core.errors import DeadlineExceededError
from gateway.catalogue import Catalogue, ModelRecord
from gateway.control import VersionState
from gateway.hosted import Hosted
from gateway.load_turns import LoadTurns
from gateway.updating import Updater
from models.model_entry import ModelEntry
from models.spec import ModelSpec
from tests.gateway.serving import echo


class FakeAnswering:
    """A version that answers nothing and remembers how it ended."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.is_available = True
        self.ends: list[str] = []

    async def drain(self) -> None:
        self.ends.append("drained")

    async def close(self) -> None:
        self.ends.append("closed")


class FakeLoader:
    """Gives versions, or raises what `error` says."""

    def __init__(self) -> None:
        self.error: Callable[[], Exception] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.made: list[FakeAnswering] = []

    def fits(self, spec: ModelSpec) -> bool:
        return True

    async def load(self, spec: ModelSpec) -> Hosted:
        await self.gate.wait()
        if self.error is not None:
            raise self.error()
        stack = AsyncExitStack()
        self.made.append(FakeAnswering(spec))
        stack.push_async_callback(self.made[-1].close)
        return Hosted(self.made[-1], stack)  # type: ignore[arg-type]


class Updating(NamedTuple):
    updater: Updater
    loader: FakeLoader
    record: ModelRecord
    catalogue: Catalogue

    async def update(self, *specs: ModelSpec, **entry: Any) -> list[str]:
        return list((await self.updater.update(self.record, ModelEntry(name="m", versions=specs, **entry))).problems)

    def state(self, version: int = 1) -> VersionState:
        return self.record.version(version).state


@asynccontextmanager
async def updating() -> AsyncIterator[Updating]:
    catalogue, loader = Catalogue(), FakeLoader()
    record = catalogue.record("m")
    record.is_wanted = True
    async with asyncio.TaskGroup() as tasks:
        updater = Updater(loader, LoadTurns(4), tasks)  # type: ignore[arg-type]
        yield Updating(updater, loader, record, catalogue)


ONE = echo("m")
OTHER = replace(ONE, max_batch_rows=8)


async def test_the_old_version_is_drained_and_closed_after_its_last_lease() -> None:
    async with updating() as it:
        await it.update(ONE)
        with it.catalogue.find("m", None):
            await it.update(OTHER)
            during = list(it.loader.made[0].ends)
            now = it.catalogue.find("m", None).served
        await it.updater.drain()

        assert (during, it.loader.made[0].ends) == ([], ["drained", "closed"])
        assert now is it.loader.made[1]


ERRORS: list[Callable[[], Exception]] = [
    lambda: LoadError("the weights are gone"),
    DeadlineExceededError,
    lambda: OSError(28, "No space left on device", "/a/b"),
    lambda: ZeroDivisionError("a defect"),
]


@pytest.mark.parametrize("error", ERRORS)
async def test_whatever_a_load_raises_is_a_sentence_and_keeps_the_old_version(error: Callable[[], Exception]) -> None:
    async with updating() as it:
        await it.update(ONE)
        it.loader.error = error
        (problem,) = await it.update(OTHER)

        assert it.catalogue.find("m", None).served is it.loader.made[0]
        assert it.record.version(1).reason == problem
        assert "/a/b" not in problem


async def test_a_version_that_breaks_is_taken_out_and_closed() -> None:
    async with updating() as it:
        await it.update(ONE)
        it.updater.broken(it.record, 1, "its policy failed")
        await it.updater.drain()

        assert (it.state(), it.record.version(1).reason) == (VersionState.UNAVAILABLE, "its policy failed")
        assert it.loader.made[0].ends == ["drained", "closed"]


async def test_one_that_breaks_while_its_successor_is_loaded_is_replaced_by_it() -> None:
    async with updating() as it:
        await it.update(ONE)
        it.loader.gate.clear()
        reloading = asyncio.create_task(it.update(OTHER))
        await asyncio.sleep(0)
        it.updater.broken(it.record, 1, "its policy failed")
        it.loader.gate.set()

        assert await reloading == []
        assert it.state() is VersionState.READY


async def test_what_is_being_unloaded_is_gone_before_it_is_loaded_again() -> None:
    async with updating() as it:
        await it.update(ONE)
        with it.catalogue.find("m", None):
            unloading = asyncio.create_task(it.updater.unload(it.record, "unloaded"))
            await asyncio.sleep(0)
            loading = asyncio.create_task(it.update(ONE))
            await asyncio.sleep(0)
            during = it.state()
        await unloading
        await loading

        assert (during, it.state()) == (VersionState.UNLOADING, VersionState.READY)


async def test_a_load_that_is_given_up_leaves_no_version_that_seems_to_be_loading() -> None:
    async with updating() as it:
        it.loader.gate.clear()
        loading = asyncio.create_task(it.update(ONE))
        await asyncio.sleep(0)
        during = it.state()
        loading.cancel()
        await asyncio.wait((loading,))

        assert (during, it.state()) == (VersionState.LOADING, VersionState.UNAVAILABLE)


async def test_scaling_up_after_zero_that_fails_says_why() -> None:
    async with updating() as it:
        await it.update(ONE)
        await it.updater.scale(it.record, it.record.version(1), 0)
        it.loader.error = lambda: LoadError("no memory")
        problem = await it.updater.scale(it.record, it.record.version(1), 2)

        version = it.record.version(1)
        assert (problem, version.reason, version.is_idle) == ("no memory", "no memory", True)
        with pytest.raises(NoInstanceError, match="scaled to 0; scale it up again: no memory"):
            it.catalogue.find("m", None)
