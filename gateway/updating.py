"""One model, from what is served to what its repository says: load beside, switch, drain the old, keep what works."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from backends.errors import BackendError
from backends.freed_memory import return_freed_memory
from batching.core.errors import BatchingError
from gateway.blocking import in_own_thread
from gateway.catalogue import IDLE, ModelRecord, VersionRecord
from gateway.control import VersionState
from gateway.hosted import Hosted
from gateway.lifecycle import Move
from gateway.load_turns import LoadTurns
from gateway.loading import Loader
from models.archives.store_config import STORE_CONFIG
from models.errors import ModelsError
from models.model_entry import ModelEntry
from models.spec import ModelSpec

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What came of an update.

    Attributes:
        problems: In sentences; empty if all is as it should be.
        has_changed: Something else is served than before.
    """

    problems: Sequence[str]
    has_changed: bool


class Updater:
    """Changes records. Two calls for the same model must not overlap.

    Args:
        loader: Loads versions.
        turns: How many at once.
        tasks: Owns what goes on after a call: versions that were replaced and are drained.
    """

    def __init__(self, loader: Loader, turns: LoadTurns, tasks: asyncio.TaskGroup) -> None:
        self._loader = loader
        self._turns = turns
        self._tasks = tasks
        self._retiring: defaultdict[tuple[str, int], set[asyncio.Task[None]]] = defaultdict(set)

    async def update(
        self, record: ModelRecord, entry: ModelEntry, *, afresh: bool = False, wakes: bool = False
    ) -> Outcome:
        """Serve what the entry says; what cannot be loaded stays as it was.

        Args:
            record: Of the model.
            entry: What its repository says.
            afresh: Load versions again that have not changed.
            wakes: Also those that were scaled to no instances.
        """
        await self._drained(record)
        before = record.serving()
        self._note(record, entry)
        numbers = {spec.version for spec in entry.versions} | set(entry.broken)
        for number, version in record.versions.items():
            version.is_wanted = version.is_wanted and number in numbers
        changed = [
            spec
            for spec in entry.versions
            if afresh or _has_changed(record.version(spec.version), spec, entry, wakes=wakes)
        ]
        for spec in changed:
            self._begin(record, spec)
        async with asyncio.TaskGroup() as group:
            loads = [group.create_task(self._load(record, spec, entry.files.get(spec.version))) for spec in changed]
        failures = [problem for load in loads if (problem := load.result())]
        problems = [*map(str, entry.problems), *failures]
        if not problems:
            self._drop_others(record, numbers)
        _settle(record, entry, problems)
        return Outcome(problems, has_changed=record.serving() != before)

    async def unload(self, record: ModelRecord, reason: str) -> None:
        """Take all versions out of service; returns when they are drained and closed."""
        for version in record.versions.values():
            if version.hosted is not None:
                self._retire(record.name, version, reason)
        for version in record.versions.values():
            version.is_wanted = version.is_idle = False
            if version.state is VersionState.UNAVAILABLE:
                version.reason = reason
        await _all_of(task for number in record.versions for task in self._retired(record, number))

    async def scale(self, record: ModelRecord, version: VersionRecord, instances: int) -> str:
        """Let a version have another number of instances, or none. Returns the problem, or nothing."""
        spec = version.spec
        if spec is None or len(spec.instance_groups) != 1:
            groups = 0 if spec is None else len(spec.instance_groups)
            return f"model '{record.name}' version {version.number} has {groups} instance groups, expected one to scale"
        record.problems = ()
        if not instances:
            if version.hosted is not None:
                version.is_idle = True
                version.is_wanted = False
                self._retire(record.name, version, IDLE)
                await _all_of(self._retired(record, version.number))
            return ""
        await self._drained(record)
        group = replace(spec.instance_groups[0], count=instances, is_default_count=False)
        scaled = replace(spec, instance_groups=(group,))
        self._begin(record, scaled)
        return await self._load(record, scaled, version.files, declared=spec)

    async def drain(self) -> None:
        """Wait for the versions that were replaced or unloaded."""
        await _all_of(task for tasks in self._retiring.values() for task in tasks)

    def broken(self, record: ModelRecord, number: int, reason: str) -> None:
        """A version cannot go on: take it out of service."""
        version = record.version(number)
        if (hosted := version.take_out(Move.BROKE, reason)) is not None:
            self._end(record.name, version, hosted)

    def _retired(self, record: ModelRecord, number: int) -> Iterable["asyncio.Task[None]"]:
        return self._retiring.get((record.name, number), ())

    async def _drained(self, record: ModelRecord) -> None:
        """Wait until what was taken out of service is gone, before it is loaded again."""
        leaving = [number for number, version in record.versions.items() if version.state is VersionState.UNLOADING]
        await _all_of(task for number in leaving for task in self._retired(record, number))

    def _note(self, record: ModelRecord, entry: ModelEntry) -> None:
        record.problems = tuple(map(str, entry.problems))
        if _describes(entry):
            record.required = entry.required
        for text in entry.notes:
            # What a store says of itself comes with its first model.
            _log.warning("%s", text if text.startswith(STORE_CONFIG) else f"model {entry.name}: {text}")
        for problem in record.problems:
            _log.error("%s", problem)
        for number in entry.broken:
            version = record.version(number)
            version.is_wanted = True
            version.move(Move.LOAD_FAILED, "; ".join(record.problems))

    def _begin(self, record: ModelRecord, spec: ModelSpec) -> None:
        version = record.version(spec.version)
        version.move(Move.LOAD)
        version.loading, version.is_wanted = spec, not version.is_idle

    async def _load(
        self, record: ModelRecord, spec: ModelSpec, files: Hashable, *, declared: ModelSpec | None = None
    ) -> str:
        """Load a version and let it take over. Returns the problem, or nothing."""
        version = record.version(spec.version)
        try:
            await _all_of(self._retired(record, spec.version))  # at most two of a version exist at once
            async with self._turns.turn():
                hosted = await self._loader.load(spec)
        except (BackendError, ModelsError, BatchingError, OSError) as error:
            reason = _sentence(spec, error)
            _log.error("%s", reason)
            return self._failed(record, version, reason)
        except asyncio.CancelledError:
            self._failed(record, version, "its loading was given up")
            raise
        except Exception:  # noqa: BLE001 - a defect of ours concerns one model, not the server
            _log.exception("model '%s' version %d could not be loaded", record.name, spec.version)
            return self._failed(
                record, version, f"model '{record.name}' version {spec.version}: internal error, see the log"
            )
        finally:
            version.loading = None
        old = version.put_in(hosted, declared or spec, files)
        if old is not None:
            self._end(record.name, version, old)
        return ""

    def _failed(self, record: ModelRecord, version: VersionRecord, reason: str) -> str:
        version.move(Move.LOAD_FAILED, reason)
        if version.hosted is not None and not self._loader.fits(version.hosted.spec):
            self.broken(record, version.number, reason)  # what an ensemble is made of has changed under it
        return reason

    def _drop_others(self, record: ModelRecord, wanted: set[int]) -> None:
        """Versions that are not to be served any more go once those that replace them are ready."""
        for number, version in list(record.versions.items()):
            if number in wanted:
                continue
            version.is_wanted = version.is_idle = False
            if version.hosted is not None:
                self._retire(record.name, version, "unloaded")
            else:
                version.reason = "unloaded"

    def _retire(self, model: str, version: VersionRecord, reason: str) -> None:
        self._end(model, version, version.take_out(Move.UNLOAD), reason)

    def _end(self, model: str, version: VersionRecord, hosted: Hosted | None, reason: str = "") -> None:
        """Drain and close what nobody finds any more; with a reason, the version itself is gone then."""
        key = model, version.number

        async def retire() -> None:
            try:
                if hosted is not None:
                    await hosted.retire()
                    await in_own_thread(return_freed_memory)
            except Exception:  # noqa: BLE001 - likewise
                _log.exception("model '%s' version %d could not be closed", model, version.number)
            finally:
                if reason:
                    version.move(Move.DRAINED, reason)
                    version.forget()
                    _log.info("model unloaded", extra={"fields": {"model": model, "version": version.number}})

        task = self._tasks.create_task(retire())
        self._retiring[key].add(task)
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: tuple[str, int], done: "asyncio.Task[None]") -> None:
        self._retiring[key].discard(done)
        if not self._retiring[key]:
            del self._retiring[key]


