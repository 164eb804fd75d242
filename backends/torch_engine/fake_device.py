"""An accelerator without hardware, for tests of what is ordered by streams and events.

Nothing runs before somebody waits for it, and then in the least convenient order that the events allow. Code that
forgets to wait reads memory that was never written, every time and not once in a million batches.
"""

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import numpy as np
from typing_extensions import override

from backends.torch_engine.device import Buffer, Bytes, Device, Event, Graph, Stream
from models.inference import Array

Work = Callable[[], None]

WORK_NS = 1_000
"""Device time of each piece of work."""

_UNDEFINED = 0xAB  # in every byte of new memory


class Order(enum.Enum):
    """What runs when somebody waits."""

    ONLY_NEEDED = "what that needs, and nothing else"
    OTHERS_FIRST = "all other streams as far as they can get, then what it needs"


class FakeEvent(Event):
    """A mark on a fake stream."""

    def __init__(self) -> None:
        self.stream: FakeStream | None = None
        self.position = 0
        self.reached_ns = 0

    @override
    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.wait_for(self.position)

    @override
    def elapsed_ns(self, later: Event) -> int:
        return cast("FakeEvent", later).reached_ns - self.reached_ns


class FakeStream(Stream):
    """Work that waits to be needed."""

    def __init__(self, device: "FakeDevice", handle: int) -> None:
        self._device = device
        self._handle = handle
        self._work: list[Work] = []
        self._done = 0

    @property
    @override
    def handle(self) -> int:
        return self._handle

    @override
    def record(self, event: Event) -> None:
        mark = cast("FakeEvent", event)

        def reach() -> None:
            mark.reached_ns = self._device.now_ns

        self.put(reach)
        mark.stream, mark.position = self, len(self._work)

    @override
    def wait(self, event: Event) -> None:
        mark = cast("FakeEvent", event)
        stream, position = mark.stream, mark.position  # as they are now: a later mark of the event does not count
        if stream is not None:
            self.put(lambda: stream.run_until(position))

    @override
    def synchronize(self) -> None:
        self.wait_for(len(self._work))

    def wait_for(self, position: int) -> None:
        """What a host thread does until the first `position` pieces of work are done."""
        with self._device.lock:
            if self._device.order is Order.OTHERS_FIRST:
                for stream in self._device.streams:
                    if stream is not self:
                        stream.run_until()
            self.run_until(position)

    def put(self, work: Work) -> None:
        """Add work."""
        with self._device.lock:
            self._work.append(work)

    def run_until(self, position: int | None = None) -> None:
        """Do the first `position` pieces of work, or all, as far as they are not done."""
        with self._device.lock:
            last = len(self._work) if position is None else position
            while self._done < last:
                work, self._work[self._done] = self._work[self._done], _nothing
                self._done += 1
                work()


