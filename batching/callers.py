"""Callers of the live driver, and what they get."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from batching.core.batches import CloseReason
from batching.core.commands import Part
from batching.ports import BatchTimes

Payload = TypeVar("Payload")
Result = TypeVar("Result")


class Answer(NamedTuple, Generic[Result]):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One executed batch, for statistics.

    Attributes:
        rows: Its rows.
        requests: Its members.
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


@dataclass(frozen=True, slots=True)
class Splitting(Generic[Payload, Result]):
    """How a request is cut for policies that fill batches with parts of requests.

    Attributes:
        cut: The rows of a payload from a first row on, so many.
        join: The results of all parts, in order of their rows, as one.
    """

    cut: Callable[[Payload, int, int], Payload]
    join: Callable[[Sequence[Result]], Result]


class Caller(Generic[Payload, Result]):
    """A caller. In the runner's table from its reservation until it leaves with its answer or without.

    Args:
        future: Where the answer goes.
        rows: Rows of the request; kept.
        is_held: Keep the answer until `release`.
    """

    __slots__ = (
        "_is_held",
        "_parts",
        "_rows_left",
        "arrived_ns",
        "future",
        "is_running",
        "outcome",
        "payload",
        "rows",
    )

    def __init__(self, future: "asyncio.Future[Answer[Result]]", rows: int, *, is_held: bool) -> None:
        self.payload: Payload
        self.future = future
        self.arrived_ns = 0
        self.is_running = False  # some of its rows are in a batch that has started
        self.outcome: Answer[Result] | Exception | None = None
        self.rows = self._rows_left = rows
        self._is_held = is_held
        self._parts: list[tuple[int, Answer[Result]]] = []

    def answer(self, answer: Answer[Result]) -> None:
        """All rows are there."""
        self._settle(answer)

    def answer_part(self, answer: Answer[Result], part: Part, join: Callable[[Sequence[Result]], Result]) -> None:
        """Some rows are there; with the last of them the request is answered."""
        self._parts.append((part.first_row, answer))
        self._rows_left -= part.rows
        if self._rows_left == 0:
            parts = [part_answer for _, part_answer in sorted(self._parts, key=lambda pair: pair[0])]
            first_ns = min(part_answer.times.started_ns for part_answer in parts)
            largest = max(part_answer.batch_rows for part_answer in parts)
            joined = join([part_answer.result for part_answer in parts])
            times = answer.times._replace(started_ns=first_ns)
            self._settle(Answer(result=joined, arrived_ns=self.arrived_ns, times=times, batch_rows=largest))

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless something else was first."""
        if not self.future.done():
            self.future.set_exception(error)

    def release(self) -> None:
        """What is held may leave."""
        self._is_held = False
        if self.outcome is not None:
            self._settle(self.outcome)

    def fail_in_order(self, error: Exception) -> None:
        """Answer with an error when it is this caller's turn."""
        self._settle(error)

    def forget(self) -> None:
        """Nobody will wait for the answer."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # seen, so that asyncio does not report it as lost

    def _settle(self, outcome: "Answer[Result] | Exception") -> None:
        if self._is_held:
            self.outcome = outcome
        elif not self.future.done():  # the caller may have left, or its deadline passed
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)
