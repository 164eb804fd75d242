"""Loads one model as its repository has it, after those that it is made of; one operation a model at a time."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from gateway.blocking import in_own_thread
from gateway.catalogue import Catalogue, ModelRecord
from gateway.load_turns import LoadTurns
from gateway.updating import Outcome, Updater
from models.ensembles import dependencies
from models.errors import RepositoryError
from models.model_entry import ModelEntry
from models.places import Place

_log = logging.getLogger(__name__)
_READS_AT_ONCE = 8


class Wish(NamedTuple):
    """How a model is to be loaded.

    Attributes:
        override: A configuration instead of the repository's.
        is_asked: Somebody wants this model, and not only what has changed of it.
        above: The models that lead here: from ensembles down to their parts, or from a part up to its ensembles.
        ensures: Load what it is made of, where that is not loaded.
        is_renewal: An ensemble whose models have changed; only if it is wanted still.
    """

    override: str | None = None
    is_asked: bool = False
    above: tuple[str, ...] = ()
    ensures: bool = True
    is_renewal: bool = False


_PLAIN = Wish()


class ModelLoads:
    """Knows where models are, and brings what is served up to it.

    Args:
        catalogue: Is kept up to date.
        updater: Changes what is served.
        look: Looks where models are; blocks; raises RepositoryError.
        tasks: Owns what is being loaded.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        updater: Updater,
        look: Callable[[], Mapping[str, Place]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._catalogue = catalogue
        self._updater = updater
        self._look = look
        self._tasks = tasks
        self._loading: dict[str, asyncio.Task[Outcome]] = {}
        self._doing: dict[str, tuple[Hashable, str | None]] = {}  # by model: files and override that were loaded last
        self._attempts: Counter[str] = Counter()
        self._withdrawals: Counter[str] = Counter()
        self._problems: dict[str, Sequence[str]] = {}  # of the last attempt, by model
        self._look_lock = asyncio.Lock()
        self._looks_begun = 0
        self._last_look = 0  # the number of the last one that succeeded
        self._reads = LoadTurns(_READS_AT_ONCE)
        self.places: Mapping[str, Place] = {}
        """Where models were at the last look."""
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By model: held by who changes what is served of it."""

    def forget(self, name: str) -> None:
        """It is in no repository any more."""
        for known in (self.turns, self._attempts, self._withdrawals, self._problems, self._doing):
            known.pop(name, None)

    async def look_around(self) -> Mapping[str, Place]:
        """Know where models are. Of many who want to know at once, one looks: a slow store holds one thread.

        Raises:
            RepositoryError: A repository cannot be read; `places` stays as it was.
        """
        begun = self._looks_begun
        async with self._look_lock:
            if self._last_look <= begun:  # else somebody has looked since this was called
                self._looks_begun += 1
                number = self._looks_begun
                self.places = await in_own_thread(self._look)
                self._last_look = number
        return self.places

    async def bring(self, name: str, wish: Wish = _PLAIN) -> Sequence[str]:
        """Load a model as its repository has it now, and before it the models that it is made of.

        What is being loaded of it already, and looks different by now, is given up.

        Returns:
            Problems, in sentences.
        """
        attempts, withdrawals = self._attempts[name], self._withdrawals[name]
        try:
            found = await self._read(name, wish.override)
        except Exception:  # noqa: BLE001 - a defect of ours concerns one model, not the server
            return self._defect(name)
        await self._ensure_all(found, wish)
        if not wish.is_renewal and self._doing.get(name) != (found.looked, wish.override):
            self._interrupt(name)
        async with self.turns[name]:
            record = self._catalogue.record(name)
            if wish.is_renewal and not record.is_wanted:
                return ()
            if self._withdrawals[name] != withdrawals:
                return [_given_up(name)]
            if self._attempts[name] != attempts and record.tried == found.looked and wish == _PLAIN:
                return self._problems.get(name, ())  # somebody has just tried the same
            self._attempts[name] += 1
            outcome = await self._update(record, found, wish)
            self._problems[name] = outcome.problems
            if wish.is_asked and not outcome.problems:
                record.is_wanted = record.is_asked = True
        if outcome.has_changed:
            await self.renew_users(name, wish.above)
        return outcome.problems

    def withdraw(self, name: str) -> None:
        """A model is not wanted any more: give up what is being loaded of it, and what is about to be."""
        self._withdrawals[name] += 1
        self._interrupt(name)

    async def scale(self, name: str, version: int | None, instances: int) -> str:
        """Change the number of a version's instances. Returns the problem, or nothing. Raises ModelUnavailableError."""
        async with self.turns[name]:
            scaling = self._updater.scale(
                self._catalogue.record(name), self._catalogue.scalable(name, version), instances
            )
            self._doing[name] = ("scaling", None)
            outcome = await self._interruptible(name, self._safely(name, _as_outcome(scaling)))
        return "; ".join(outcome.problems)

    def _interrupt(self, name: str) -> None:
        if (task := self._loading.get(name)) is not None:
            task.cancel()

    async def _read(self, name: str, override: str | None) -> "_Found":
        async with self._reads.turn():
            return await in_own_thread(partial(_read, self.places[name], override))

    async def _update(self, record: ModelRecord, found: "_Found", wish: Wish) -> Outcome:
        """Under the model's turn; somebody may interrupt it."""
        record.tried, record.needs, record.is_read = found.looked, found.needs, True
        entry = found.entry if wish.is_renewal else _without_circle(found, (*wish.above, record.name))
        parts = [self._catalogue.find_spec(*part) for spec in entry.versions for part in dependencies(spec)]
        afresh, record.parts = list(record.parts) != parts, parts  # an ensemble is made of others, which may change
        update = self._updater.update(record, entry, afresh=afresh, wakes=wish.is_asked)
        self._doing[record.name] = (found.looked, wish.override)
        return await self._interruptible(record.name, self._safely(record.name, update))

    async def _interruptible(self, name: str, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Under the model's turn: who wants something else of it may end this."""
        task = self._loading[name] = self._tasks.create_task(work)
        try:
            await asyncio.wait((task,))
        finally:
            del self._loading[name]
            if task.cancel():  # this was cancelled itself
                await asyncio.wait((task,))
        return Outcome([_given_up(name)], has_changed=False) if task.cancelled() else task.result()

    async def _safely(self, name: str, update: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            return await update
        except Exception:  # noqa: BLE001 - likewise
            return Outcome(self._defect(name), has_changed=False)

    def _defect(self, name: str) -> Sequence[str]:
        _log.exception("model '%s' could not be loaded", name)
        problem = f"model '{name}': internal error, see the log"
        self._catalogue.record(name).problems = (problem,)
        return [problem]

    async def _ensure_all(self, found: "_Found", wish: Wish) -> None:
        chain = (*wish.above, found.entry.name)
        for needed in found.needs if wish.ensures else ():
            if needed not in chain:
                await self._ensure(needed, chain)

    async def _ensure(self, name: str, above: tuple[str, ...]) -> None:
        """Load a model that an ensemble needs, unless it is there or has failed as it is now."""
        if name not in self.places:
            return
        record = self._catalogue.record(name)
        if record.newest() is not None:
            return
        looked = await in_own_thread(partial(_fingerprint, self.places[name]))
        if self._doing.get(name, (looked, None)) != (looked, None):
            self._interrupt(name)
        async with self.turns[name]:  # it may be loading
            is_tried = record.problems or any(version.is_wanted for version in record.versions.values())
            lacks = any(self._catalogue.record(part).newest() is None for part in record.needs)
            if record.newest() is not None or (is_tried and record.tried == looked and not lacks):
                return
        if not await self.bring(name, Wish(above=above)):
            record.is_wanted = True

    async def renew_users(self, name: str, above: tuple[str, ...] = ()) -> None:
        """Ensembles that use a model which has changed are checked and connected again."""
        for user in self.users_of(name):
            if user not in above and user in self.places:
                await self.bring(user, Wish(above=(*above, name), ensures=False, is_renewal=True))

    def users_of(self, name: str) -> Sequence[str]:
        """The ensembles that a model is part of."""
        return [record.name for record in self._catalogue.records() if record.is_wanted and name in record.needs]


def _given_up(name: str) -> str:
    return f"model '{name}': its loading was given up for a later wish"


async def _as_outcome(scaling: Coroutine[Any, Any, str]) -> Outcome:
    problem = await scaling
    return Outcome([problem] if problem else [], has_changed=not problem)


class _Found(NamedTuple):
    """What a repository says of a model, and how its files looked just before, so that a later change is seen."""

    entry: ModelEntry
    needs: Sequence[str]
    looked: Hashable


def _without_circle(found: _Found, chain: tuple[str, ...]) -> ModelEntry:
    """The entry, in which an ensemble that leads back to itself is broken."""
    met = [name for name in found.needs if name in chain]
    if not met:
        return found.entry
    circle = " -> ".join([*chain[chain.index(met[0]) :], met[0]])
    problem = RepositoryError(f"{found.entry.name}: found ensembles made of each other ({circle}), expected no circle")
    numbers = tuple(spec.version for spec in found.entry.versions)
    return replace(found.entry, versions=(), broken=numbers, problems=(problem,))


def _read(place: Place, override: str | None) -> _Found:
    looked = _fingerprint(place)
    entry = place.read(override)
    return _Found(entry, sorted({model for spec in entry.versions for model, _ in dependencies(spec)}), looked)


def _fingerprint(place: Place) -> Hashable:
    try:
        return place.fingerprint()
    except OSError:
        return None
