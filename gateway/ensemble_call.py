"""One request on its way through the graph of an ensemble."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from backends.errors import BackendError, ExecutionError, WrongRowsError
from batching.clock import Clock
from batching.core.errors import BatchingError, DeadlineExceededError
from gateway.validation import validate
from models.ensembles import Plan
from models.errors import ModelsError
from models.inference import Array, Tensors, Timing
from models.request_rows import attach, requests_of
from models.spec import EnsembleStep, ModelSpec
from models.tensors import TensorSpec

NAMED_ERRORS = (ModelsError, BatchingError, BackendError)
"""What a step may raise; anything else is a defect of the program and passes as it is."""


class StepRunner(Protocol):
    """What runs a step: a version in service, or a leased ensemble."""

    @property
    def spec(self) -> ModelSpec:
        """What is served."""
        ...

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        """See `Answering`."""
        ...


class EnsembleCall:
    """One request on its way through the graph.

    Args:
        spec: The ensemble.
        graph: Of its steps.
        answering: What each step runs.
        inputs: Of the request.
        clock: The clock of the deadline.
        deadline_ns: When the caller's timeout is over, for all steps together.
        priority: Of the caller, for each step.
    """

    def __init__(
        self,
        spec: ModelSpec,
        graph: Plan,
        answering: Sequence[StepRunner],
        inputs: Tensors,
        clock: Clock,
        deadline_ns: int | None,
        priority: int,
    ) -> None:
        self._spec = spec
        self._graph = graph
        self._answering = answering
        self._tensors = dict(inputs)  # of the ensemble, as far as they are made
        self._clock = clock
        self._deadline_ns = deadline_ns
        self._priority = priority
        self._waits = list(graph.waits)
        self._timings: list[Timing] = []
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run every step as soon as its inputs are there."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._run_ready(self._graph.levels[0])
                while self._tasks:
                    # Waited for here, not at the end of the block: see `Served`.
                    await asyncio.wait(self._tasks)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def outputs(self) -> Tensors:
        """What the ensemble answers."""
        outputs = {output.name: self._tensors[output.name] for output in self._spec.outputs}
        return self._fitted(outputs, self._spec.outputs, self._spec)

    def timing(self, decode_ns: int, total_ns: int) -> Timing:
        """The times of the steps, added up: those of steps that ran side by side too."""
        return Timing(
            decode_ns=decode_ns,
            queue_ns=sum(timing.queue_ns for timing in self._timings),
            compute_ns=sum(timing.compute_ns for timing in self._timings),
            total_ns=total_ns,
            batch_rows=max(timing.batch_rows for timing in self._timings),
        )

    async def _run_ready(self, ready: Sequence[int]) -> None:
        """Run these steps and what becomes ready by them: the first one here, so that a chain needs no tasks."""
        while ready:
            here, *others = ready
            for other in others:
                task = self._group.create_task(self._run_ready((other,)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._run_step(here)
            ready = [after for after in self._graph.followers[here] if self._is_ready_now(after)]

    def _is_ready_now(self, index: int) -> bool:
        self._waits[index] -= 1
        return self._waits[index] == 0

    async def _run_step(self, index: int) -> None:
        step, answering = self._spec.steps[index], self._answering[index]
        inputs: Tensors = {name: self._tensors[it] for name, it in step.inputs.items() if it in self._tensors}
        try:
            inputs = self._fitted(inputs, answering.spec.inputs, answering.spec)
            rows = validate(answering.spec, inputs, ())
            inputs = self._with_request(inputs, rows, step, answering.spec)
            outputs, timing = await answering.infer(inputs, rows, self._remaining_ns(), self._priority)
            self._timings.append(timing)
            for name, tensor in step.outputs.items():
                self._tensors[tensor] = _checked(answering.spec, rows, name, outputs)
        except NAMED_ERRORS as error:
            raise named(self._spec, error) from error

    def _with_request(self, inputs: Tensors, rows: int, step: EnsembleStep, spec: ModelSpec) -> Tensors:
        """For code, also in ensembles below: what the caller has said of its request, and what the step wants of it."""
        if not (spec.wants_requests or spec.steps):
            return inputs
        _, (request,) = requests_of(self._tensors, 1)
        info = replace(request.info, outputs=tuple(step.outputs))
        return attach(inputs, rows if spec.wants_requests else 1, info)

    def _fitted(self, tensors: Tensors, declared: Sequence[TensorSpec], spec: ModelSpec) -> Tensors:
        """Between an ensemble without batch dimension and models with one, a row gets or loses it, as in Triton."""
        if self._spec.has_batch_dimension:
            return tensors
        fit = _as_batch if spec.has_batch_dimension else _as_row
        wanted = {tensor.name: tensor for tensor in declared}
        return {name: fit(array, wanted[name]) if name in wanted else array for name, array in tensors.items()}

    def _remaining_ns(self) -> int | None:
        if self._deadline_ns is None:
            return None
        remaining_ns = self._deadline_ns - self._clock.now_ns()
        if remaining_ns <= 0 and self._spec.batching.deadlines:
            raise DeadlineExceededError
        return max(remaining_ns, 1)  # for the queue of the step, as in Triton


def _as_batch(array: Array, wanted: TensorSpec) -> Array:
    return array[np.newaxis] if wanted.accepts(array.shape) else array


def _as_row(array: Array, wanted: TensorSpec) -> Array:
    is_batch = array.shape[:1] == (1,) and wanted.accepts(array.shape[1:])
    return array[0] if is_batch and not wanted.accepts(array.shape) else array


def _checked(spec: ModelSpec, rows: int, name: str, outputs: Tensors) -> Array:
    """An output that has as many rows as the step was given; code may answer what it likes."""
    if name not in outputs:
        raise ExecutionError(f"no output '{name}' in the answer, found: {', '.join(outputs) or 'none'}")
    output = outputs[name]
    found_rows = output.shape[0] if output.ndim else 0
    if spec.has_batch_dimension and found_rows != rows:
        raise WrongRowsError(output=name, expected_rows=rows, found_rows=found_rows)
    return output


def words(spec: ModelSpec, index: int) -> str:
    """How messages call a step."""
    return f"step {index + 1} '{spec.steps[index].model}' of ensemble '{spec.name}'"


def named(spec: ModelSpec, error: Exception) -> Exception:
    """The error as Triton words that of a step; a copy, because other members of its batch may have got it too."""
    named = copy.copy(error)
    named.args = (f"in ensemble '{spec.name}', {error}",)
    return named
