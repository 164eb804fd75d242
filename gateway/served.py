"""One model version that answers: its queue, its instances, its counters."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from backends.errors import BackendError, CodeError
from backends.pool import InstancePool
from batching.alarm import Alarm
from batching.callers import Answer, Splitting
from batching.clock import Clock
from batching.core.errors import (
    BatchingError,
    TooManyRowsError,
)
from batching.core.scheduler import Scheduler
from batching.reservations import How, Reservation
from batching.runner import Runner
from batching.sharing import Seat
from batching.submissions import Call, Deliver, settle
from gateway.decoding import Decoder
from gateway.engine import VersionStatistics
from gateway.policies import PriorityLevels
from gateway.recorder import Recorder
from models.inference import Tensors, Timing
from models.preprocessing import Preprocessing
from models.request_rows import REQUEST_INPUT, attach
from models.response_rows import joined
from models.spec import ModelSpec, Oversize

Answers = Sequence[Answer[Tensors]]
Outcome = Answer[Tensors] | BaseException


class Served:
    """A loaded version. Made and run by the assembly, called by the service.

    Args:
        spec: What is served.
        scheduler: Fresh; as the specification says.
        pool: Its started instances.
        decoder: For encoded images.
        clock: The clock of all times.
        create_alarm: For the runner.
        default_timeout_ns: Time that requests may take which bring no timeout of their own.
    """

    def __init__(
        self,
        spec: ModelSpec,
        scheduler: Scheduler | Seat,
        pool: InstancePool,
        decoder: Decoder,
        clock: Clock,
        create_alarm: Callable[[Callable[[], None]], Alarm],
        default_timeout_ns: int,
    ) -> None:
        self.spec = spec
        self.running = asyncio.Event()
        """Set as soon as it admits requests."""
        self.failure: Exception | None = None
        """Why it cannot go on: its policy broke a law."""
        self._decoder = decoder
        self._clock = clock
        self._default_timeout_ns = default_timeout_ns
        self._has_deadlines = spec.batching.deadlines
        self._recorder = Recorder()
        self._largest_rows = spec.largest_batch_rows
        self._priorities = PriorityLevels(spec)
        self._varies = any(tensor.has_variable_dims or tensor.optional for tensor in spec.inputs)
        # Chunks of one large request that may be queued at once: enough to keep the instances busy and no more, so
        # that small requests get their turn in between.
        self._chunks_at_once = 1 + len(pool.instances)
        self._runner: Runner[Tensors, Tensors] = Runner(
            scheduler,
            (),
            clock,
            create_alarm,
            self._recorder.batch,
            Splitting(cut=_cut, join=joined),
        )
        self._pool = pool
        pool.attach(self._runner)

    async def run(self) -> None:
        """Serve until cancelled; see `Runner.run`."""
        self.running.set()
        try:
            await self._runner.run()
        except Exception as error:
            self.failure = error
            raise

    async def drain(self) -> None:
        """Admit nothing more, and wait until everything admitted has been answered."""
        await self._runner.drain()

    @property
    def is_available(self) -> bool:
        """Whether one of its instances works."""
        return self.failure is None and self._pool.is_available

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        """Run ready tensors; a request above the largest batch is cut into chunks if the model says so."""
        future: asyncio.Future[tuple[Tensors, Timing]] = asyncio.get_running_loop().create_future()
        call = self.submit(inputs, rows, timeout_ns, priority, partial(settle, future))
        if call is None:
            return await self._infer_large(inputs, rows, timeout_ns, priority)
        try:
            return await future
        finally:
            call.cancel()  # for a caller that leaves; otherwise it is over
            del call, future, inputs  # an error's traceback holds this frame: let it not hold tensors, nor itself

    def submit(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int, reply: Deliver[tuple[Tensors, Timing]]
    ) -> Call | None:
        """Run ready tensors that fit into a batch; None for others."""
        if rows > self._largest_rows:
            return None
        started_ns = self._clock.now_ns()
        try:
            inputs, how = self._admissible(inputs, rows, started_ns, timeout_ns, priority)
            return self._runner.submit(inputs, rows, partial(self._answer, rows, started_ns, reply), **how)
        except BaseException as error:
            self._count_failure(error, started_ns, rows)
            raise

    def _answer(self, rows: int, started_ns: int, reply: Deliver[tuple[Tensors, Timing]], outcome: Outcome) -> None:
        """The end of what was submitted."""
        if isinstance(outcome, BaseException):
            self._count_failure(outcome, started_ns, rows)
            reply(outcome)
        else:
            reply((outcome.result, self._succeed(rows, outcome, started_ns)))

    async def _infer_large(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int
    ) -> tuple[Tensors, Timing]:
        started_ns = self._clock.now_ns()
        try:
            inputs, how = self._admissible(inputs, rows, started_ns, timeout_ns, priority)
            answer = _whole(await self._infer_chunks(inputs, rows, how))
        except BaseException as error:
            self._count_failure(error, started_ns, rows)
            raise
        return answer.result, self._succeed(rows, answer, started_ns)

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        """Admit, decode and run one encoded image as a row of the only input. Raises ImageError for a bad one."""
        started_ns = self._clock.now_ns()
        try:
            self._pool.check()
            with self._runner.reserve(1, **self._how(started_ns, timeout_ns)) as reservation:
                row = await reservation.prepare(self._decoder.decode(image, how))
                decode_ns = self._clock.now_ns() - started_ns
                tensor = row[np.newaxis] if self.spec.has_batch_dimension else row
                answer = await reservation.execute(self._with_request({self.spec.inputs[0].name: tensor}, 1))
        except BaseException as error:
            self._count_failure(error, started_ns)
            raise
        return answer.result, self._succeed(1, answer, started_ns, decode_ns)

    def statistics(self) -> VersionStatistics:
        """A snapshot."""
        snapshot = self._recorder.snapshot(self.spec.name, self.spec.version, self._runner.statistics())
        return replace(snapshot, members=tuple(self._pool.statuses()))

    def _admissible(
        self, inputs: Tensors, rows: int, started_ns: int, timeout_ns: int | None, priority: int
    ) -> tuple[Tensors, How]:
        """What the runner takes. Raises NoInstanceError."""
        self._pool.check()
        if self.spec.wants_requests:
            inputs = self._with_request(inputs, rows)
        how = self._how(started_ns, timeout_ns, priority)
        if self._varies:
            how["shape_key"] = _shape_key(inputs)
        return inputs, how

    def _with_request(self, inputs: Tensors, rows: int) -> Tensors:
        """For code that is handed requests one by one: which rows are one, unless the inputs say so already."""
        if not self.spec.wants_requests or REQUEST_INPUT in inputs:
            return inputs
        return attach(inputs, rows)

    async def _infer_chunks(self, inputs: Tensors, rows: int, how: How) -> Answers:
        """Admit all chunks or none; execute a few at a time, in order; the first error ends the others."""
        self._check_oversize(rows)
        size = self.spec.largest_batch_rows
        chunks = [_cut(inputs, start, size) for start in range(0, rows, size)]
        turn = asyncio.Semaphore(self._chunks_at_once)

        async def execute(reservation: Reservation[Tensors, Tensors], chunk: Tensors) -> Answer[Tensors]:
            async with turn:
                return await reservation.execute(chunk)

        with ExitStack() as stack:
            reservations = [
                stack.enter_context(self._runner.reserve(min(size, rows - start), **how))
                for start in range(0, rows, size)
            ]
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(execute(*pair)) for pair in zip(reservations, chunks, strict=True)]
                    # Waited for here, not at the end of the block: there, Python 3.11 leaves the caller marked as
                    # cancelled when a chunk fails.
                    await asyncio.wait(tasks)
            except ExceptionGroup as errors:  # not except*: Python 3.11.2 wraps what is raised there in a group again
                raise errors.exceptions[0] from None
            return [task.result() for task in tasks]

    def _check_oversize(self, rows: int) -> None:
        if self.spec.batching.oversize is Oversize.REFUSE:
            raise TooManyRowsError(rows=rows, limit_rows=self.spec.largest_batch_rows)
        if rows > self.spec.batching.max_queue_rows:
            raise TooManyRowsError(rows=rows, limit_rows=self.spec.batching.max_queue_rows)

    def _how(self, started_ns: int, timeout_ns: int | None, priority: int = 0) -> How:
        return {
            "deadline_ns": started_ns + timeout_ns if timeout_ns is not None and self._has_deadlines else None,
            "expires_ns": started_ns + self._default_timeout_ns,
            "priority": self._priorities.of(priority),
            "timeout_ns": timeout_ns,
        }

    def _succeed(self, rows: int, answer: Answer[Tensors], started_ns: int, decode_ns: int = 0) -> Timing:
        times = answer.times
        queue_ns = times.started_ns - answer.arrived_ns
        compute_ns = times.ended_ns - times.started_ns
        total_ns = self._clock.now_ns() - started_ns
        timing = Timing(decode_ns, queue_ns, compute_ns, total_ns, answer.batch_rows)
        self._recorder.success(rows, timing)
        return timing

    def _count_failure(self, error: BaseException, started_ns: int, rows: int = 1) -> None:
        """Requests that were never admitted are the scheduler's refusals and not counted here, as in Triton."""
        match error:
            case CodeError():
                self._recorder.error_response(rows, self._clock.now_ns() - started_ns)
                return
            case BatchingError(admitted=True):
                reason = "REJECTED"
            case BatchingError():
                return
            case asyncio.CancelledError():
                reason = "CANCELED"
            case BackendError():
                reason = "BACKEND"
            case _:
                reason = "OTHER"
        self._recorder.failure(reason, self._clock.now_ns() - started_ns)


def _shape_key(inputs: Tensors) -> Hashable:
    """What must agree within a batch, for a model whose rows may differ in shape."""
    return tuple(sorted((name, tensor.shape[1:]) for name, tensor in inputs.items()))


def _whole(answers: Answers) -> Answer[Tensors]:
    """The answer to a request, of those to its chunks in order."""
    first, last = answers[0], answers[-1]
    return Answer(
        result=joined([answer.result for answer in answers]),
        arrived_ns=first.arrived_ns,
        times=last.times._replace(started_ns=first.times.started_ns),
        batch_rows=max(answer.batch_rows for answer in answers),
    )


def _cut(inputs: Tensors, first_row: int, rows: int) -> Tensors:
    return {name: tensor[first_row : first_row + rows] for name, tensor in inputs.items()}