class FakeBuffer(Buffer):
    """Host memory that plays device memory.

    Attributes:
        array: The tensor.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    @override
    def address(self) -> int:
        return self.array.ctypes.data

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    @override
    def dtype(self) -> "np.dtype[Any]":
        return self.array.dtype

    @property
    @override
    def nbytes(self) -> int:
        return self.array.nbytes

    @override
    def view(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Buffer:
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return FakeBuffer(self.array.reshape(-1).view(np.uint8)[:count].view(dtype).reshape(shape))


class FakeGraph(Graph):
    """Recorded work."""

    def __init__(self, device: "FakeDevice", work: list[Work]) -> None:
        self._device = device
        self._work = work

    @override
    def replay(self) -> None:
        self._device.replays += 1
        for work in self._work:
            self._device.launch(work)


class FakeDevice(Device):
    """A device whose work is Python functions.

    Attributes:
        order: What runs when somebody waits.
        streams: All that were made.
        lock: Held while work runs.
        now_ns: Device time: it passes with the work that is done.
        replays: Graphs that were replayed.
        staged_bytes: Bytes that copies took from, or to, memory that is not page-locked.
        freed_cache: How often unused memory was to be given back.
        copied_from: Host addresses from which inputs were copied, in order.
        allocations: Sizes of the device memory that was asked for.
    """

    def __init__(self, order: Order = Order.ONLY_NEEDED) -> None:
        self.order = order
        self.streams: list[FakeStream] = []
        self.lock = threading.RLock()
        self.now_ns = 0
        self.replays = 0
        self.staged_bytes = 0
        self.freed_cache = 0
        self.copied_from: list[int] = []
        self.allocations: list[int] = []
        self._current = threading.local()
        self._preparing = threading.RLock()
        self._page_locked: dict[int, int] = {}
        self._host_memory: list[Bytes] = []  # never freed: an address means the same memory for good

    @override
    def stream(self) -> FakeStream:
        self.streams.append(FakeStream(self, len(self.streams) + 1))
        return self.streams[-1]

    @override
    def copy_stream(self) -> FakeStream:
        return self.stream()

    @override
    def event(self) -> FakeEvent:
        return FakeEvent()

    @override
    def host_memory(self, nbytes: int) -> Bytes:
        memory = np.full(nbytes, _UNDEFINED, np.uint8)
        self._host_memory.append(memory)
        self._page_locked[memory.ctypes.data] = nbytes
        return memory

    @override
    def memory(self, nbytes: int) -> FakeBuffer:
        self.allocations.append(nbytes)
        return FakeBuffer(np.full(nbytes, _UNDEFINED, np.uint8))

    @override
    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return self._on(cast("FakeStream", stream).put)

    @override
    def copy_in(self, target: Buffer, source: Array) -> None:
        self._count_staged(source)
        self.copied_from.append(source.ctypes.data)
        self.launch(lambda: _assign(cast("FakeBuffer", target).array, source))

    @override
    def copy_out(self, target: Array, source: Buffer) -> None:
        self._count_staged(target)
        self.launch(lambda: _assign(target, cast("FakeBuffer", source).array))

    @override
    def copy(self, target: Buffer, source: Buffer) -> None:
        self.launch(lambda: _assign(cast("FakeBuffer", target).array, cast("FakeBuffer", source).array))

    @override
    def graph_pool(self) -> object:
        return object()

    @override
    def capture(self, work: Callable[[], None], stream: Stream, pool: object) -> FakeGraph:
        recorded: list[Work] = []
        with self._on(recorded.append):
            work()
        return FakeGraph(self, recorded)

    @override
    def preparing(self) -> AbstractContextManager[object]:
        return self._preparing

    @override
    def pin(self, address: int, nbytes: int) -> bool:
        self._page_locked[address] = nbytes
        return True

    @override
    def unpin(self, address: int) -> None:
        del self._page_locked[address]

    @override
    def free_cached(self) -> None:
        self.freed_cache += 1

    def is_page_locked(self, array: Array) -> bool:
        """Whether the device can copy from and to the array by itself."""
        start, end = array.ctypes.data, array.ctypes.data + array.nbytes
        return any(address <= start and end <= address + nbytes for address, nbytes in self._page_locked.items())

    def launch(self, work: Work) -> None:
        """Put work on the current stream, or into the graph that is recorded in this thread.

        Raises:
            RuntimeError: No stream is current, so that nothing says when the work may run.
        """
        put = getattr(self._current, "put", None)
        if put is None:
            raise RuntimeError("work was launched outside of `on`, expected a current stream")
        put(lambda: self._pass_time(work))

    @contextmanager
    def _on(self, put: Callable[[Work], None]) -> Iterator[None]:
        before = getattr(self._current, "put", None)
        self._current.put = put
        try:
            yield
        finally:
            self._current.put = before

    def _count_staged(self, array: Array) -> None:
        """Real devices copy such memory in two steps and wait meanwhile: right, but rarely what was meant."""
        if not self.is_page_locked(array):
            self.staged_bytes += array.nbytes

    def _pass_time(self, work: Work) -> None:
        self.now_ns += WORK_NS
        work()


def _assign(target: Array, source: Array) -> None:
    target.reshape(-1).view(np.uint8)[:] = source.reshape(-1).view(np.uint8)


def _nothing() -> None:
    """In the place of work that is done, so that its memory is freed."""
