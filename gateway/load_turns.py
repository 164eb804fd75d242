"""How many models are loaded at once, without letting one that hangs keep the others waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LoadTurns:
    """At most `count` loads begin at once; one that takes long gives its turn to the next and goes on beside it.

    Args:
        count: Loads at once, at least 1.
        patience_s: After which a load counts no longer.
    """

    def __init__(self, count: int, patience_s: float = 5.0) -> None:
        self._turns = asyncio.Semaphore(count)
        self._patience_s = patience_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block, or sooner."""
        await self._turns.acquire()
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(self._patience_s, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
