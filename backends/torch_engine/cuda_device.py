"""The device behind torch.cuda: the one CUDA implementation for PyTorch and TensorRT executors.

A worker process sees one GPU, so the device is always ``cuda:0``.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, cast

import numpy as np
import torch
from typing_extensions import override

from backends.errors import LoadError
from backends.torch_engine.arrays import numpy_type, to_tensor, torch_type
from backends.torch_engine.device import Buffer, Bytes, Device, Event, Graph, Stream
from batching.clock import MILLISECOND_NS
from models.inference import Array

logger = logging.getLogger(__name__)

DEVICE = "cuda:0"
_PORTABLE = 1  # cudaHostRegisterPortable
_CAPTURE = threading.Lock()  # PyTorch can record one graph at a time in a process


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
    """A stream of PyTorch's pool."""

    def __init__(self) -> None:
        self.stream: Any = torch.cuda.Stream(device=DEVICE)

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
        return CudaStream()

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
        # thread_local: what other threads allocate or wait for meanwhile must not spoil the recording.
        with (
            _CAPTURE,
            torch.cuda.graph(recorded.graph, pool=pool, stream=cuda_stream, capture_error_mode="thread_local"),
        ):
            work()
        return recorded

    @override
    def pin(self, address: int, nbytes: int) -> bool:
        status = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))
        if status:
            logger.warning("page-locking %d bytes failed (CUDA error %d): batches are copied once more", nbytes, status)
            self._forget_error()
        return not status

    @override
    def unpin(self, address: int) -> None:
        if int(torch.cuda.cudart().cudaHostUnregister(address)):
            self._forget_error()

    @override
    def free_cached(self) -> None:
        torch.cuda.empty_cache()

    def _forget_error(self) -> None:
        """CUDA keeps the error of a failed call for whoever asks next, which would be an innocent model's kernel."""
        with suppress(RuntimeError):
            torch.zeros(1, device=DEVICE).add_(1)


def _raw(buffer: Buffer) -> torch.Tensor:
    return cast("CudaBuffer", buffer).raw()


def _host(array: Array) -> torch.Tensor:
    return to_tensor(array.reshape(-1).view(np.uint8))
