"""Batches on an accelerator: the copies of one overlap the computation of another.

An instance has one compute stream and usually two lanes. A lane takes one batch at a time: it copies the inputs on a
stream of its own, puts the computation on the instance's stream, copies the outputs on its own stream again and waits.
While it copies, the other lane's computation runs. Orders, by events: a computation begins after its own inputs have
arrived; a copy of outputs after the computation that made them; computations of one instance run one after the other.

Recorded graphs read and write fixed memory that the lanes of an instance share. Inputs are copied there, and outputs
from there to the lane's own memory, on the compute stream together with the replay, so that no other lane's replay can
come in between.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from backends.torch_engine.device import Buffer, Bytes, Device, Event, Graph, Stream
from models.inference import Array, Tensors

Buffers = Mapping[str, Buffer]

_RUNS_BEFORE_RECORDING = 3  # engines choose algorithms, and allocate workspaces, in their first runs


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Memory = TypeVar("Memory", bound=_Sized)


class Program(Protocol):
    """A model on a device."""

    def compute(self, inputs: Buffers, stream: Stream) -> Buffers:
        """Put one batch on the stream, which is current too; returns at once.

        Returns:
            The memory in which the outputs will be. It is new in each call: the last batch's may be on its way still.
        """
        ...

    def for_recording(self) -> "Program":
        """The model to record one graph of. Batches that other programs compute do not change what it replays."""
        ...


class StageTimes(NamedTuple):
    """Device time of the stages of a batch; with those of the host that it had to wait for between two copies."""

    copy_in_ns: int = 0
    compute_ns: int = 0
    copy_out_ns: int = 0

    def plus(self, other: "StageTimes") -> "StageTimes":
        """Sums of both."""
        return StageTimes(*(mine + others for mine, others in zip(self, other, strict=True)))


class Reused(Generic[Memory]):
    """Memory by name that is made once and again only when more is needed, so that all batch sizes share it."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self._allocate = allocate
        self._memory: dict[str, Memory] = {}

    def find(self, name: str) -> Memory | None:
        """What has been made so far."""
        return self._memory.get(name)

    def get(self, name: str, nbytes: int) -> Memory:
        """At least `nbytes`, with what the last user left in it."""
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < nbytes:
            self._memory.pop(name, None)  # freed before the larger one is made
            memory = self._memory[name] = self._allocate(max(1, nbytes))
        return memory


class _Recorded(NamedTuple):
    program: Program  # what it holds is in the graph
    graph: Graph
    inputs: Buffers
    outputs: Buffers


class DeviceInstance:
    """The computing part of an instance, shared by its lanes.

    Args:
        device: Where it runs.
        program: The model.
    """

    def __init__(self, device: Device, program: Program) -> None:
        self._device = device
        self._program = program
        self._stream = device.stream()
        self._lock = threading.Lock()  # what one lane puts on the stream stays together
        self._graphs: dict[object, _Recorded] = {}
        self._graph_pool: object = None
        self._graph_inputs: Reused[Buffer] = Reused(device.memory)

    def compute(self, inputs: Buffers, own: Reused[Buffer], arrived: Event, begun: Event, done: Event) -> Buffers:
        """Put a batch on the stream; returns at once.

        Args:
            inputs: In the lane's memory, there once `arrived` is reached.
            own: The lane's memory for outputs.
            arrived: See above.
            begun: Marked when the computation begins.
            done: Marked when the outputs are there.
        """
        with self._lock, self._device.on(self._stream):
            self._stream.wait(arrived)
            self._stream.record(begun)
            recorded = self._graphs.get(_key(inputs))
            outputs = (
                self._program.compute(inputs, self._stream) if recorded is None else self._replay(recorded, inputs, own)
            )
            self._stream.record(done)
        return outputs

    def record(self, inputs: Buffers) -> None:
        """Record the computation for inputs of these shapes, which have arrived; later batches of them replay it.

        Record large shapes first: the memory of smaller ones is then part of theirs.
        """
        with self._lock:
            if _key(inputs) in self._graphs:
                return
            program = self._program.for_recording()
            try:
                fixed = self._run_fixed(program, inputs)
            finally:
                self._stream.synchronize()
            self._graph_pool = self._graph_pool or self._device.graph_pool()
            outputs: dict[str, Buffer] = {}
            graph = self._device.capture(
                lambda: outputs.update(program.compute(fixed, self._stream)), self._stream, self._graph_pool
            )
            self._graphs[_key(inputs)] = _Recorded(program, graph, fixed, outputs)

    def synchronize(self) -> None:
        """Wait for everything on the stream."""
        self._stream.synchronize()

    def _run_fixed(self, program: Program, inputs: Buffers) -> Buffers:
        """Run what is to be recorded; returns its inputs, in memory that stays."""
        with self._device.on(self._stream):
            fixed = {
                name: _like(buffer, self._graph_inputs.get(name, buffer.nbytes)) for name, buffer in inputs.items()
            }
            for name, buffer in inputs.items():
                self._device.copy(fixed[name], buffer)
            for _ in range(_RUNS_BEFORE_RECORDING):
                program.compute(fixed, self._stream)
        return fixed

    def _replay(self, recorded: _Recorded, inputs: Buffers, own: Reused[Buffer]) -> Buffers:
        for name, buffer in inputs.items():
            self._device.copy(recorded.inputs[name], buffer)
        recorded.graph.replay()
        outputs = {name: _like(buffer, own.get(name, buffer.nbytes)) for name, buffer in recorded.outputs.items()}
        for name, buffer in recorded.outputs.items():
            self._device.copy(outputs[name], buffer)
        return outputs


