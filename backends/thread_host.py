"""An instance that executes batches in threads of its own.

Main path: `submit` puts the batch on the queue of the threads (one hop), a thread gathers, runs and scatters, and
hands the answer to `_answer` on the loop (one hop back). Counters are kept by `_answer`, so only the loop touches them.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from backends.batch_run import BatchRun, BatchRunner
from backends.errors import (
    BackendError,
    ExecutionError,
    InstanceClosedError,
    LoadError,
    WorkerLostError,
)
from backends.failures import describe
from backends.memory_cap import MemoryCap
from backends.ports import Executor
from backends.warm_requests import run_warm_requests
from batching.clock import Clock
from batching.ports import BatchResult, Done, InstanceStatistics, executed
from models.inference import Tensors
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
Error = TypeVar("Error", bound=BackendError)

_Answer = BatchRun | BackendError
_Failure = LoadError | WorkerLostError


@dataclass(slots=True)
class _Batch:
    """One batch on its way; a thread fills in the time, the loop reads it afterwards."""

    payloads: Sequence[Tensors]
    done: Done[Tensors]
    busy_ns: int = 0


class ThreadInstance:
    """Executes batches of one model version, as many at once as it has lanes, each in a thread that it owns.

    Belongs to one event loop, the one that called `start`. Every executor is called by one thread only. Of the
    statistics, `executions` counts failed batches too.

    Args:
        name: Unique within the pool; also names the threads.
        device: Where the executors compute, e.g. ``cpu``.
        spec: The model version.
        lanes: Compute the batches; loaded and closed here. With one lane, batches run in order.
        clock: Stamps the batches.
        allowed_rows: Sizes that the executors may see, ascending; empty means every size.
    """

    def __init__(
        self,
        *,
        name: str,
        device: str,
        spec: ModelSpec,
        lanes: Sequence[Executor],
        clock: Clock,
        allowed_rows: Sequence[int] = (),
    ) -> None:
        self._name = name
        self._device = device
        self._spec = spec
        self._lanes = tuple(lanes)
        self._clock = clock
        self._allowed_rows = allowed_rows
        self._cap = MemoryCap(spec.largest_batch_rows, allowed_rows)
        self._jobs: SimpleQueue[_Batch | None] = SimpleQueue()  # None, once for each lane, are the last entries ever
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False  # once true, nothing but None enters the queue
        self._working = 0  # threads that have not ended their work
        self._stopped = asyncio.Event()  # the threads have nothing left to do
        self._executions = 0
        self._failed_executions = 0
        self._rows = 0
        self._padding_rows = 0
        self._busy_ns = 0
        self._non_finite_rows = 0

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
        return len(self._lanes)

    @property
    def has_stopped(self) -> bool:
        """It was closed, and its threads have nothing left to do: the statistics are final."""
        return self._closed and not self._working

    async def start(self, warm_up_rows: Sequence[int] = ()) -> None:
        """Start the threads, load the executors in them, one after the other, and warm them up with these sizes.

        The version's own warm-up requests follow. Call it once; after a failure or cancellation call `aclose`.

        Raises:
            LoadError: The model cannot be made ready.
        """
        self._loop = asyncio.get_running_loop()
        for number, executor in enumerate(self._lanes):
            failure = await self._start_lane(executor, warm_up_rows, f"-{number}" if number else "")
            if failure is not None:
                raise failure

    async def _start_lane(self, executor: Executor, warm_up_rows: Sequence[int], suffix: str) -> _Failure | None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[_Failure | None] = loop.create_future()
        # Daemon: a process that ends without closing must not hang on a batch.
        thread = threading.Thread(
            target=self._work, args=(loop, ready, executor, warm_up_rows), name=f"{self._name}{suffix}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            return LoadError(f"instance '{self._name}': {error}")
        self._threads.append(thread)
        self._working += 1
        return await ready

    async def execute(self, batch: Sequence[Tensors]) -> BatchResult[Tensors]:
        """Run the payloads together, in order. Of the results, those of requests that fail alone are errors.

        A caller that is cancelled does not stop the batch; it finishes unheard.

        Args:
            batch: At least one payload: arrays of shape (rows, *item), of one element type and item shape per name. For
                models without batch dimension exactly one payload of arrays as declared. Not modified.

        Raises:
            ExecutionError: The whole batch failed for one reason; the instance goes on with the next.
            InstanceClosedError: The instance is not started, or closed before the batch's turn.
        """
        return await executed(self, batch)

    def submit(self, batch: Sequence[Tensors], done: Done[Tensors]) -> None:
        """As `execute`; see `batching.ports.Instance`."""
        if self._closed or self._loop is None:
            error = InstanceClosedError(f"instance '{self._name}' is {'closed' if self._closed else 'not started'}")
            asyncio.get_running_loop().call_soon(done, error)  # not before this has returned
        else:
            self._jobs.put(_Batch(batch, done))

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
            cap_rows=self._cap.rows,
            memory_failures=self._cap.failures,
            non_finite_rows=self._non_finite_rows,
        )

    async def aclose(self) -> None:
        """Answer the batches that wait with InstanceClosedError, let the running ones finish, end the threads.

        Safe to call twice, at once too, and whether or not `start` succeeded.
        """
        self.stop_nowait()
        if self._threads:
            await self._stopped.wait()
            for thread in self._threads:
                thread.join()  # at its last instruction: does not block

    def stop_nowait(self) -> None:
        """The part of `aclose` that does not wait: take no more batches and answer those that wait."""
        if self._closed:
            return
        self._closed = True
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                error = InstanceClosedError(f"instance '{self._name}' closed before the batch ran")
                asyncio.get_running_loop().call_soon(job.done, error)
        for _ in self._lanes:
            self._jobs.put(None)

    def _answer(self, job: _Batch, answer: _Answer) -> None:
        """On the loop: count the batch and tell who submitted it."""
        self._executions += 1
        self._busy_ns += job.busy_ns
        outcome: BatchResult[Tensors] | Exception = answer
        if isinstance(answer, BatchRun):
            self._rows += answer.rows
            self._padding_rows += answer.executed_rows - answer.rows
            self._non_finite_rows += answer.non_finite_rows
            if answer.errors:
                self._failed_executions += 1
                outcome = _of_all(answer) or answer
        else:
            self._failed_executions += 1
        job.done(outcome)

    def _ended(self) -> None:
        self._working -= 1
        if not self._working:
            self._stopped.set()

    # Below: in the threads.

    def _work(
        self,
        loop: asyncio.AbstractEventLoop,
        ready: "asyncio.Future[_Failure | None]",
        executor: Executor,
        warm_up_rows: Sequence[int],
    ) -> None:
        runner = BatchRunner(self._spec, executor, self._clock, self._allowed_rows, self._cap)
        failure = self._prepare(executor, warm_up_rows, runner)
        _tell(loop, _settle, ready, failure)
        del ready, failure
        while (job := self._jobs.get()) is not None:
            answer = self._run(job, runner)
            _tell(loop, self._answer, job, answer)
            del job, answer  # an idle thread keeps no tensors alive
        self._release(executor)
        _tell(loop, self._ended)

    def _prepare(self, executor: Executor, warm_up_rows: Sequence[int], runner: BatchRunner) -> _Failure | None:
        try:
            executor.load()
            executor.warm_up(warm_up_rows)
            run_warm_requests(self._spec, runner.run)
        except WorkerLostError as error:
            return _without_frames(error)  # the model is not to blame
        except LoadError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - whatever engine or model code raises, `start` must hear of it
            return _caused(LoadError(f"instance '{self._name}': {describe(error)}"), error)
        return None

    def _run(self, job: _Batch, runner: BatchRunner) -> _Answer:
        started_ns = self._clock.now_ns()
        try:
            return runner.run(job.payloads)
        except BackendError as error:
            return _without_frames(error)
        except BaseException as error:  # noqa: BLE001 - a dead thread would hang its callers
            return _caused(ExecutionError(describe(error)), error)
        finally:
            job.busy_ns = self._clock.now_ns() - started_ns

    def _release(self, executor: Executor) -> None:
        try:
            executor.close()
        except BaseException:
            logger.exception("instance '%s': the executor could not be closed", self._name)


def _of_all(run: BatchRun) -> ExecutionError | None:
    """The error of a batch that failed as a whole; those of single requests are theirs: they may tell what was sent."""
    first = run.results[0]
    if isinstance(first, ExecutionError) and all(result is first for result in run.results):
        return first
    return None


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    # RuntimeError: the loop is closed, so nobody is left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def _settle(reply: "asyncio.Future[Value]", value: Value) -> None:
    if not reply.done():  # the caller may have left
        reply.set_result(value)


def _without_frames(error: Error) -> Error:
    """The error without its tracebacks: their frames hold the batch, and so the shared memory of a lost worker."""
    step: BaseException | None = error
    while step is not None:
        step.__traceback__ = None
        step = step.__cause__ or step.__context__
    return error


def _caused(error: Error, cause: BaseException) -> Error:
    error.__cause__ = cause
    return error
