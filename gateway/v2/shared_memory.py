"""Regions of shared memory that clients have registered for their tensors: what both v2 surfaces know of it."""

import errno
import mmap
import os
import threading
from typing import NoReturn

from gateway.errors import (
    InvalidRegionError,
    RegionExistsError,
    RegionFailedError,
    RequestTooLargeError,
    SharedMemoryOffError,
    UnknownRegionError,
)
from gateway.v2.posix_memory import UNSIGNED, PosixMemory, Region

INLINE_BYTES = 1 << 20
"""More than this is copied in a thread: it takes longer than the event loop should."""

MAX_REGIONS = 1024
"""Each has a descriptor, and a server without free ones could not accept connections."""

MAX_NAME_LENGTH = 1024
_RESERVED_PREFIX = "triton_python_backend_shm_region_"


class RegionReader:
    """Reads the regions that one request names, and bounds how much that is altogether."""

    def __init__(self, memory: "SharedMemory", limit_bytes: int) -> None:
        self._memory = memory
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes

    def read(self, name: str, offset: int, size_bytes: int) -> bytes:
        """A copy of `size_bytes` bytes, `offset` bytes after the start of the region.

        Raises:
            UnknownRegionError: No such region.
            InvalidRegionError: The bytes are not inside it, or its memory was cut off.
            RequestTooLargeError: The request reads more than the limit.
        """
        memory = self._memory.find(name)
        memory.check(offset, size_bytes)
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            found = f"size of {self._limit_bytes - self._left_bytes} bytes in shared memory"
            raise RequestTooLargeError(found=found, limit_bytes=self._limit_bytes)
        return memory.read(offset, size_bytes)


class RegionOutput:
    """Where one output goes. It stays usable if the region is unregistered meanwhile."""

    __slots__ = ("_limit_bytes", "_memory", "_offset")

    def __init__(self, memory: PosixMemory, offset: int, limit_bytes: int) -> None:
        memory.check(offset, limit_bytes)
        self._memory = memory
        self._offset = offset
        self._limit_bytes = limit_bytes

    def write(self, data: memoryview | bytes, output: str) -> None:
        """Put the output `output` there.

        Args:
            data: All its bytes, row-major.
            output: Its name, for the error.

        Raises:
            RegionFailedError: There is not enough room, or no memory behind it.
            InvalidRegionError: The memory was cut off.
        """
        if len(data) > self._limit_bytes:
            raise RegionFailedError(
                f"shared memory size specified with the request for output '{output}' ({self._limit_bytes} bytes) "
                f"should be at least {len(data)} bytes to hold the results"
            )
        self._memory.write(self._offset, data)


