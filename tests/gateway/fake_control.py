"""Control of models in memory: notes what it is asked and does what the test says."""

import asyncio
from collections.abc import Sequence

from gateway.control import IndexEntry, VersionState


class FakeControl:
    """Implements `gateway.control.ModelControl`.

    Attributes:
        calls: Every verb with its arguments.
        entries: What the index shows.
        error: What the next verb raises.
        entered: Set while a load waits.
        released: Set it to let loads end; it is set at first.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.entries: Sequence[IndexEntry] = (
            IndexEntry("asleep"),
            IndexEntry("echo", 1, VersionState.UNAVAILABLE, "unloaded"),
            IndexEntry("echo", 2, VersionState.READY),
        )
        self.error: Exception | None = None
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        self.released.set()

    async def index(self) -> Sequence[IndexEntry]:
        """As set."""
        return self.entries

    async def load(self, model: str, override: str | None = None) -> None:
        """Waits until it is released."""
        self.entered.set()
        await self.released.wait()
        self._call("load", model, override)

    async def unload(self, model: str, *, dependents: bool = False) -> None:
        """At once."""
        self._call("unload", model, dependents)

    async def scale(self, model: str, version: int | None, instances: int) -> None:
        """At once."""
        self._call("scale", model, version, instances)

    def _call(self, *call: object) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(call)
