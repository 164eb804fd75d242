"""Decoding of encoded images, away from the event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from models.images.decode import decode
from models.images.header import ImageLimits
from models.inference import Array
from models.preprocessing import Preprocessing


class Decoder(Protocol):
    """Turns one encoded image into one row, as a model version declares it."""

    async def decode(self, data: bytes, how: Preprocessing) -> Array:
        """The row, without batch dimension. May be cancelled.

        Raises:
            ImageError: The image cannot be used; says what was found.
        """
        ...


class ThreadDecoder:
    """Decodes in a fixed number of threads; Pillow releases the GIL. What waits here is bounded by admission.

    Args:
        threads: As many as there are cores.
        limits: Limits of one image, checked in its header.
    """

    def __init__(self, threads: int, limits: ImageLimits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._limits = limits

    async def decode(self, data: bytes, how: Preprocessing) -> Array:
        """See `Decoder`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, decode, data, how, self._limits)

    def close(self) -> None:
        """Finish what is being decoded; forget what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)