class SharedMemory:
    """The registered regions. May be used by several threads.

    Args:
        is_enabled: Whether clients may register any: they could name whatever this process may write in `/dev/shm`.
        max_read_bytes: Most bytes that one request reads.
    """

    def __init__(self, *, is_enabled: bool, max_read_bytes: int = 64 << 20) -> None:
        self._is_enabled = is_enabled
        self._max_read_bytes = max_read_bytes
        self._lock = threading.Lock()  # of changes; a look-up in the dictionary needs none
        self._memories: dict[str, PosixMemory] = {}
        self._largest_bytes = 0

    @property
    def is_slow(self) -> bool:
        """Whether a region is so large that reading it would hold up the event loop."""
        return self._largest_bytes > INLINE_BYTES

    def register(self, name: str, key: str, offset: int, size_bytes: int) -> None:
        """Let requests use `size_bytes` bytes of the shared memory `key` from `offset` on, as the region `name`.

        Args:
            name: At most `MAX_NAME_LENGTH` characters.
            key: Name of the shared memory, with or without slashes before it.
            offset: A multiple of the page size.
            size_bytes: At least 1.

        Raises:
            SharedMemoryOffError: Clients may not.
            RegionExistsError: There is one of this name.
            RegionFailedError: There is no such shared memory, or none that may be used.
            InvalidRegionError: It is shorter than said, or a limit is reached.
        """
        self.check_enabled()
        region = Region(name, key, offset, size_bytes)
        _check_names(region)
        with self._lock:
            self._check_new(name)
            if len(self._memories) >= MAX_REGIONS:
                raise _refused(region, f"found {MAX_REGIONS} regions, expected fewer: unregister some")
            memory = PosixMemory(region)
            _check_size(region, memory.total_bytes())
            self._memories[name] = memory
            self._largest_bytes = max(self._largest_bytes, size_bytes)

    def unregister(self, name: str | None) -> None:
        """Forget one region, or all. Unknown names are no error; requests that use it already are not disturbed.

        Raises:
            SharedMemoryOffError: Clients may register none.
        """
        self.check_enabled()
        with self._lock:
            if name is None:
                self._memories.clear()
            else:
                self._memories.pop(name, None)
            self._largest_bytes = max((memory.region.size_bytes for memory in self._memories.values()), default=0)

    def status(self, name: str | None) -> list[Region]:
        """One region, or all, by name. Raises UnknownRegionError."""
        if name is None:
            with self._lock:
                return sorted(memory.region for memory in self._memories.values())
        memory = self._memories.get(name)
        if memory is None:
            raise UnknownRegionError(f"Unable to find system shared memory region: '{name}'")
        return [memory.region]

    def reader(self) -> RegionReader:
        """What reads the inputs of one request."""
        return RegionReader(self, self._max_read_bytes)

    def output(self, name: str, offset: int, limit_bytes: int) -> RegionOutput:
        """Where an output of at most `limit_bytes` bytes shall go.

        Raises:
            UnknownRegionError: No such region.
            InvalidRegionError: The bytes are not inside it, or its memory was cut off.
        """
        return RegionOutput(self.find(name), offset, limit_bytes)

    def find(self, name: str) -> PosixMemory:
        """The region's memory. Raises UnknownRegionError."""
        memory = self._memories.get(name)
        if memory is None:
            raise UnknownRegionError(f"Unable to find shared memory region: '{name}'")
        return memory

    def check_enabled(self) -> None:
        """Raise SharedMemoryOffError unless clients may register and unregister."""
        if not self._is_enabled:
            raise SharedMemoryOffError

    def register_cuda(self, name: str) -> NoReturn:
        """Refuse the memory of a GPU, as Triton does on a machine without one.

        Raises:
            SharedMemoryOffError: Clients may register none.
            RegionExistsError: There is a region of this name.
            InvalidRegionError: In all other cases.
        """
        self.check_enabled()
        self._check_new(name)
        raise InvalidRegionError("failed to register shared memory region: invalid args")

    def cuda_status(self, name: str | None) -> list[NoReturn]:
        """The regions on GPUs: none. Raises UnknownRegionError when one is asked for by name."""
        if name is None:
            return []
        if name in self._memories:
            raise UnknownRegionError(
                f"The region named '{name}' is registered as system shared memory, not CUDA shared memory"
            )
        raise UnknownRegionError(f"Unable to find cuda shared memory region: '{name}'")

    def _check_new(self, name: str) -> None:
        if name in self._memories:
            raise RegionExistsError(f"shared memory region '{name}' already in manager")


def _check_names(region: Region) -> None:
    if region.key.lstrip("/").startswith(_RESERVED_PREFIX):
        raise InvalidRegionError(
            f"cannot register shared memory region '{region.name}' with key '{region.key}' as the key contains the "
            f"reserved prefix '{_RESERVED_PREFIX}'"
        )
    if len(region.name) > MAX_NAME_LENGTH:
        raise _refused(region, f"found a name of {len(region.name)} characters, expected at most {MAX_NAME_LENGTH}")


def _check_size(region: Region, total_bytes: int) -> None:
    """Refuse what does not fit as Triton does, which adds in 64 bits and then lets the system map the region."""
    end = region.offset + region.size_bytes
    if end % UNSIGNED > total_bytes:
        raise _refused(region, "invalid args")
    if region.size_bytes == 0 or region.offset % mmap.PAGESIZE:
        raise _refused(region, f"unable to process address space{os.strerror(errno.EINVAL)}")
    if end > total_bytes:
        raise _refused(region, f"unable to process address space{os.strerror(errno.ENOMEM)}")


def _refused(region: Region, reason: str) -> InvalidRegionError:
    return InvalidRegionError(f"failed to register shared memory region '{region.name[:MAX_NAME_LENGTH]}': {reason}")
