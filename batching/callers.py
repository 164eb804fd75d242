"""Callers of the live driver, and what they get."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from batching.core.batches import CloseReason
from batching.core.commands import Part, Start
from batching.core.errors import PolicyError
from batching.ports import BatchResult, BatchTimes

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Result_contra = TypeVar("Result_contra", contravariant=True)


@dataclass(slots=True)  # not frozen, nor a tuple: one is made for each request, in half the time
class Answer(Generic[Result]):
    """What a request got, and where its time went.

    Attributes:
        result: The instance's result for this payload.
        arrived_ns: When it entered the queue.
        times: When its batch was executed.
        batch_rows: Rows of that batch.
    """

    result: Result
    arrived_ns: int
    times: BatchTimes
    batch_rows: int


class BatchReport(NamedTuple):
    """One executed batch, for statistics.

    Attributes:
        rows: Its rows.
        requests: Its members.
        failed_requests: Those of them that got an error.
        padding_rows: Rows that the instance added.
        times: When it was executed; None if it failed.
        reason: Why it had this size.
        opened_ns: When it got its first member.
        sealed_ns: When it was closed.
    """

    rows: int
    requests: int
    padding_rows: int
    times: BatchTimes | None
    reason: CloseReason
    opened_ns: int
    sealed_ns: int
    failed_requests: int = 0


@dataclass(frozen=True, slots=True)
class Splitting(Generic[Payload, Result]):
    """How a request is cut for policies that fill batches with parts of requests.

    Attributes:
        cut: The rows of a payload from a first row on, so many.
        join: The results of all parts, in order of their rows, as one.
    """

    cut: Callable[[Payload, int, int], Payload]
    join: Callable[[Sequence[Result]], Result]


class Promise(Protocol[Result_contra]):
    """Where an answer goes: a future, or a `Submission`."""

    def done(self) -> bool:
        """Whether it takes nothing more."""
        ...

    def set_result(self, result: Result_contra, /) -> None:
        """The answer."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """The error that is the answer."""
        ...


class Caller(Generic[Payload, Result]):
    """A caller. In the runner's table from its reservation until it leaves with its answer or without.

    Args:
        promise: Where the answer goes.
        rows: Rows of the request; kept.
        is_held: Keep the answer until `release`.

    Attributes:
        payload: Its rows, once it has arrived.
        arrived_ns: When it did.
        is_running: Some of its rows are in a batch that has started.
        outcome: What is held.
    """

    # Defaults of what most callers never get, on the class, as of a `Ticket`.
    payload: Payload
    arrived_ns = 0
    is_running = False
    outcome: Answer[Result] | Exception | None = None
    _is_held = False
    _rows_left = 0
    _parts: list[tuple[int, Answer[Result]]] | None = None

    def __init__(self, promise: Promise[Answer[Result]], rows: int, *, is_held: bool) -> None:
        self._promise = promise
        self.rows = rows
        if is_held:
            self._is_held = True

    @property
    def future(self) -> "asyncio.Future[Answer[Result]]":
        """The promise, of a caller that waits for it in a task."""
        assert isinstance(self._promise, asyncio.Future)  # noqa: S101 - reserved tickets have one
        return self._promise

    def answer(self, answer: Answer[Result]) -> None:
        """All rows are there."""
        if self._is_held:
            self.outcome = answer
        elif not self._promise.done():  # the caller may have left, or its deadline passed
            self._promise.set_result(answer)

    def answer_part(self, answer: Answer[Result], part: Part, join: Callable[[Sequence[Result]], Result]) -> None:
        """Some rows are there; with the last of them the request is answered."""
        if self._parts is None:
            self._parts, self._rows_left = [], self.rows
        self._parts.append((part.first_row, answer))
        self._rows_left -= part.rows
        if self._rows_left == 0:
            parts = [part_answer for _, part_answer in sorted(self._parts, key=lambda pair: pair[0])]
            first_ns = min(part_answer.times.started_ns for part_answer in parts)
            largest = max(part_answer.batch_rows for part_answer in parts)
            joined = join([part_answer.result for part_answer in parts])
            times = answer.times._replace(started_ns=first_ns)
            self.answer(Answer(result=joined, arrived_ns=self.arrived_ns, times=times, batch_rows=largest))

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless something else was first."""
        if not self._promise.done():
            self._promise.set_exception(error)

    def release(self) -> None:
        """What is held may leave."""
        self._is_held = False
        if isinstance(self.outcome, Exception):
            self.fail(self.outcome)
        elif self.outcome is not None:
            self.answer(self.outcome)

    def fail_in_order(self, error: Exception) -> None:
        """Answer with an error when it is this caller's turn."""
        if self._is_held:
            self.outcome = error
        else:
            self.fail(error)

    def forget(self) -> None:
        """Nobody will wait for the answer."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # seen, so that asyncio does not report it as lost


class Members(Generic[Payload, Result]):
    """The callers in a batch that starts.

    Args:
        batch: It.
        callers: In its order.
        splitting: For members of which it has only a part of the rows.

    Attributes:
        given_up: Tickets of which no more rows need to run: a part of them has failed.
    """

    __slots__ = ("_callers", "_splitting", "batch", "given_up")

    def __init__(
        self, batch: Start, callers: Sequence[Caller[Payload, Result]], splitting: Splitting[Payload, Result] | None
    ) -> None:
        self.batch = batch
        self.given_up: list[int] = []
        self._callers = callers
        self._splitting = splitting
        for caller in callers:
            caller.is_running = True

    def __len__(self) -> int:
        return len(self._callers)

    def payloads(self) -> list[Payload]:
        """What the batch is made of. Raises PolicyError, or what cutting raises."""
        if self.batch.parts is None:
            return [caller.payload for caller in self._callers]
        if self._splitting is None:
            raise PolicyError("a request was cut, but nobody said how: the runner has no splitting")
        cut = self._splitting.cut
        return [cut(caller.payload, *part) for caller, part in zip(self._callers, self.batch.parts, strict=True)]

    def answer(self, outcome: BatchResult[Result] | Exception) -> int:
        """Give each its result or error. Returns how many got an error."""
        if isinstance(outcome, Exception):
            return self._fail_all(outcome)
        try:
            return self._hand_out(outcome)
        except Exception as error:  # noqa: BLE001 - e.g. of parts that cannot be joined: it is theirs
            return self._fail_all(error)

    def _hand_out(self, outcome: BatchResult[Result]) -> int:
        times, rows, is_whole = outcome.times, self.batch.rows, self.batch.parts is None
        errors = 0
        for place, (caller, result) in enumerate(zip(self._callers, outcome.results, strict=True)):
            if isinstance(result, Exception):
                errors += 1
                self._fail(place, caller, result)
            elif is_whole:
                caller.answer(Answer(result, caller.arrived_ns, times, rows))
            else:
                self._answer_part(place, caller, Answer(result, caller.arrived_ns, times, rows))
        return errors

    def _answer_part(self, place: int, caller: Caller[Payload, Result], answer: Answer[Result]) -> None:
        assert self.batch.parts is not None  # noqa: S101 - asked by the caller
        assert self._splitting is not None  # noqa: S101 - or there were no payloads
        caller.answer_part(answer, self.batch.parts[place], self._splitting.join)

    def _fail_all(self, error: Exception) -> int:
        for place, caller in enumerate(self._callers):
            self._fail(place, caller, error)
        return len(self._callers)

    def _fail(self, place: int, caller: Caller[Payload, Result], error: Exception) -> None:
        parts = self.batch.parts
        if parts is not None and parts[place].rows < caller.rows:
            caller.fail(error)
            self.given_up.append(self.batch.tickets[place])
        else:
            caller.fail_in_order(error)
