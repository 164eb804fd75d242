"""One batch through one executor: gather, run, scatter, and what can be saved when that fails.

- Out of memory: the batch is run again in halves, down to single rows, and for a while larger batches are run in parts
  from the start (`MemoryCap`). A request may be cut for that: its rows come back joined.
- Any other error of the model: the batch is run again in halves, so that only the requests fail that fail alone. When
  the first seven tries (the batch, its halves, its quarters) all fail, the model is to blame and not a request.
- Answers with NaN or infinite numbers are counted and, as the version says, fail or are computed again in fp32: only
  those of the requests that have them.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from backends.errors import (
    BackendError,
    DeviceFaultError,
    ExecutionError,
    NonFiniteError,
    OutOfMemoryError,
    WrongRowsError,
)
from backends.failures import describe
from backends.gather import Allocate, dense, gather, padded_rows, rows_of_each, scatter
from backends.memory_cap import MemoryCap
from backends.non_finite import NO_ROWS, Rows, computed_again, non_finite_rows
from backends.ports import Executor, StagingExecutor
from backends.request_answers import are_split, split_answers
from batching.clock import Clock
from batching.ports import BatchResult, BatchTimes
from models.inference import Tensors
from models.response_rows import joined
from models.spec import ModelSpec, NonFinite

logger = logging.getLogger(__name__)

_HOPELESS_TRIES = 7
_OF_ALL = (OutOfMemoryError, DeviceFaultError, WrongRowsError)
"""Errors that are no single request's fault, or have been dealt with."""

