"""What a worker shows of itself without being asked: one shared page that only it writes.

Monotonic nanoseconds are the same in all processes of a machine. Each number is written and read at once, as aligned
64-bit words are, so there are no locks that a dying worker could leave behind.
"""

import mmap
import os
from collections.abc import Sequence

_HEARTBEAT = 0
_WORDS = mmap.PAGESIZE // 8

MAX_LANES = _WORDS - 1
"""Lanes that a worker can have at once."""


class StatusPage:
    """The page: when the worker beat last, and for each lane since when it is busy.

    Args:
        fd: Of the page, as `create_fd` makes it; not needed any more afterwards.
    """

    def __init__(self, fd: int) -> None:
        self._words = memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("q")

    @staticmethod
    def create_fd() -> int:
        """A new page. Raises OSError."""
        fd = os.memfd_create("shoal-status", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        return fd

    @property
    def heartbeat_ns(self) -> int:
        """When the worker beat last; 0 before the first time."""
        return self._words[_HEARTBEAT]

    def beat(self, now_ns: int) -> None:
        """For the worker."""
        self._words[_HEARTBEAT] = now_ns

    def busy_since_ns(self, lanes: Sequence[int]) -> tuple[int, ...]:
        """For each of these lanes, by number from 0, when its running step began, or 0."""
        return tuple(self._words[1 + lane] for lane in lanes)

    def show_busy(self, lane: int, since_ns: int) -> None:
        """For the lane's thread: a step begins; 0 when it has ended."""
        self._words[1 + lane] = since_ns

    def close(self) -> None:
        """Let go of the page. Nothing may follow."""
        self._words.release()
