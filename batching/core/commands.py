"""What a driver must do for the scheduler."""

from typing import NamedTuple

from batching.core.actions import RefusalReason
from batching.core.batches import CloseReason


class Part(NamedTuple):
    """Rows of a request that belong to one batch."""

    first_row: int
    rows: int


class Start(NamedTuple):
    """Execute these tickets together on this instance, in this order.

    Attributes:
        batch: Names the batch in the `BatchDone` and `InstanceFree` that end it.
        instance: Where it runs.
        tickets: Members in order.
        rows: Their rows together.
        reason: Why the batch was closed with this size.
        opened_ns: When it got its first member.
        sealed_ns: When it was closed.
        taken_ns: When each member joined it; empty if all did when it was opened.
        parts: If a member is only a part of its request: the rows of every member. A request whose parts run in
            several batches is answered when the last of them has ended.
        slots: For models of sequences: the place of every member in the executed batch, ascending; the places up to
            the last one that are not named are to be filled with rows that are not ready.
    """

    batch: int
    instance: str
    tickets: tuple[int, ...]
    rows: int
    reason: CloseReason
    opened_ns: int = 0
    sealed_ns: int = 0
    taken_ns: tuple[int, ...] = ()
    parts: tuple[Part, ...] | None = None
    slots: tuple[int, ...] | None = None


class Expire(NamedTuple):
    """Answer this ticket with `DeadlineExceededError`. If it is running, its rows finish unheard."""

    ticket: int


class Refuse(NamedTuple):
    """The policy drops this ticket: answer it with `batching.core.errors.refusal_error(reason)`."""

    ticket: int
    reason: RefusalReason


class Abort(NamedTuple):
    """Stop executing this batch; its members will start again. Only if the driver said that it can."""

    batch: int


class Release(NamedTuple):
    """The answer of this ticket may leave now. Only with `preserve_ordering`; else answers leave as batches end."""

    ticket: int


Command = Start | Expire | Refuse | Abort | Release
