"""An executor whose model is in a worker process: one lane of it, seen from the gateway.

Main path: rows are gathered into the inputs' region (`stage`), `run` says where they are, waits for the reply, and
copies the answer out of the outputs' region once.
"""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np  # noqa: TC002 - a module's imports stand in one place

from backends.errors import BackendError, LoadError, OutOfMemoryError, WorkerLostError
from backends.failures import Failure
from backends.process.channels import Channel, EndOfStreamError
from backends.process.child import ChildProcess
from backends.process.messages import (
    REPLIES,
    REQUESTS,
    Close,
    Done,
    LaneFds,
    Load,
    Reply,
    Request,
    Run,
    WarmUp,
)
from backends.process.slot_reader import SlotReader
from backends.process.slots import ProtocolError, Region, SlotWriter, declared_bytes
from models.inference import Array, Tensors
from models.spec import ModelSpec

_DEATH_S = 1.0
"""A socket closes a moment before its process has ended."""


class RemoteExecutor:
    """A `StagingExecutor` that computes in a worker process. Blocks; used by one thread at a time, except `disconnect`.

    Every call raises WorkerLostError, which says why, as soon as the process has ended.

    Args:
        spec: The model version.
        fds: Of this end of the lane; owned from now on.
        process: That the lane is in; ended when it breaks the protocol.

    Raises:
        OSError: The regions cannot be mapped.
    """

    def __init__(self, spec: ModelSpec, fds: LaneFds, process: ChildProcess) -> None:
        self._spec = spec
        self._channel: Channel[Request, Reply] = Channel(socket.socket(fileno=fds.end), REQUESTS, REPLIES)
        self._inputs = Region(fds.inputs)
        self._outputs = Region(fds.outputs)
        self._writer = SlotWriter(self._inputs)
        self._reader = SlotReader(self._outputs)
        self._process = process
        self._in_use = threading.Lock()
        self._is_disconnected = False

    @property
    def is_disconnected(self) -> bool:
        """It is of no use any more."""
        return self._is_disconnected

    def load(self) -> None:
        """Make the model ready to run. Raises LoadError, or whichever error of this package the executor raised."""
        with self._using():
            self._ask(Load())

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run once with each batch size, and make the slot as large as the largest needs."""
        has_rows = self._spec.has_batch_dimension
        size_bytes = declared_bytes(self._spec.inputs, max(sizes, default=0), has_batch_dimension=has_rows)
        with self._using():
            self._reserve(size_bytes)
            self._ask(WarmUp(tuple(sizes), self._inputs.capacity_bytes))

    def stage(self, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """Memory for one input of the next `run`, in the slot; BYTES are copied there later."""
        with self._using(), _as_memory_error():
            return self._writer.stage(name, shape, dtype)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch. The answer is the caller's.

        Raises:
            ExecutionError: The computation failed, or a tensor has elements of no type that can be served.
            OutOfMemoryError: No more shared memory is to be had.
        """
        return self._run(inputs, rows, in_fp32=False)

    def run_fp32(self, inputs: Tensors, rows: int) -> Tensors:
        """Likewise in single precision, where the worker's executor can: the worker refuses to load one that cannot."""
        return self._run(inputs, rows, in_fp32=True)

    def close(self) -> None:
        """Release the model. Safe to call twice; it may be loaded again until the lane is disconnected."""
        if self._is_disconnected:
            return
        try:
            with self._using():
                self._ask(Close())
        except WorkerLostError:
            return  # and all that it held with it

    def disconnect(self) -> None:
        """Give the lane up: a call that waits fails, the worker closes the executor.

        For a model that leaves while its worker stays; a worker that ends disconnects its lanes itself. Safe to call
        from any thread, and twice.
        """
        self._is_disconnected = True
        self._channel.shut_down()
        self._free_if_idle()

    def _run(self, inputs: Tensors, rows: int, *, in_fp32: bool) -> Tensors:
        with self._using():
            with _as_memory_error():
                places = self._writer.write(inputs)
            return self._answer(self._ask(Run(rows, self._inputs.capacity_bytes, places, in_fp32)))

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            with self._in_use:
                if self._is_disconnected:
                    raise self._lost()
                yield
        finally:
            if self._is_disconnected:
                self._free_if_idle()

    def _free_if_idle(self) -> None:
        # Called by whoever disconnects and by whoever ends a call: one of them finds the lock free.
        if self._in_use.acquire(blocking=False):
            try:
                self._channel.close()
                self._writer.close()
                self._reader.close()
            finally:
                self._in_use.release()

    def _ask(self, request: Request) -> Done:
        reply = self._exchange(request)
        if isinstance(reply, Done):
            return reply
        raise reply

    def _exchange(self, request: Request) -> Done | BackendError:
        try:
            self._channel.send(request)
            reply = self._channel.receive()
            return reply.error() if isinstance(reply, Failure) else reply
        except ProtocolError as error:
            raise self._broken(error) from error
        except (EndOfStreamError, OSError) as error:
            raise self._lost() from error

    def _answer(self, reply: Done) -> Tensors:
        try:
            self._outputs.follow(reply.capacity_bytes)
            tensors = self._reader.read(reply.tensors)
        except ProtocolError as error:
            raise self._broken(error) from error
        return {name: array if array.dtype.hasobject else array.copy() for name, array in tensors.items()}

    def _reserve(self, size_bytes: int) -> None:
        try:
            self._inputs.reserve(size_bytes)
        except OSError as error:
            raise LoadError(f"model '{self._spec.name}': no {size_bytes} bytes of shared memory: {error}") from error

    def _broken(self, error: ProtocolError) -> WorkerLostError:
        self._process.kill(f"it sent what no worker sends: {error}")
        return self._lost()

    def _lost(self) -> WorkerLostError:
        """Why nobody answers. A worker that has closed the socket and lives on is ended."""
        if self._is_disconnected and not self._process.ending:
            return WorkerLostError(f"worker '{self._process.name}': model '{self._spec.name}' was taken from it")
        if not self._process.wait(_DEATH_S):
            self._process.kill("it closed a connection of its own")
            self._process.wait(_DEATH_S)
        return self._process.lost


@contextmanager
def _as_memory_error() -> Iterator[None]:
    """The operating system gives no more shared memory: fewer rows may do."""
    try:
        yield
    except OSError as error:
        raise OutOfMemoryError(f"no shared memory for the batch: {error.strerror}") from error