async def _all_of(tasks: Iterable["asyncio.Task[None]"]) -> None:
    if waiting := list(tasks):
        await asyncio.wait(waiting)


def _sentence(spec: ModelSpec, error: Exception) -> str:
    if isinstance(error, BackendError | ModelsError):
        return str(error)
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return f"model '{spec.name}' version {spec.version}: {text}"


def _describes(entry: ModelEntry) -> bool:
    """Whether it says more of the model than that it cannot be read."""
    return entry.is_described and bool(entry.versions or entry.broken or entry.required is not None)


def _settle(record: ModelRecord, entry: ModelEntry, problems: Sequence[str]) -> None:
    """What holds once the loads have ended: labels of versions that are ready, and no reasons that are mended."""
    if _describes(entry):
        ready = {number for number, version in record.versions.items() if version.hosted is not None}
        record.labels = {
            label: number if number in ready else record.labels.get(label, number)
            for label, number in entry.version_labels.items()
        }
    if not problems:
        for spec in entry.versions:
            version = record.version(spec.version)
            version.reason = version.reason if version.is_idle else ""


def _has_changed(version: VersionRecord, spec: ModelSpec, entry: ModelEntry, *, wakes: bool) -> bool:
    """Whether it is not served as the repository says now."""
    if version.is_idle and not wakes and version.spec == spec and version.files == entry.files.get(spec.version):
        return False  # as somebody wanted it
    return version.hosted is None or version.spec != spec or version.files != entry.files.get(spec.version)
