"""What lanes need of an accelerator: streams, events, memory, copies, recorded graphs. No engine is imported here.

Work is put on streams and runs later, in order within a stream; events order it across streams. Whoever puts work on
a stream keeps all memory in it alive, and unwritten, until an event after it has been waited for.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.inference import Array

Bytes = NDArray[np.uint8]
"""Host memory, shape (nbytes,)."""


class Event(Protocol):
    """A mark on a stream; marks can be made again and again, the last one counts."""

    def synchronize(self) -> None:
        """Block, without spinning and without the interpreter lock, until the work before the mark is done."""
        ...

    def elapsed_ns(self, later: "Event") -> int:
        """Device time from this mark to a later one; both have been reached."""
        ...


class Stream(Protocol):
    """A queue of work on the device."""

    @property
    def handle(self) -> int:
        """The stream as engines other than PyTorch take it (a cudaStream_t)."""
        ...

    def record(self, event: Event) -> None:
        """Put a mark after the work so far."""
        ...

    def wait(self, event: Event) -> None:
        """Work from now on begins after the event's last mark. Does not block the caller."""
        ...

    def synchronize(self) -> None:
        """Block until all work on it is done."""
        ...


class Buffer(Protocol):
    """Dense device memory seen as a tensor; it lives as long as somebody refers to it or to a view."""

    @property
    def address(self) -> int:
        """Of the first element, on the device."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""
        ...

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Element type."""
        ...

    @property
    def nbytes(self) -> int:
        """Size of the tensor."""
        ...

    def view(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> "Buffer":
        """The memory's beginning as another tensor, which must fit."""
        ...


class Graph(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Put all of it on the current stream at once; it reads and writes the memory that was recorded."""
        ...


class Device(Protocol):
    """One accelerator. Usable from several threads; which stream is current is each thread's own."""

    def stream(self) -> Stream:
        """One that nobody else uses as long as it lives: what others put on it meanwhile would be recorded, too.

        Raises:
            LoadError: The device has no more of them.
        """
        ...

    def copy_stream(self) -> Stream:
        """One for copies between host and device, which others may use as well."""
        ...

    def event(self) -> Event:
        """A new one, which measures time."""
        ...

    def host_memory(self, nbytes: int) -> Bytes:
        """Page-locked host memory, content undefined."""
        ...

    def memory(self, nbytes: int) -> Buffer:
        """Device memory of shape (nbytes,), uint8, content undefined. Raises OutOfMemoryError of the engine."""
        ...

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Inside, the stream is this thread's current one, on which copies, models and graphs put their work."""
        ...

    def copy_in(self, target: Buffer, source: Array) -> None:
        """Copy a dense host array of the same size, on the current stream; asynchronous if it is page-locked."""
        ...

    def copy_out(self, target: Array, source: Buffer) -> None:
        """Copy to a dense, writable host array of the same size, likewise."""
        ...

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Copy on the device, on the current stream."""
        ...

    def graph_pool(self) -> object:
        """Memory that graphs share which never run at the same time, e.g. those of one instance."""
        ...

    def capture(self, work: Callable[[], None], stream: Stream, pool: object) -> Graph:
        """Record the work that `work` puts on `stream` (then current), without running it.

        Run the same work on that stream before, so that nothing is initialised during the recording. Recordings of one
        process exclude each other; other threads may compute meanwhile. All graphs of a pool use one stream.

        Raises:
            Exception: The work cannot be recorded, above all because it waits for the device. The device is as before.
        """
        ...

    def preparing(self) -> AbstractContextManager[object]:
        """Inside, no other thread of the process is inside: for warm-ups, see `backends.gpu_setup`."""
        ...

    def pin(self, address: int, nbytes: int) -> bool:
        """Page-lock host memory that others allocated, so that copies need no staging. False if it cannot be."""
        ...

    def unpin(self, address: int) -> None:
        """Undo `pin`, before the memory goes away."""
        ...

    def free_cached(self) -> None:
        """Give memory that nobody uses back, after an allocation failed."""
        ...
