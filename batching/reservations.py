"""The caller's side of an admitted request: room in the queue, used once or given back."""

from collections.abc import Coroutine, Hashable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar

from batching.callers import Answer
from batching.core.tickets import Sequence as TicketSequence

Payload = TypeVar("Payload")
Payload_contra = TypeVar("Payload_contra", contravariant=True)
Result = TypeVar("Result")
Prepared = TypeVar("Prepared")


class How(TypedDict, total=False):
    """What else `Scheduler.reserve` takes."""

    deadline_ns: int | None
    expires_ns: int | None
    priority: int
    shape_key: Hashable
    timeout_ns: int | None
    sequence: TicketSequence | None


class Owner(Protocol[Payload_contra, Result]):
    """Who has admitted the request: the runner."""

    async def unless_ended(self, ticket: int, rows: Coroutine[Any, Any, Prepared]) -> Prepared:
        """The result of a coroutine, unless the ticket is answered with an error before."""
        ...

    async def wait_for_answer(self, ticket: int, payload: Payload_contra) -> Answer[Result]:
        """Queue a ticket's payload and wait."""
        ...

    def withdraw(self, ticket: int) -> None:
        """Forget a reserved ticket that was never queued."""
        ...


class Reservation(Generic[Payload, Result]):
    """Room in the queue for one request, given back on exit unless `execute` was called."""

    __slots__ = ("_owner", "_ticket")

    def __init__(self, owner: "Owner[Payload, Result]", ticket: int) -> None:
        self._owner = owner
        self._ticket: int | None = ticket

    async def prepare(self, rows: Coroutine[Any, Any, Prepared]) -> Prepared:
        """Wait for what makes the rows ready, but not beyond the end of the reservation.

        Raises:
            DeadlineExceededError: The deadline passed first; the preparation is cancelled.
            ShuttingDownError: The runner stopped first; likewise.
            Exception: What the preparation raised.
        """
        if self._ticket is None:
            raise RuntimeError("a reservation is good for one execution")
        return await self._owner.unless_ended(self._ticket, rows)

    async def execute(self, payload: Payload) -> Answer[Result]:
        """Queue the ready rows and wait for their answer. Once per reservation.

        Raises:
            DeadlineExceededError: The deadline passed first.
            ShuttingDownError: The runner stopped.
            Exception: What the instance raised for the whole batch.
        """
        if self._ticket is None:
            raise RuntimeError("a reservation is good for one execution")
        ticket, self._ticket = self._ticket, None
        return await self._owner.wait_for_answer(ticket, payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._ticket is not None:
            self._owner.withdraw(self._ticket)
            self._ticket = None
