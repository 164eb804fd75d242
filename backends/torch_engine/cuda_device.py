"""The device behind torch.cuda: the one CUDA implementation for PyTorch and TensorRT executors.

A worker process sees one GPU, so the device is always ``cuda:0``.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, cast

import numpy as np
import torch
from typing_extensions import override

from backends.errors import LoadError
from backends.gpu_setup import PREPARING
from backends.torch_engine.arrays import numpy_type, to_tensor, torch_type
from backends.torch_engine.device import Buffer, Bytes, Device, Event, Graph, Stream
from batching.clock import MILLISECOND_NS
from models.inference import Array

logger = logging.getLogger(__name__)

DEVICE = "cuda:0"
_PORTABLE = 1  # cudaHostRegisterPortable
_POOL_STREAMS = 32  # of each priority; PyTorch hands them out in turn, whether or not they are in use
_COPY_PRIORITY = -1  # streams of their own pool, which compute nothing
# PyTorch records one graph at a time in a process, and fails with an internal error if its cache is emptied meanwhile.
_CAPTURE = threading.Lock()
_END_ALLOCATIONS = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")  # newer and older PyTorch


class CudaEvent(Event):
    """Waiting for it sleeps: a spinning thread would burn the core that decodes the next images."""

    def __init__(self) -> None:
        self.event: Any = torch.cuda.Event(enable_timing=True, blocking=True)

    @override
    def synchronize(self) -> None:
        self.event.synchronize()

    @override
    def elapsed_ns(self, later: Event) -> int:
        elapsed_ms: float = self.event.elapsed_time(cast("CudaEvent", later).event)
        return round(elapsed_ms * MILLISECOND_NS)


class CudaStream(Stream):
    """A stream of PyTorch's pools.

    Args:
        priority: 0, or below for a higher one.
    """

    def __init__(self, priority: int = 0) -> None:
        self.stream: Any = torch.cuda.Stream(device=DEVICE, priority=priority)

    @property
    @override
    def handle(self) -> int:
        return int(self.stream.cuda_stream)

    @override
    def record(self, event: Event) -> None:
        cast("CudaEvent", event).event.record(self.stream)

    @override
    def wait(self, event: Event) -> None:
        self.stream.wait_event(cast("CudaEvent", event).event)

    @override
    def synchronize(self) -> None:
        self.stream.synchronize()


class CudaBuffer(Buffer):
    """A dense tensor on the GPU.

    Attributes:
        tensor: Contiguous.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    @override
    def address(self) -> int:
        return int(self.tensor.data_ptr())

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    @override
    def dtype(self) -> "np.dtype[Any]":
        return numpy_type(self.tensor.dtype)

    @property
    @override
    def nbytes(self) -> int:
        return int(self.tensor.numel()) * int(self.tensor.element_size())

    @override
    def view(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Buffer:
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return CudaBuffer(self.raw()[:count].view(torch_type(dtype)).view(shape))

    def raw(self) -> torch.Tensor:
        """Its bytes, shape (nbytes,)."""
        return self.tensor.reshape(-1).view(torch.uint8)


_streams: "weakref.WeakValueDictionary[int, CudaStream]" = weakref.WeakValueDictionary()  # by handle, those in use
_streams_lock = threading.Lock()
_failed: "list[CudaGraph]" = []  # recordings, see `_give_up`


class CudaGraph(Graph):
    """Recorded kernels."""

    def __init__(self) -> None:
        self.graph: Any = torch.cuda.CUDAGraph()

    @override
    def replay(self) -> None:
        self.graph.replay()


class CudaDevice(Device):
    """The only GPU that this process sees.

    Raises:
        LoadError: There is none that this PyTorch can use; says which build is installed.
    """

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise LoadError(
                f"PyTorch {torch.__version__} (CUDA {torch.version.cuda or 'not built in'}) finds no GPU; check the "
                "driver with nvidia-smi, or use kind: KIND_CPU"
            )
        torch.cuda.init()

    @override
    def stream(self) -> Stream:
        with _streams_lock:
            for _ in range(_POOL_STREAMS):
                stream = CudaStream()
                if _streams.setdefault(stream.handle, stream) is stream:
                    return stream
        raise LoadError(
            f"all {_POOL_STREAMS} streams of the GPU are in use, one for each instance; expected fewer instances on it"
        )

    @override
    def copy_stream(self) -> Stream:
        return CudaStream(_COPY_PRIORITY)

    @override
    def event(self) -> Event:
        return CudaEvent()

    @override
    def host_memory(self, nbytes: int) -> Bytes:
        return cast("Bytes", torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy())

    @override
    def memory(self, nbytes: int) -> Buffer:
        return CudaBuffer(torch.empty(nbytes, dtype=torch.uint8, device=DEVICE))

    @override
    def on(self, stream: Stream) -> AbstractContextManager[object]:
        return cast("AbstractContextManager[object]", torch.cuda.stream(cast("CudaStream", stream).stream))

    @override
    def copy_in(self, target: Buffer, source: Array) -> None:
        _raw(target).copy_(_host(source), non_blocking=True)

    @override
    def copy_out(self, target: Array, source: Buffer) -> None:
        _host(target).copy_(_raw(source), non_blocking=True)

    @override
    def copy(self, target: Buffer, source: Buffer) -> None:
        _raw(target).copy_(_raw(source), non_blocking=True)

    @override
    def graph_pool(self) -> object:
        return torch.cuda.graph_pool_handle()

    @override
    def capture(self, work: Callable[[], None], stream: Stream, pool: object) -> Graph:
        recorded = CudaGraph()
        cuda_stream = cast("CudaStream", stream).stream
        # `on`, because a recording that fails leaves its stream current. thread_local: what other threads allocate or
        # wait for meanwhile must not spoil the recording.
        with _CAPTURE, self.on(stream):
            try:
                with torch.cuda.graph(recorded.graph, pool=pool, stream=cuda_stream, capture_error_mode="thread_local"):
                    work()
            except BaseException:
                _give_up(recorded, pool)
                raise
        return recorded

    @override
    def preparing(self) -> AbstractContextManager[object]:
        return PREPARING

    @override
    def pin(self, address: int, nbytes: int) -> bool:
        with _CAPTURE:  # the driver may wait for the device
            status = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))
        if status:
            logger.warning("page-locking %d bytes failed (CUDA error %d): batches are copied once more", nbytes, status)
            self._forget_error()
        return not status

    @override
    def unpin(self, address: int) -> None:
        with _CAPTURE:
            status = int(torch.cuda.cudart().cudaHostUnregister(address))
        if status:
            self._forget_error()

    @override
    def free_cached(self) -> None:
        with _CAPTURE:
            torch.cuda.empty_cache()

    def _forget_error(self) -> None:
        """CUDA keeps the error of a failed call for whoever asks next, which would be an innocent model's kernel."""
        with suppress(RuntimeError):
            torch.zeros(1, device=DEVICE).add_(1)


def _give_up(recorded: CudaGraph, pool: object) -> None:
    """After a recording that failed: PyTorch would take it to go on, and never free memory in this process again.

    `CUDAGraph::capture_end` raises what CUDA reports before it tells the allocator of device memory. This is what it
    would tell; an error means that it got so far. That of host memory cannot be told, and keeps the graph's address.
    """
    end = next(getattr(torch._C, name) for name in _END_ALLOCATIONS if hasattr(torch._C, name))  # noqa: SLF001 - no other way
    with suppress(RuntimeError):
        end(torch.cuda.current_device(), pool)
    recorded.graph.reset()
    _failed.append(recorded)


def _raw(buffer: Buffer) -> torch.Tensor:
    return cast("CudaBuffer", buffer).raw()


def _host(array: Array) -> torch.Tensor:
    return to_tensor(array.reshape(-1).view(np.uint8))