class DeviceLane:
    """Takes batches of an instance, one at a time, in one thread at a time.

    Args:
        device: Where it runs.
        instance: Computes.
    """

    def __init__(self, device: Device, instance: DeviceInstance) -> None:
        self._device = device
        self._instance = instance
        self._stream = device.copy_stream()
        self._marks = _Marks(device)
        self._host_inputs: Reused[Bytes] = Reused(device.host_memory)
        self._host_outputs: Reused[Bytes] = Reused(device.host_memory)
        self._inputs: Reused[Buffer] = Reused(device.memory)
        self._outputs: Reused[Buffer] = Reused(device.memory)
        self._pinned: dict[int, int] = {}  # sizes by address
        self.last_times = StageTimes()
        self.total_times = StageTimes()

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one dense batch; the outputs are arrays of their own. Raises what the engine raises.

        When it returns or raises, nothing reads or writes the inputs any more.
        """
        try:
            outputs = self._instance.compute(self._copied_in(inputs), self._outputs, *self._marks.of_computation)
            arrays = self._copied_out(outputs)
        except BaseException:
            # What is on the streams still uses memory of the batch. The first error is the one that says why.
            for stream in (self._stream, self._instance):
                with suppress(Exception):
                    stream.synchronize()
            raise
        self.last_times = self._marks.times()
        self.total_times = self.total_times.plus(self.last_times)
        return {name: array.copy() for name, array in arrays.items()}

    def record(self, inputs: Tensors) -> None:
        """Record the computation of a batch of these shapes as a graph."""
        buffers = self._copied_in(inputs)
        self._stream.synchronize()
        self._instance.record(buffers)

    def stage(self, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """Page-locked memory for an input of the next batch."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._host_inputs.get(name, nbytes)[:nbytes].view(dtype).reshape(shape)

    def pin(self, address: int, nbytes: int) -> None:
        """Page-lock memory in which inputs will come, so that they are copied from there to the device."""
        if self._device.pin(address, nbytes):
            self._pinned[address] = nbytes

    def unpin(self, address: int) -> None:
        """Undo `pin`; harmless for memory that is not locked."""
        if self._pinned.pop(address, None) is not None:
            self._device.unpin(address)

    def close(self) -> None:
        """Unlock the memory of others."""
        for address in list(self._pinned):
            self.unpin(address)

    def _copied_in(self, inputs: Tensors) -> Buffers:
        buffers = {}
        self._stream.record(self._marks.in_begun)
        with self._device.on(self._stream):
            for name, array in inputs.items():
                source = array if self._is_page_locked(name, array) else self._staged(name, array)
                buffers[name] = self._inputs.get(name, array.nbytes).view(array.shape, array.dtype)
                self._device.copy_in(buffers[name], source)
        self._stream.record(self._marks.arrived)
        return buffers

    def _staged(self, name: str, array: Array) -> Array:
        staged = self.stage(name, array.shape, array.dtype)
        np.copyto(staged, array, casting="no")
        return staged

    def _is_page_locked(self, name: str, array: Array) -> bool:
        if not array.flags.c_contiguous:
            return False
        start, end = array.ctypes.data, array.ctypes.data + array.nbytes
        staged = self._host_inputs.find(name)
        if staged is not None and start == staged.ctypes.data and array.nbytes <= staged.nbytes:
            return True
        return any(address <= start and end <= address + nbytes for address, nbytes in self._pinned.items())

    def _copied_out(self, outputs: Buffers) -> dict[str, Array]:
        self._stream.wait(self._marks.done)
        self._stream.record(self._marks.out_begun)
        arrays: dict[str, Array] = {}
        with self._device.on(self._stream):
            for name, buffer in outputs.items():
                memory = self._host_outputs.get(name, buffer.nbytes)
                arrays[name] = memory[: buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
                self._device.copy_out(arrays[name], buffer)
        self._stream.record(self._marks.out_done)
        self._marks.out_done.synchronize()
        return arrays


class _Marks:
    """The events of a lane, reused by every batch."""

    def __init__(self, device: Device) -> None:
        self.in_begun = device.event()
        self.arrived = device.event()
        self.begun = device.event()
        self.done = device.event()
        self.out_begun = device.event()
        self.out_done = device.event()

    @property
    def of_computation(self) -> tuple[Event, Event, Event]:
        return self.arrived, self.begun, self.done

    def times(self) -> StageTimes:
        return StageTimes(
            copy_in_ns=self.in_begun.elapsed_ns(self.arrived),
            compute_ns=self.begun.elapsed_ns(self.done),
            copy_out_ns=self.out_begun.elapsed_ns(self.out_done),
        )


def _key(inputs: Buffers) -> object:
    return frozenset((name, buffer.shape, buffer.dtype) for name, buffer in inputs.items())


def _like(buffer: Buffer, memory: Buffer) -> Buffer:
    return memory.view(buffer.shape, buffer.dtype)