Outcome = Tensors | ExecutionError
"""The answer to one request of a batch: an error is a value here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun(BatchResult[Tensors]):
    """What came of a batch: of one that was run in parts, all but the first gathering is computing.

    Attributes:
        rows: Rows of the requests. `executed_rows` is what the executor was given at first.
        errors: How many of the results are errors.
        non_finite_rows: Rows of the requests that were computed as NaN or infinite numbers.
    """

    rows: int
    errors: int
    non_finite_rows: int = 0


@dataclass(slots=True)
class _Progress:
    """Notes of one batch while it is run."""

    gathered_ns: int = 0
    computed_ns: int = 0
    executed_rows: int = 0
    tries: int = 0
    successes: int = 0
    non_finite_rows: int = 0
    has_errors: bool = False
    is_well: bool = False


class BatchRunner:
    """Runs batches of one model version. Blocking; used by one thread at a time.

    Args:
        spec: The model version.
        executor: Loaded.
        clock: Stamps the stages.
        allowed_rows: Sizes that the executor may see, ascending; empty means every size.
        cap: Shared by the lanes of an instance.
    """

    def __init__(
        self, spec: ModelSpec, executor: Executor, clock: Clock, allowed_rows: Sequence[int], cap: MemoryCap
    ) -> None:
        self._spec = spec
        self._executor = executor
        self._clock = clock
        self._allowed_rows = allowed_rows
        self._cap = cap
        self._has_warned = False
        self._allocate: Allocate | None = executor.stage if isinstance(executor, StagingExecutor) else None

    def run(self, payloads: Sequence[Tensors]) -> BatchRun:
        """Run the payloads together, in order. An error of the model, whatever it is, becomes the result of requests.

        Raises:
            ExecutionError: The payloads make no batch; none of them was run.
            BackendError: The executor is gone.
        """
        started_ns = self._clock.now_ns()
        rows_per_payload = self._rows_per_payload(payloads)
        progress = _Progress()
        results = self._try(payloads, rows_per_payload, progress)
        ended_ns = self._clock.now_ns()
        times = BatchTimes(started_ns, progress.gathered_ns or ended_ns, progress.computed_ns or ended_ns, ended_ns)
        rows = sum(rows_per_payload)
        # Nearly always all is well at the first try: then the results need not be looked at.
        errors = 0 if progress.is_well else sum(isinstance(result, ExecutionError) for result in results)
        executed_rows = max(rows, progress.executed_rows)
        return BatchRun(
            results=results,
            times=times,
            executed_rows=executed_rows,
            rows=rows,
            errors=errors,
            non_finite_rows=progress.non_finite_rows,
        )

    def _rows_per_payload(self, payloads: Sequence[Tensors]) -> list[int]:
        if self._spec.has_batch_dimension:
            return rows_of_each(payloads)
        if len(payloads) != 1:
            raise ExecutionError(f"a model without batch dimension runs 1 request, found {len(payloads)}")
        return [1]

    def _try(self, payloads: Sequence[Tensors], rows: Sequence[int], progress: _Progress) -> Sequence[Outcome]:
        try:
            results = self._fit(payloads, rows, progress)
        except _OF_ALL as error:
            return [_as_value(error)] * len(payloads)
        except ExecutionError as error:
            return self._find_guilty(payloads, rows, progress, _as_value(error))
        progress.is_well = progress.tries == 1 and not progress.non_finite_rows and not progress.has_errors
        return results

    def _find_guilty(
        self, payloads: Sequence[Tensors], rows: Sequence[int], progress: _Progress, error: ExecutionError
    ) -> Sequence[Outcome]:
        """Breadth first, so that a batch whose halves and quarters all fail is given up early.

        Each result is the error of the smallest part that the request was in, unless that part succeeded.
        """
        results: list[Outcome] = [error] * len(payloads)
        waiting = _split(0, len(payloads))
        failures = 1
        for first, last in waiting:  # grows while it is walked
            try:
                results[first:last] = self._fit(payloads[first:last], rows[first:last], progress)
            except ExecutionError as error_of_part:
                results[first:last] = [_as_value(error_of_part)] * (last - first)
                if isinstance(error_of_part, _OF_ALL):
                    continue
                failures += 1
                if not progress.successes and failures >= _HOPELESS_TRIES:
                    break
                waiting += _split(first, last)
        return results

    def _fit(self, payloads: Sequence[Tensors], rows: Sequence[int], progress: _Progress) -> Sequence[Outcome]:
        """Run them, in halves if there is not enough memory for all at once."""
        is_too_large = sum(rows) > self._cap.rows and sum(rows) > self._cap.allowed_rows(self._clock.now_ns())
        halves = _halves(payloads, rows) if is_too_large else None
        if halves is None:
            try:
                return self._run_once(payloads, rows, progress)
            except OutOfMemoryError:
                can_be_smaller = self._lower_cap(sum(rows))
                halves = _halves(payloads, rows) if can_be_smaller else None
                if halves is None:
                    raise
        (left, left_rows), (right, right_rows) = halves
        outcomes: list[Sequence[Outcome]] = []
        for part, part_rows in ((left, left_rows), (right, right_rows)):
            try:
                outcomes.append(self._fit(part, part_rows, progress))
            except OutOfMemoryError as error:
                outcomes.append([error] * len(part))
        return _merged(outcomes[0], outcomes[1], is_cut=len(left) + len(right) > len(payloads))

    def _lower_cap(self, rows: int) -> bool:
        """Note that so many did not fit; returns whether fewer can be executed."""
        executed_rows = padded_rows(rows, self._allowed_rows) if self._spec.has_batch_dimension else 1
        if self._cap.too_large(executed_rows, self._clock.now_ns()):
            logger.warning(
                "model '%s' version %d: not enough memory for %d rows, larger batches run in parts of %d for now",
                self._spec.name,
                self._spec.version,
                executed_rows,
                self._cap.rows,
            )
        return self._cap.next_smaller(executed_rows) > 0

    def _run_once(self, payloads: Sequence[Tensors], rows: Sequence[int], progress: _Progress) -> Sequence[Outcome]:
        if not self._spec.has_batch_dimension:
            inputs, executed_rows = dense(payloads[0]), 1
        else:
            executed_rows = padded_rows(sum(rows), self._allowed_rows)
            inputs = gather(payloads, rows, executed_rows, self._allocate)
        if not progress.tries:
            progress.executed_rows = executed_rows
            progress.gathered_ns = self._clock.now_ns()
        progress.tries += 1
        try:
            outputs = self._computed(lambda: self._executor.run(inputs, executed_rows))
        finally:
            progress.computed_ns = self._clock.now_ns()
        if are_split(outputs):
            progress.successes += 1
            return self._answers(outputs, rows, progress)
        results: Sequence[Outcome] = self._cut(outputs, rows, executed_rows)
        bad = self._bad_rows(outputs, sum(rows))
        if bad.size:
            results = self._treat(inputs, outputs, rows, executed_rows, bad)
            progress.computed_ns = self._clock.now_ns()
            progress.non_finite_rows += bad.size
        progress.successes += 1
        return results

    def _answers(self, outputs: Tensors, rows: Sequence[int], progress: _Progress) -> Sequence[Outcome]:
        """Of an executor that has answered each request by itself."""
        answers = split_answers(outputs, rows)
        for index, (answer, count) in enumerate(zip(answers, rows, strict=True)):
            if isinstance(answer, ExecutionError):
                progress.has_errors = True
                continue
            bad = self._bad_rows(answer, count)
            if bad.size and self._spec.execution.non_finite is NonFinite.FAIL:
                (answers[index],) = _failed([answer], [count], bad)
            progress.non_finite_rows += bad.size
        return answers

    def _bad_rows(self, outputs: Tensors, rows: int) -> Rows:
        if self._spec.execution.non_finite is NonFinite.OFF:
            return NO_ROWS
        return non_finite_rows(outputs, rows, has_batch_dimension=self._spec.has_batch_dimension)

    def _computed(self, compute: Callable[[], Tensors]) -> Tensors:
        try:
            return compute()
        except BackendError:
            raise
        except BaseException as error:
            # SystemExit from model code too: it ends neither the thread nor the callers' waiting.
            raise ExecutionError(describe(error)) from error

    def _cut(self, outputs: Tensors, rows: Sequence[int], executed_rows: int) -> Sequence[Tensors]:
        return scatter(outputs, rows, executed_rows) if self._spec.has_batch_dimension else [outputs]

    def _treat(
        self, inputs: Tensors, outputs: Tensors, rows: Sequence[int], executed_rows: int, bad: Rows
    ) -> Sequence[Outcome]:
        """The answers of a batch with rows of NaN or infinite numbers, as the version wants them."""
        wish = self._spec.execution.non_finite
        if not self._has_warned:
            self._has_warned = True
            text = "model '%s' version %d: %d rows of a batch came out as NaN or infinite numbers (non_finite = %s)"
            logger.warning(text, self._spec.name, self._spec.version, bad.size, wish.value)
        if wish is NonFinite.RETRY_FP32:
            allowed = self._allowed_rows if self._spec.has_batch_dimension else None
            given = outputs
            outputs = self._computed(lambda: computed_again(self._executor, inputs, given, bad, allowed))
        results = self._cut(outputs, rows, executed_rows)
        return _failed(results, rows, bad) if wish is NonFinite.FAIL else results


Error = TypeVar("Error", bound=BackendError)


def _as_value(error: Error) -> Error:
    """An error that is handed on does not hold the frames it came through, nor their tensors."""
    for held in (error, error.__cause__):
        if held is not None:
            held.__traceback__ = None
    return error


def _failed(results: Sequence[Tensors], rows: Sequence[int], bad: Rows) -> Sequence[Outcome]:
    """An error in place of each answer that has one of the bad rows."""
    owners = np.searchsorted(np.cumsum(rows), bad, side="right")
    counts = np.bincount(owners, minlength=len(rows)).tolist()
    return [
        NonFiniteError(f"{count} of {of} rows came out as NaN or infinite numbers") if count else result
        for result, count, of in zip(results, counts, rows, strict=True)
    ]


def _split(first: int, last: int) -> list[tuple[int, int]]:
    """The two halves of a range, or nothing if it is one request."""
    middle = (first + last) // 2
    return [(first, middle), (middle, last)] if last - first > 1 else []


def _halves(
    payloads: Sequence[Tensors], rows: Sequence[int]
) -> tuple[tuple[list[Tensors], list[int]], tuple[list[Tensors], list[int]]] | None:
    """The batch in two parts of nearly the same number of rows, cutting a request if need be; None for one row."""
    total = sum(rows)
    if total < 2:
        return None
    wanted = total // 2
    left: tuple[list[Tensors], list[int]] = ([], [])
    right: tuple[list[Tensors], list[int]] = ([], [])
    for payload, count in zip(payloads, rows, strict=True):
        taken = min(count, wanted - sum(left[1]))
        for part, start, end in ((left, 0, taken), (right, taken, count)):
            if end > start:
                part[0].append({name: tensor[start:end] for name, tensor in payload.items()})
                part[1].append(end - start)
    return left, right


def _merged(left: Sequence[Outcome], right: Sequence[Outcome], *, is_cut: bool) -> Sequence[Outcome]:
    """The results of both halves; a request that was cut gets its parts joined, or the error of one of them."""
    if not is_cut:
        return [*left, *right]
    first, second = left[-1], right[0]
    whole: Outcome
    if isinstance(first, ExecutionError):
        whole = first
    elif isinstance(second, ExecutionError):
        whole = second
    else:
        whole = joined([first, second])
    return [*left[:-1], whole, *right[1:]]
