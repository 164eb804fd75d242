"""A loaded version in service, which knows how many requests use it."""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType

from gateway.answering import Answering
from models.spec import ModelSpec


class Hosted:
    """A context manager: within its block the version is leased, and so is not closed.

    Args:
        served: What answers.
        resources: Closed when it has been taken out of service.
    """

    def __init__(self, served: Answering, resources: AsyncExitStack) -> None:
        self.served = served
        self._resources = resources
        self._leases = 0
        self._unused: asyncio.Event | None = None  # there is one while somebody waits for the last lease to end

    @property
    def spec(self) -> ModelSpec:
        """What is served."""
        return self.served.spec

    def lease(self) -> Answering:
        """What the block of the context manager does at its begin, for who has no block."""
        self._leases += 1
        return self.served

    def release(self) -> None:
        """The end of a lease."""
        self._leases -= 1
        if not self._leases and self._unused is not None:
            self._unused.set()

    def __enter__(self) -> Answering:
        return self.lease()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    async def retire(self) -> None:
        """Wait until nobody uses it any more, and close it. Who might still find it has to be told before."""
        self._unused = asyncio.Event()
        if self._leases:
            await self._unused.wait()
        try:
            await self.served.drain()
        finally:
            await self._resources.aclose()

    async def aclose(self) -> None:
        """Close it at once: what it holds is answered with an error."""
        await self._resources.aclose()
