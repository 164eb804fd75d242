"""One lane in a worker process: a thread that does with its executor what the gateway asks for."""

import logging
import os
import socket
import threading
from collections.abc import Callable

from backends.errors import ExecutionError, LoadError
from backends.failures import Failure
from backends.ports import Executor, PreciseExecutor
from backends.process.channels import Channel, EndOfStreamError
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
from backends.process.pinning import PinnedRegion
from backends.process.slot_reader import SlotReader
from backends.process.slots import Region, SlotWriter, declared_bytes
from batching.clock import Clock
from models.inference import Tensors
from models.spec import ModelSpec

logger = logging.getLogger(__name__)


class WorkerLane:
    """Serves until the gateway closes the lane, then closes its executor.

    Args:
        spec: The model version.
        executor: Used by this lane's thread only.
        fds: Of this end of the lane; owned from now on.
        show_busy: Told the time when a step begins, and 0 when it has ended.
        clock: Says the time.
        on_end: Called at the end of the thread.
    """

    def __init__(
        self,
        spec: ModelSpec,
        executor: Executor,
        fds: LaneFds,
        clock: Clock,
        show_busy: Callable[[int], None],
        on_end: Callable[[], object],
    ) -> None:
        self._spec = spec
        self._executor = executor
        self._channel: Channel[Reply, Request] = Channel(socket.socket(fileno=fds.end), REPLIES, REQUESTS)
        self._inputs = Region(fds.inputs)
        self._pinned = PinnedRegion(self._inputs, executor)
        self._outputs = Region(fds.outputs)
        self._reader = SlotReader(self._inputs)
        self._writer = SlotWriter(self._outputs)
        self._clock = clock
        self._show_busy = show_busy
        self._on_end = on_end
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=f"lane of {spec.name}", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError where none can be had."""
        self._thread.start()

    def leave(self) -> None:
        """Answer what has been asked, then end."""
        self._channel.shut_down(socket.SHUT_RD)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                self._channel.send(self._reply(self._channel.receive()))
        except (EndOfStreamError, OSError):
            return  # the gateway wants no more of this lane
        finally:
            self._release()
            self._on_end()

    def _reply(self, request: Request) -> Reply:
        self._show_busy(self._clock.now_ns())
        try:
            return self._do(request)
        except BaseException as error:  # noqa: BLE001 - SystemExit from model code too is an answer, not the end
            return Failure.of(error, ExecutionError if isinstance(request, Run) else LoadError)
        finally:
            self._end_if_forked()
            self._show_busy(0)

    def _do(self, request: Request) -> Done:
        match request:
            case Load():
                self._executor.load()
            case WarmUp():
                self._warm_up(request)
            case Run():
                return self._run(request)
            case Close():
                self._pinned.unpin()
                self._executor.close()
        return Done()

    def _warm_up(self, request: WarmUp) -> None:
        self._pinned.follow(request.capacity_bytes)
        has_rows = self._spec.has_batch_dimension
        largest = max(request.sizes, default=0)
        self._outputs.reserve(declared_bytes(self._spec.outputs, largest, has_batch_dimension=has_rows))
        self._executor.warm_up(request.sizes)

    def _run(self, request: Run) -> Done:
        self._pinned.follow(request.capacity_bytes)
        try:
            outputs = self._chosen(request)(self._reader.read(request.tensors), request.rows)
        finally:
            self._end_if_forked()
        places = self._writer.write(outputs)
        return Done(self._outputs.capacity_bytes, places)

    def _chosen(self, request: Run) -> Callable[[Tensors, int], Tensors]:
        if not request.in_fp32:
            return self._executor.run
        if not isinstance(self._executor, PreciseExecutor):
            raise ExecutionError(f"model '{self._spec.name}': its executor cannot compute in fp32")
        return self._executor.run_fp32

    def _end_if_forked(self) -> None:
        # A child that model code has forked came back from it: only the parent answers on what both of them have open.
        if os.getpid() != self._pid:
            os._exit(0)

    def _release(self) -> None:
        try:
            self._pinned.unpin()
            self._executor.close()
        except BaseException:
            logger.exception("model '%s': the executor could not be closed", self._spec.name)
        self._channel.close()
        self._reader.close()
        self._writer.close()
