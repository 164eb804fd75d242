"""An ensemble that answers: the steps of its graph, each through the queue and the batcher of its own model.

Tensors are handed from step to step as they are. All models of a request are leased when it comes, so that a reload in
between neither mixes versions nor fails it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from backends.errors import BackendError
from batching.callers import BatchReport
from batching.clock import SECOND_NS, Clock
from batching.core.batches import CloseReason
from batching.core.errors import BatchingError, DeadlineExceededError, QueueFullError, ShuttingDownError
from batching.core.statistics import SchedulerStatistics
from batching.ports import BatchTimes
from batching.submissions import Deliver
from gateway.answering import Answering
from gateway.decoding import Decoder
from gateway.engine import VersionStatistics
from gateway.ensemble_call import NAMED_ERRORS, EnsembleCall, StepRunner, named, words
from gateway.recorder import Recorder
from models.ensembles import plan
from models.errors import ModelUnavailableError, VersionNotReadyError
from models.inference import Tensors, Timing
from models.preprocessing import Preprocessing
from models.spec import ModelSpec

Find = Callable[[str, int | None], AbstractContextManager[Answering]]
"""A lease on what answers for a version, or for the preferred one; raises ModelUnavailableError and BackendError."""


class Ensemble:
    """A version of an ensemble. It has no queue and no instances, only a limit of requests that it runs at once.

    Args:
        spec: Of the ensemble, which `models.ensembles.check_ensemble` has found sound.
        find: Finds the models of the steps.
        decoder: For encoded images.
        clock: The clock of all times.
        default_timeout_ns: Time that all steps together may take for requests without a timeout of their own.
    """

    def __init__(self, spec: ModelSpec, find: Find, decoder: Decoder, clock: Clock, default_timeout_ns: int) -> None:
        self.spec = spec
        self._find = find
        self._decoder = decoder
        self._clock = clock
        self._default_timeout_ns = default_timeout_ns
        self._plan = plan(spec)
        self._recorder = Recorder()
        self._limits: set[asyncio.Timeout] = set()  # of the requests that run
        self._leases = 0
        self._is_closed = self._is_ended = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._admitted = self._refused = self._expired = self._withdrawn = 0

    @property
    def is_available(self) -> bool:
        """Whether every model of its steps is."""
        try:
            return not self._is_closed and all(self._is_available(step.model, step.version) for step in self.spec.steps)
        except (ModelUnavailableError, BackendError):
            return False

    def submit(
        self,
        _inputs: Tensors,
        _rows: int,
        _timeout_ns: int | None,
        _priority: int,
        _reply: Deliver[tuple[Tensors, Timing]],
    ) -> None:
        """None: steps that wait for each other need a task."""
        return

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        """Run all steps; the first that fails ends the others, and its error names it.

        Raises:
            ModelUnavailableError: A model of a step is not ready.
            InvalidRequestError: A tensor between the steps does not fit, which only its values can show.
            BatchingError: Refused or expired, here or in a step.
            BackendError: A step failed.
        """
        with self.lease() as leased:
            return await leased.infer(inputs, rows, timeout_ns, priority)

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        """Decode and run one encoded image as a row of the only input. Raises ImageError too."""

        async def decode() -> Tensors:
            row = await self._decoder.decode(image, how)
            return {self.spec.inputs[0].name: row[np.newaxis] if self.spec.has_batch_dimension else row}

        with self.lease() as leased:
            return await leased.run(decode(), 1, timeout_ns, 0)

    @contextmanager
    def lease(self) -> Iterator["LeasedEnsemble"]:
        """Admit a request: inside the block all models that it needs stay, also those of ensembles in it.

        Raises:
            ModelUnavailableError: One of them is not ready.
            BatchingError: Too many requests run, or the ensemble is closed.
        """
        with ExitStack() as stack:
            try:
                self._check_admission()
                answering = [self._enter(index, stack) for index in range(len(self.spec.steps))]
            except NAMED_ERRORS:
                self._refused += 1
                raise
            self._admitted += 1
            self._leases += 1
            self._idle.clear()
            try:
                yield LeasedEnsemble(self.spec, partial(self._run, answering))
            finally:
                self._leases -= 1
                if not self._leases:
                    self._idle.set()

    def statistics(self) -> VersionStatistics:
        """A snapshot. As with Triton, the ensemble's compute times are the sums over its steps."""
        return self._recorder.snapshot(
            self.spec.name,
            self.spec.version,
            SchedulerStatistics(
                reserved_requests=0,
                waiting_requests=0,
                waiting_rows=0,
                running_batches=self._leases,
                instances=0,
                admitted_requests=self._admitted,
                refused_requests=self._refused,
                dropped_requests=0,
                expired_requests=self._expired,
                withdrawn_requests=self._withdrawn,
                close_reasons={},
                drop_reasons={},
            ),
        )

    async def drain(self) -> None:
        """Admit nothing more, and wait until everything admitted has been answered."""
        self._is_closed = True
        await self._idle.wait()

    async def aclose(self) -> None:
        """Admit nothing more, and end what runs with ShuttingDownError."""
        self._is_closed = self._is_ended = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0)
        await self._idle.wait()

    def _is_available(self, model: str, version: int | None) -> bool:
        with self._find(model, version) as answering:
            return answering.is_available

    def _check_admission(self) -> None:
        if self._is_closed:
            raise ShuttingDownError
        limit = self.spec.batching.max_queue_requests
        if self._leases >= limit:
            raise QueueFullError(limit=limit, unit="requests")

    def _enter(self, index: int, stack: ExitStack) -> StepRunner:
        step = self.spec.steps[index]
        try:
            answering = stack.enter_context(self._find(step.model, step.version))
            return stack.enter_context(answering.lease()) if isinstance(answering, Ensemble) else answering
        except ModelUnavailableError as error:  # the client's model is there, only not complete
            missing = VersionNotReadyError(self.spec.name, self.spec.version)
            missing.args = (f"{words(self.spec, index)}: {error}",)
            raise missing from error
        except NAMED_ERRORS as error:
            raise named(self.spec, error) from error

    async def _run(
        self,
        answering: Sequence[StepRunner],
        prepare: Awaitable[Tensors],
        rows: int,
        timeout_ns: int | None,
        priority: int,
    ) -> tuple[Tensors, Timing]:
        started_ns = self._clock.now_ns()
        try:
            own_ns = timeout_ns if self.spec.batching.deadlines else None
            async with self._limited(self._default_timeout_ns if own_ns is None else own_ns):
                inputs = await prepare
                decode_ns = self._clock.now_ns() - started_ns
                deadline_ns = None if timeout_ns is None else started_ns + timeout_ns
                call = EnsembleCall(self.spec, self._plan, answering, inputs, self._clock, deadline_ns, priority)
                await call.run()
        except BaseException as error:
            self._count_failure(error, started_ns)
            raise
        timing = call.timing(decode_ns, self._clock.now_ns() - started_ns)
        self._count_success(rows, timing, started_ns)
        return call.outputs(), timing

    @asynccontextmanager
    async def _limited(self, timeout_ns: int) -> AsyncIterator[None]:
        """Ends the block when the time is over or `aclose` is called."""
        limit = asyncio.timeout(timeout_ns / SECOND_NS)
        self._limits.add(limit)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise ShuttingDownError if self._is_ended else DeadlineExceededError from None
        finally:
            self._limits.discard(limit)

    def _count_success(self, rows: int, timing: Timing, started_ns: int) -> None:
        ended_ns = started_ns + timing.compute_ns
        self._recorder.batch(
            BatchReport(
                rows=rows,
                requests=1,
                padding_rows=0,
                times=BatchTimes(started_ns, started_ns, ended_ns, ended_ns),
                reason=CloseReason.FULL,
                opened_ns=started_ns,
                sealed_ns=started_ns,
            )
        )
        self._recorder.success(rows, timing)

    def _count_failure(self, error: BaseException, started_ns: int) -> None:
        match error:
            case DeadlineExceededError():
                self._expired += 1
                reason = "REJECTED"
            case BatchingError():
                reason = "REJECTED"
            case asyncio.CancelledError():
                self._withdrawn += 1
                reason = "CANCELED"
            case BackendError():
                reason = "BACKEND"
            case _:
                reason = "OTHER"
        self._recorder.failure(reason, self._clock.now_ns() - started_ns)


class LeasedEnsemble(NamedTuple):
    """An ensemble within one request: everything that it needs is held."""

    spec: ModelSpec
    run: Callable[[Awaitable[Tensors], int, int | None, int], Awaitable[tuple[Tensors, Timing]]]

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        """See `Ensemble.infer`."""

        async def ready() -> Tensors:
            return inputs

        return await self.run(ready(), rows, timeout_ns, priority)
