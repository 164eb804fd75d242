"""Which models are loaded, and the verbs that change it; one operation a model at a time, models beside each other."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from batching.core.errors import ShuttingDownError
from gateway.catalogue import Catalogue, ModelRecord
from gateway.control import IndexEntry, VersionState
from gateway.load_turns import LoadTurns
from gateway.loading import Loader
from gateway.model_loads import ModelLoads, Wish
from gateway.served import Served
from gateway.updating import Updater
from models.errors import (
    ControlNotAllowedError,
    LoadFailedError,
    RepositoryError,
    UnknownModelError,
)
from models.places import Place

T = TypeVar("T")
CreateLoader = Callable[[asyncio.TaskGroup, Callable[[Served], None]], Loader]
"""Makes what loads versions, from the owner of tasks and what is told about versions that cannot go on."""

_log = logging.getLogger(__name__)
_MAX_INSTANCES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRules:
    """When models are loaded.

    Attributes:
        mode: ``none``: at the start; ``poll``: and when their files change; ``explicit``: when asked for.
        load_model: In explicit mode, those to load at the start; ``*`` means all.
        load_at_once: Loads that begin at once.
    """

    mode: Literal["none", "poll", "explicit"] = "none"
    load_model: Sequence[str] = ()
    load_at_once: int = 4


class ModelManager:
    """Implements `gateway.control.ModelControl`; an async context manager that owns what runs for the models.

    Args:
        catalogue: Is kept up to date.
        places: Looks where models are; blocks; raises RepositoryError.
        rules: When models are loaded.
        create_loader: Makes what loads versions.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        places: Callable[[], Mapping[str, Place]],
        rules: ControlRules,
        create_loader: CreateLoader,
    ) -> None:
        self._catalogue = catalogue
        self._look = places
        self._rules = rules
        self._create_loader = create_loader
        self._tasks = asyncio.TaskGroup()
        self._loader: Loader
        self._updater: Updater
        self._loads: ModelLoads
        self._operations: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._loader = self._create_loader(self._tasks, self._on_defect)
        self._updater = Updater(self._loader, LoadTurns(self._rules.load_at_once), self._tasks)
        self._loads = ModelLoads(self._catalogue, self._updater, self._look, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        try:
            if self._operations:
                await asyncio.wait(list(self._operations))
            async with asyncio.TaskGroup() as closing:
                for hosted in self._catalogue.hosted():
                    closing.create_task(hosted.aclose())
        finally:
            if not isinstance(error, asyncio.CancelledError):  # the body's own error leaves as it is, not in a group
                kind = error = traceback = None
            await self._tasks.__aexit__(kind, error, traceback)

    async def survey(self) -> None:
        """Look at the repositories for the first time. Raises RepositoryError."""
        await self._loads.look_around()
        if not self._loads.places:
            _log.warning("no model found in the repositories")
        for name in self._names_at_start():
            record = self._catalogue.record(name)
            record.is_wanted = record.is_asked = True

    async def start(self) -> Sequence[str]:
        """Load what is to be loaded at the start; returns the problems, in sentences."""
        async with asyncio.TaskGroup() as group:
            loads = [group.create_task(self._loads.bring(name)) for name in self._names_at_start()]
        return [*self._unknown_names(), *(problem for load in loads for problem in load.result())]

    async def index(self) -> Sequence[IndexEntry]:
        """See `ModelControl`."""
        if self._rules.mode == "explicit":  # in the others nobody but the server decides when it looks
            try:
                await self._loads.look_around()
            except RepositoryError as error:
                _log.warning("%s", error)
            self._catalogue.know(self._loads.places)
        return list(self._catalogue.index())

    async def load(self, model: str, override: str | None = None) -> None:
        """See `ModelControl`."""
        self._check_mode()
        await self._outlive(self._load(model, override))

    async def unload(self, model: str, *, dependents: bool = False) -> None:
        """See `ModelControl`."""
        self._check_mode()
        await self._outlive(self._unload(model, dependents=dependents))

    async def scale(self, model: str, version: int | None, instances: int) -> None:
        """See `ModelControl`."""
        self._check_mode()
        if not 0 <= instances <= _MAX_INSTANCES:
            raise LoadFailedError(model, f"found {instances} instances, expected 0 to {_MAX_INSTANCES}")
        await self._outlive(self._scale(model, version, instances))

    async def look_around(self) -> Mapping[str, Place]:
        """Where models are now. Raises RepositoryError."""
        return await self._loads.look_around()

    def tried(self) -> Mapping[str, object]:
        """By model, how its files looked when it was loaded last, or is being loaded."""
        return {record.name: record.tried for record in self._catalogue.records() if record.is_read}

    def is_unread(self, name: str) -> bool:
        """Whether it is wanted, and what its repository says of it is not known yet."""
        return self._catalogue.is_unread(name)

    def start_refreshing(self, name: str, place: Place | None) -> "asyncio.Task[None]":
        """A model's files have changed, or it is in no repository any more: follow."""
        return self._operate(self._refresh(name, place))

    async def _refresh(self, name: str, place: Place | None) -> None:
        try:
            if place is None:
                await self._remove(name)
            else:
                self._catalogue.record(name).is_wanted = True
                await self._loads.bring(name)
        except Exception:  # noqa: BLE001 - a defect of ours concerns one model, not the server
            _log.exception("model '%s' could not follow its repository", name)

    def stop(self) -> None:
        """Give up what is being loaded; what is in service goes on."""
        for operation in self._operations:
            operation.cancel()

    async def drain(self) -> None:
        """Admit nothing more, and wait until everything admitted has been answered."""
        for hosted in list(self._catalogue.hosted()):
            await hosted.served.drain()
        await self._updater.drain()

    def give_up(self) -> None:
        """Answer everything that is held with an error: there is no time left for it."""
        self._loader.end_runners()

    # One model

    async def _load(self, model: str, override: str | None) -> None:
        await self._loads.look_around()
        if model not in self._loads.places:
            raise UnknownModelError(model)
        record = self._catalogue.record(model)
        problems = await self._loads.bring(model, Wish(override=override, is_asked=True))
        if problems:
            raise LoadFailedError(model, "; ".join(_at(record, problem) for problem in problems) + "\n")

    async def _unload(self, model: str, *, dependents: bool) -> None:
        waiting, seen = [model], set()
        while waiting:
            name = waiting.pop()
            record = next((record for record in self._catalogue.records() if record.name == name), None)
            is_due = name == model or (record and not record.is_asked and not self._loads.users_of(name))
            if record is None or name in seen or not is_due:
                continue
            seen.add(name)
            if dependents:
                waiting += record.needs
            await self._take_out(record, "unloaded")

    async def _take_out(self, record: ModelRecord, reason: str) -> None:
        self._loads.withdraw(record.name)
        async with self._loads.turns[record.name]:
            record.is_wanted = record.is_asked = False
            record.problems, record.tried = (), None
            await self._updater.unload(record, reason)
        await self._loads.renew_users(record.name)

    async def _scale(self, model: str, number: int | None, instances: int) -> None:
        if problem := await self._loads.scale(model, number, instances):
            raise LoadFailedError(model, problem)

    async def _remove(self, name: str) -> None:
        await self._take_out(self._catalogue.record(name), "it is in no repository any more")
        if name not in self._loads.places:
            self._catalogue.forget(name)
            self._loads.forget(name)

    # Around

    def _names_at_start(self) -> Sequence[str]:
        wanted = self._rules.load_model
        if self._rules.mode != "explicit" or "*" in wanted:
            return list(self._loads.places)
        return [name for name in dict.fromkeys(wanted) if name in self._loads.places]

    def _unknown_names(self) -> Sequence[str]:
        known = ", ".join(self._loads.places) or "none"
        unknown = [name for name in self._rules.load_model if name not in {"*", *self._loads.places}]
        problems = [f"--load-model={name}: no such model in the repositories, found: {known}" for name in unknown]
        for problem in problems:
            _log.error("%s", problem)
        return problems

    def _check_mode(self) -> None:
        if self._rules.mode != "explicit":
            raise ControlNotAllowedError

    def _on_defect(self, served: Served) -> None:
        """A version cannot go on; it need not be the one that is in service now."""
        record = self._catalogue.record(served.spec.name)
        hosted = record.version(served.spec.version).hosted
        if hosted is not None and hosted.served is served:
            self._updater.broken(record, served.spec.version, f"its policy failed: {served.failure}")

    async def _outlive(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end, even if whoever waits for it leaves: a half-done change helps nobody."""
        operation = self._operate(_outcome(work))
        try:
            error = await asyncio.shield(operation)
        except asyncio.CancelledError:
            if operation.cancelled():  # not the caller
                raise ShuttingDownError from None
            raise
        if error is not None:
            raise error

    def _operate(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._tasks.create_task(work)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return task


async def _outcome(work: Coroutine[Any, Any, None]) -> Exception | None:
    """A coroutine's error as a value: raised in a task, it would end the tasks beside it."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - raised again by who waits
        return error
    return None


def _at(record: ModelRecord, problem: str) -> str:
    """As Triton begins such a sentence."""
    for number, version in sorted(record.versions.items()):
        if version.reason == problem and version.state is VersionState.UNAVAILABLE:
            return f"version {number} is at UNAVAILABLE state: {problem}"
    return problem
