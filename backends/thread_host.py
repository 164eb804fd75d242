"""An instance that executes batches in one thread of its own.

Main path: `execute` puts the batch on the thread's queue (one hop), the thread gathers, runs and scatters, and hands
the answer to `_answer` on the loop (one hop back). Counters are kept by `_answer`, so only the loop touches them.
"""

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from backends.errors import BackendError, ExecutionError, InstanceClosedError, LoadError
from backends.gather import dense, gather, padded_rows, rows_of, scatter
from backends.ports import Executor
from batching.clock import Clock
from batching.ports import BatchResult, BatchTimes, InstanceStatistics
from models.inference import Tensors
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
Error = TypeVar("Error", bound=BackendError)

# An error is a value here, not a future's exception: one that nobody waits for any more must not be logged as lost.
_Answer = BatchResult[Tensors] | BackendError


@dataclass(slots=True)
class _Batch:
    """One batch on its way; the thread fills in the numbers, the loop reads them afterwards."""

    payloads: Sequence[Tensors]
    reply: asyncio.Future[_Answer]
    rows: int = 0
    executed_rows: int = 0
    busy_ns: int = 0


class ThreadInstance:
    """Executes batches of one model version in order, one at a time, in a thread that it owns.

    Belongs to one event loop, the one that called `start`. The thread is the only one that calls the executor. Of the
    statistics, `executions` counts failed batches too.

    Args:
        name: Unique within the pool; also names the thread.
        device: Where the executor computes, e.g. ``cpu``.
        spec: The model version.
        executor: Computes the batches; loaded and closed here.
        clock: Stamps the batches.
        max_in_flight: Batches that may wait or run here at once.
    """

    def __init__(
        self, *, name: str, device: str, spec: ModelSpec, executor: Executor, clock: Clock, max_in_flight: int = 1
    ) -> None:
        self._name = name
        self._device = device
        self._max_in_flight = max_in_flight
        self._spec = spec
        self._executor = executor
        self._clock = clock
        self._jobs: SimpleQueue[_Batch | None] = SimpleQueue()  # None is the last entry ever
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False  # once true, nothing but None enters the queue
        self._stopped = asyncio.Event()  # the thread has nothing left to do
        self._executions = 0
        self._failed_executions = 0
        self._rows = 0
        self._padding_rows = 0
        self._busy_ns = 0

    @property
    def name(self) -> str:
        """Unique within the pool."""
        return self._name

    @property
    def device(self) -> str:
        """Where the executor computes."""
        return self._device

    @property
    def max_in_flight(self) -> int:
        """Batches that may wait or run here at once."""
        return self._max_in_flight

    async def start(self, warm_up_rows: Sequence[int] = ()) -> None:
        """Start the thread, load the executor in it and warm it up with batches of these sizes.

        Call it once; after a failure or cancellation call `aclose`.

        Raises:
            LoadError: The model cannot be made ready.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[LoadError | None] = loop.create_future()
        # Daemon: a process that ends without closing must not hang on a batch.
        thread = threading.Thread(target=self._work, args=(loop, ready, warm_up_rows), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise LoadError(f"instance '{self._name}': {error}") from error
        self._loop, self._thread = loop, thread
        failure = await ready
        if failure is not None:
            raise failure

    async def execute(self, batch: Sequence[Tensors]) -> BatchResult[Tensors]:
        """Run the payloads together, in order.

        A caller that is cancelled does not stop the batch; it finishes unheard.

        Args:
            batch: At least one payload: arrays of shape (rows, *item), of one element type and item shape per name. For
                models without batch dimension exactly one payload of arrays as declared. Not modified.

        Raises:
            ExecutionError: The batch failed; the instance goes on with the next.
            InstanceClosedError: The instance is not started, or closed before the batch's turn.
        """
        if self._closed or self._loop is None:
            raise InstanceClosedError(f"instance '{self._name}' is {'closed' if self._closed else 'not started'}")
        job = _Batch(batch, self._loop.create_future())
        self._jobs.put(job)
        answer = await job.reply
        if isinstance(answer, BatchResult):
            return answer
        try:
            raise answer
        finally:
            del answer, job, batch  # the error's traceback holds this frame: let it not hold tensors, nor itself

    def statistics(self) -> InstanceStatistics:
        """Counters since it was started; a batch is in them once it is answered."""
        return InstanceStatistics(
            name=self._name,
            device=self._device,
            executions=self._executions,
            failed_executions=self._failed_executions,
            rows=self._rows,
            padding_rows=self._padding_rows,
            busy_ns=self._busy_ns,
        )

    async def aclose(self) -> None:
        """Answer the batches that wait with InstanceClosedError, let the running one finish, end the thread.

        Safe to call twice, at once too, and whether or not `start` succeeded.
        """
        self.stop_nowait()
        if self._thread is not None:
            await self._stopped.wait()
            self._thread.join()  # at its last instruction: does not block

    def stop_nowait(self) -> None:
        """The part of `aclose` that does not wait: take no more batches and answer those that wait."""
        if self._closed:
            return
        self._closed = True
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                _settle(job.reply, InstanceClosedError(f"instance '{self._name}' closed before the batch ran"))
        self._jobs.put(None)

    def _answer(self, job: _Batch, answer: _Answer) -> None:
        """On the loop: count the batch and tell its caller, if it still waits."""
        self._executions += 1
        self._failed_executions += not isinstance(answer, BatchResult)
        self._rows += job.rows
        self._padding_rows += job.executed_rows - job.rows
        self._busy_ns += job.busy_ns
        _settle(job.reply, answer)

    # Below: in the thread.

    def _work(
        self,
        loop: asyncio.AbstractEventLoop,
        ready: "asyncio.Future[LoadError | None]",
        warm_up_rows: Sequence[int],
    ) -> None:
        failure = self._prepare(warm_up_rows)
        _tell(loop, _settle, ready, failure)
        del ready, failure
        while (job := self._jobs.get()) is not None:
            answer = self._run(job)
            _tell(loop, self._answer, job, answer)
            del job, answer  # an idle thread keeps no tensors alive
        self._release()
        _tell(loop, self._stopped.set)

    def _prepare(self, warm_up_rows: Sequence[int]) -> LoadError | None:
        try:
            self._executor.load()
            self._executor.warm_up(warm_up_rows)
        except LoadError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - whatever engine or model code raises, `start` must hear of it
            return _caused(LoadError(f"instance '{self._name}': {_describe(error)}"), error)
        return None

    def _run(self, job: _Batch) -> _Answer:
        started_ns = self._clock.now_ns()
        try:
            return self._compute(job, started_ns)
        except BackendError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - SystemExit from model code too: a dead thread hangs callers
            return _caused(ExecutionError(_describe(error)), error)
        finally:
            job.busy_ns = self._clock.now_ns() - started_ns

    def _compute(self, job: _Batch, started_ns: int) -> BatchResult[Tensors]:
        rows_per_payload, inputs = self._gather(job)
        gathered_ns = self._clock.now_ns()
        outputs = self._executor.run(inputs, job.executed_rows)
        computed_ns = self._clock.now_ns()
        is_batch = self._spec.has_batch_dimension
        results = scatter(outputs, rows_per_payload, job.executed_rows) if is_batch else [outputs]
        ended_ns = self._clock.now_ns()
        times = BatchTimes(started_ns=started_ns, gathered_ns=gathered_ns, computed_ns=computed_ns, ended_ns=ended_ns)
        return BatchResult(results=results, times=times, executed_rows=job.executed_rows)

    def _gather(self, job: _Batch) -> tuple[Sequence[int], Tensors]:
        """Rows of each payload, and the executor's inputs; notes the numbers in the job."""
        if not self._spec.has_batch_dimension:
            if len(job.payloads) != 1:
                raise ExecutionError(f"a model without batch dimension runs 1 request, found {len(job.payloads)}")
            job.rows = job.executed_rows = 1
            return (1,), dense(job.payloads[0])
        rows_per_payload = [rows_of(payload) for payload in job.payloads]
        job.rows = job.executed_rows = sum(rows_per_payload)
        job.executed_rows = padded_rows(job.rows, self._spec.batching.allowed_rows)
        return rows_per_payload, gather(job.payloads, rows_per_payload, job.executed_rows)

    def _release(self) -> None:
        try:
            self._executor.close()
        except BaseException:
            logger.exception("instance '%s': the executor could not be closed", self._name)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    # RuntimeError: the loop is closed, so nobody is left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def _settle(reply: "asyncio.Future[Value]", value: Value) -> None:
    if not reply.done():  # the caller may have left
        reply.set_result(value)


def _caused(error: Error, cause: BaseException) -> Error:
    error.__cause__ = cause
    return error


def _describe(error: BaseException) -> str:
    # Not str(error): model code may raise errors that cannot even be printed.
    return "".join(traceback.format_exception_only(error)).strip()
