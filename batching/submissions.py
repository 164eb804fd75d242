"""Requests without a task that waits: their answer goes to a function, which costs a fraction of waking a task."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")

Deliver = Callable[[Value | BaseException], None]
"""Called once, on the event loop and never within `submit`: with the answer, or with the error that is it."""


class Call(Protocol):
    """What `submit` gives to who asked."""

    def cancel(self) -> None:
        """Nobody wants the answer any more: `Deliver` is called at once with CancelledError, unless it is over."""
        ...


class SubmissionOwner(Protocol[Value]):
    """Where the request was submitted: the runner."""

    def note_settled(self, submission: "Submission[Value]") -> None:
        """It has an outcome, to be delivered soon."""
        ...

    def forsake(self, ticket: int) -> None:
        """Its caller has left before there was any."""
        ...


class Submission(Generic[Value]):
    """Takes an outcome as a future does, and is a `Call`. Belongs to the event loop.

    Args:
        owner: Told about what happens.
        reply: Gets the outcome.

    Attributes:
        ticket: The owner's number for it.
    """

    __slots__ = ("_outcome", "_owner", "_reply", "ticket")

    ticket: int

    def __init__(self, owner: SubmissionOwner[Value], reply: Deliver[Value]) -> None:
        self._owner = owner
        self._reply: Deliver[Value] | None = reply
        self._outcome: Value | BaseException | None = None

    def done(self) -> bool:
        """Whether there is an outcome, delivered or not."""
        return self._outcome is not None or self._reply is None

    def set_result(self, result: Value) -> None:
        """It is answered."""
        self._outcome = result
        self._owner.note_settled(self)

    def set_exception(self, error: BaseException) -> None:
        """It has failed."""
        self._outcome = error
        self._owner.note_settled(self)

    def cancel(self) -> None:
        """See `Call`."""
        if not self.done():
            self._outcome = asyncio.CancelledError()
            self._owner.forsake(self.ticket)
            self.deliver()

    def deliver(self) -> None:
        """Hand the outcome out, and keep nothing: whoever keeps the call shall keep no tensors."""
        reply, outcome = self._reply, self._outcome
        self._reply = self._outcome = None
        if reply is not None and outcome is not None:
            reply(outcome)


def settle(future: "asyncio.Future[Value]", outcome: Value | BaseException) -> None:
    """A reply, with a future before it: for who waits in a task."""
    if future.done():  # the caller has left
        return
    if isinstance(outcome, asyncio.CancelledError):
        future.cancel()
    elif isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
