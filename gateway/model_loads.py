"""Loads one model as its repository has it, after those that it is made of; one operation a model at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gateway.catalogue import Catalogue
from gateway.updating import Updater
from models.ensembles import dependencies
from models.model_entry import ModelEntry
from models.places import Place


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
        self.places: Mapping[str, Place] = {}
        """Where models were at the last look."""
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By model: held by who changes what is served of it."""

    async def look_around(self) -> None:
        """Know where models are. Of many who want to know at once, one looks: a slow store holds one thread."""
        begun = self._looks_begun
        async with self._look_lock:
            if self._looks_begun > begun:
                return  # somebody has looked since this was called
            self._looks_begun += 1
            self.places = await asyncio.to_thread(self._look)

    async def bring(
        self, name: str, *, override: str | None = None, above: tuple[str, ...] = (), afresh: bool = False
    ) -> Sequence[str]:
        """Load a model as its repository has it now, and before it the models that it is made of.

        Args:
            name: In a repository.
            override: A configuration instead of the repository's.
            above: The ensembles that lead here.
            afresh: Also if nothing has changed.
        """
        place = self.places[name]
        entry, tried = await asyncio.to_thread(_read, place, override)
        needs = sorted({model for spec in entry.versions for model, _ in dependencies(spec)})
        for needed in needs:
            if needed not in (*above, name):
                await self._ensure(needed, (*above, name))
        async with self.turns[name]:
            record = self._catalogue.record(name)
            record.tried, record.needs = tried, needs
            # An ensemble is made of others, which may have changed without it.
            afresh = afresh or any(spec.steps for spec in entry.versions)
            problems = await self._updater.update(record, entry, afresh=afresh)
        await self._renew_users(name, above)
        return problems

    async def _ensure(self, name: str, above: tuple[str, ...]) -> None:
        """Load a model that an ensemble needs, unless it is there or has failed as it is now."""
        async with self.turns[name]:  # it may be loading
            record = self._catalogue.record(name)
            was_tried = record.problems or any(version.is_wanted for version in record.versions.values())
            if name not in self.places or was_tried:
                return
            record.is_wanted = True
        await self.bring(name, above=above)

    async def _renew_users(self, name: str, above: tuple[str, ...]) -> None:
        """Ensembles that use a model which has changed are checked and connected again."""
        for user in self.users_of(name):
            if user not in above and user in self.places:
                await self.bring(user, above=(*above, name), afresh=True)

    def users_of(self, name: str) -> Sequence[str]:
        """The ensembles that a model is part of."""
        return [record.name for record in self._catalogue.records() if record.is_wanted and name in record.needs]


def _read(place: Place, override: str | None) -> tuple[ModelEntry, object]:
    """What is there, and how it looked just before, so that a later change is seen."""
    try:
        looked = place.fingerprint()
    except OSError:
        looked = None
    return place.read(override), looked
