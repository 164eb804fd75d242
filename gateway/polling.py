"""Poll mode: follows what changes in the repositories, one model independent of the others.

What has changed is loaded once it has looked the same for a while: a version that is still being copied grows, and is
not loaded.
"""

import asyncio
import logging
from collections.abc import Hashable, Mapping
from functools import partial
from typing import NamedTuple

from batching.clock import SECOND_NS, Clock, seconds_to_ns
from gateway.blocking import in_own_thread
from gateway.manager import ModelManager
from models.errors import RepositoryError
from models.places import Place

_log = logging.getLogger(__name__)


class _Look(NamedTuple):
    """How a model's files look; None stands for a model that is not there."""

    fingerprint: Hashable
    unfinished: str


_NEVER = _Look(None, "never seen")
_GONE = object()  # instead of a fingerprint


class Poller:
    """Looks at the repositories again and again.

    Args:
        manager: Has loaded what was there at the start.
        clock: For the time that something has looked the same.
        every_s: Between two looks.
        settle_s: How long something must look the same before it is loaded.
    """

    def __init__(
        self,
        manager: ModelManager,
        clock: Clock,
        *,
        every_s: float,
        settle_s: float = 1.0,
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._every_s = every_s
        self._settle_ns = seconds_to_ns(settle_s)
        self._followed: dict[str, object] = {}  # by model, the fingerprint that is being followed
        self._changing: dict[str, tuple[_Look | None, int]] = {}  # by model, what differs from that, and since when
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[str, str] = {}  # by model, or "" for the repositories: the last complaint

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            soon_s = min(self._every_s, self._settle_ns / SECOND_NS)
            await asyncio.sleep(soon_s if self._changing else self._every_s)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - the next look may go better
                _log.exception("the repositories could not be followed")

    async def look(self) -> None:
        """Look once, and follow what has stopped changing."""
        try:
            places = await self._manager.look_around()
        except RepositoryError as error:
            self._tell("", str(error))
            return
        self._told.pop("", None)
        found = await in_own_thread(partial(_look_at_each, places))
        tried = self._manager.tried()
        for name in sorted({*tried, *self._followed, *found}):
            self._judge(name, found.get(name), places.get(name), self._followed.get(name, tried.get(name, _GONE)))

    async def settled(self) -> None:
        """Wait for the changes that are being followed."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _judge(self, name: str, now: _Look | None, place: Place | None, known: object) -> None:
        """Compare how a model looks now with how it is known."""
        if self._manager.is_unread(name) or (now.fingerprint if now else _GONE) == known:
            self._changing.pop(name, None)
            return
        now_ns = self._clock.now_ns()
        before, since_ns = self._changing.get(name, (_NEVER, now_ns))
        if before != now:
            self._changing[name] = now, now_ns
            return
        if now_ns - since_ns < self._settle_ns:
            return
        if now is not None and now.unfinished:
            self._tell(name, f"model '{name}': not loaded while '{now.unfinished}' is being copied")
            return
        del self._changing[name]
        self._told.pop(name, None)
        self._follow(name, now.fingerprint if now else _GONE, place)

    def _follow(self, name: str, fingerprint: object, place: Place | None) -> None:
        """Until this is done, the model is known by what is followed; afterwards by what was tried."""
        self._followed[name] = fingerprint
        task = self._manager.start_refreshing(name, place)
        self._tasks.add(task)

        def done(ended: "asyncio.Task[None]") -> None:
            self._tasks.discard(ended)
            if self._followed.get(name) is fingerprint:
                del self._followed[name]

        task.add_done_callback(done)

    def _tell(self, whom: str, text: str) -> None:
        if self._told.get(whom) != text:
            self._told[whom] = text
            _log.warning("%s", text)


def _look_at_each(places: Mapping[str, Place]) -> Mapping[str, _Look]:
    found = {}
    for name, place in places.items():
        try:
            found[name] = _Look(place.fingerprint(), place.unfinished())
        except OSError:  # it vanishes just now: the next look will tell
            found[name] = _Look(None, "")
    return found
