"""Loads one model as its repository has it, after those that it is made of; one operation a model at a time."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from gateway.blocking import in_own_thread
from gateway.catalogue import Catalogue, ModelRecord
from gateway.load_turns import LoadTurns
from gateway.updating import Updater
from models.ensembles import dependencies
from models.model_entry import ModelEntry
from models.places import Place

_log = logging.getLogger(__name__)
_READS_AT_ONCE = 8


class ModelLoads:
    """Knows where models are, and brings what is served up to it.

    Args:
        catalogue: Is kept up to date.
        updater: Changes what is served.
        look: Looks where models are; blocks; raises RepositoryError.
    """

    def __init__(self, catalogue: Catalogue, updater: Updater, look: Callable[[], Mapping[str, Place]]) -> None:
        self._catalogue = catalogue
        self._updater = updater
        self._look = look
        self._look_lock = asyncio.Lock()
        self._looks_begun = 0
        self._last_look = 0  # the number of the last one that succeeded
        self._reads = LoadTurns(_READS_AT_ONCE)
        self.places: Mapping[str, Place] = {}
        """Where models were at the last look."""
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By model: held by who changes what is served of it."""

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

    async def bring(
        self, name: str, *, override: str | None = None, above: tuple[str, ...] = (), ensures: bool = True
    ) -> Sequence[str]:
        """Load a model as its repository has it now, and before it the models that it is made of.

        Args:
            name: In a repository.
            override: A configuration instead of the repository's.
            above: The ensembles that lead here.
            ensures: Load what it is made of, where that is not loaded.

        Returns:
            Problems, in sentences.
        """
        try:
            found = await self._read(name, override)
            for needed in found.needs if ensures else ():
                if needed not in (*above, name):
                    await self._ensure(needed, (*above, name))
            async with self.turns[name]:
                outcome = await self._updater.update(
                    self._note(name, found), found.entry, afresh=self._has_other_parts(name, found)
                )
        except Exception:  # noqa: BLE001 - a defect of ours concerns one model, not the server
            _log.exception("model '%s' could not be loaded", name)
            problem = f"model '{name}': internal error, see the log"
            self._catalogue.record(name).problems = (problem,)
            return [problem]
        if outcome.has_changed:
            await self.renew_users(name, above)
        return outcome.problems

    async def _read(self, name: str, override: str | None) -> "_Found":
        async with self._reads.turn():
            return await in_own_thread(partial(_read, self.places[name], override))

    def _note(self, name: str, found: "_Found") -> ModelRecord:
        record = self._catalogue.record(name)
        record.tried, record.needs, record.is_read = found.looked, found.needs, True
        return record

    def _has_other_parts(self, name: str, found: "_Found") -> bool:
        """Whether an ensemble is made of others than when it was connected to them."""
        parts = [self._catalogue.find_spec(*part) for spec in found.entry.versions for part in dependencies(spec)]
        record = self._catalogue.record(name)
        before, record.parts = record.parts, parts
        return list(before) != parts

    async def _ensure(self, name: str, above: tuple[str, ...]) -> None:
        """Load a model that an ensemble needs, unless it is there or has failed as it is now."""
        if name not in self.places:
            return
        looked = await in_own_thread(partial(_fingerprint, self.places[name]))
        async with self.turns[name]:  # it may be loading
            record = self._catalogue.record(name)
            is_wanted = record.problems or any(version.is_wanted for version in record.versions.values())
            if record.newest() is not None or (is_wanted and record.tried == looked):
                return
            record.is_wanted = True
        await self.bring(name, above=above)

    async def renew_users(self, name: str, above: tuple[str, ...] = ()) -> None:
        """Ensembles that use a model which has changed are checked and connected again."""
        for user in self.users_of(name):
            if user not in above and user in self.places:
                await self.bring(user, above=(*above, name), ensures=False)

    def users_of(self, name: str) -> Sequence[str]:
        """The ensembles that a model is part of."""
        return [record.name for record in self._catalogue.records() if record.is_wanted and name in record.needs]


class _Found(NamedTuple):
    """What a repository says of a model, and how its files looked just before, so that a later change is seen."""

    entry: ModelEntry
    needs: Sequence[str]
    looked: Hashable


def _read(place: Place, override: str | None) -> _Found:
    looked = _fingerprint(place)
    entry = place.read(override)
    return _Found(entry, sorted({model for spec in entry.versions for model, _ in dependencies(spec)}), looked)


def _fingerprint(place: Place) -> Hashable:
    try:
        return place.fingerprint()
    except OSError:
        return None
