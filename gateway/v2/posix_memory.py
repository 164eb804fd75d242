"""A piece of POSIX shared memory that a client has made.

A client may cut its memory off at any moment, and touching a mapping of what is gone kills the process. So nothing is
mapped here: `pread` and `pwrite` on the descriptor answer with an error instead, at the price of one copy.
"""

import errno
import os
import stat
import weakref
from typing import NamedTuple

from gateway.errors import InvalidRegionError, RegionFailedError

_DIRECTORY = "/dev/shm"  # noqa: S108 - where POSIX shared memory is on Linux
UNSIGNED = 1 << 64
"""Offsets and sizes are below."""


class Region(NamedTuple):
    """What was registered.

    Attributes:
        name: What requests call it.
        key: Name of the shared memory, as the client spelled it.
        offset: Where in the shared memory the region begins, bytes.
        size_bytes: Its size.
    """

    name: str
    key: str
    offset: int
    size_bytes: int


class PosixMemory:
    """One region's descriptor. It is closed when nobody has it any more, so whoever uses it cannot lose it."""

    __slots__ = ("__weakref__", "_fd", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self._fd = _open(region.key)
        weakref.finalize(self, os.close, self._fd)

    def total_bytes(self) -> int:
        """Size of the shared memory now."""
        return os.fstat(self._fd).st_size

    def check(self, offset: int, size_bytes: int) -> None:
        """Raise InvalidRegionError unless these bytes are inside the region, and the shared memory is still so long."""
        region = self.region
        if offset >= region.size_bytes:
            raise InvalidRegionError(f"Invalid offset for shared memory region: '{region.name}'")
        if offset + size_bytes >= UNSIGNED:
            raise InvalidRegionError(
                f"Integer overflow detected: byte_size ({size_bytes}) + offset ({offset}) exceeds maximum value "
                f"({UNSIGNED - 1}) for region '{region.name}'"
            )
        is_inside = 0 < offset + size_bytes <= region.size_bytes
        if not is_inside or region.offset + offset + size_bytes > self.total_bytes():
            raise self._out_of_bounds()

    def _out_of_bounds(self) -> InvalidRegionError:
        return InvalidRegionError(f"Invalid offset + byte size for shared memory region: '{self.region.name}'")

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Bytes that have been checked. Raises InvalidRegionError when they have been cut off since."""
        position = self.region.offset + offset
        data = os.pread(self._fd, size_bytes, position)
        while len(data) < size_bytes:  # Linux reads 2 GiB at a time
            more = os.pread(self._fd, size_bytes - len(data), position + len(data))
            if not more:
                raise self._out_of_bounds()
            data += more
        return data

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Put bytes into the region. Raises InvalidRegionError and RegionFailedError."""
        if not data:
            return
        self.check(offset, len(data))  # so that memory that was cut off does not grow again
        left, position = memoryview(data), self.region.offset + offset
        try:
            while left:
                written = os.pwrite(self._fd, left, position)
                left, position = left[written:], position + written
        except OSError as error:  # a page that the client never touched, and no memory left for it
            raise RegionFailedError(
                f"Unable to write shared memory region: '{self.region.name}': {os.strerror(error.errno or errno.EIO)}"
            ) from None


def _open(key: str) -> int:
    """A descriptor of the shared memory. One text for all reasons: what else is in the directory is nobody's business.

    Raises:
        RegionFailedError: It cannot be opened.
    """
    name = key.lstrip("/")  # as the C library has it
    refusal = RegionFailedError(f"Unable to open shared memory region: '{key}'")
    if "/" in name or name in ("", ".", ".."):
        raise refusal
    try:
        fd = os.open(f"{_DIRECTORY}/{name}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        raise refusal from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise refusal
    return fd
