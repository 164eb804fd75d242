"""What a driver must do for the scheduler."""

from dataclasses import dataclass

from batching.core.policy import CloseReason


@dataclass(frozen=True, slots=True)
class Start:
    """Execute these tickets together on this instance, in this order.

    Attributes:
        batch: Names the batch in the `BatchDone` that ends it.
        instance: Where it runs.
        tickets: Members in order.
        rows: Their rows together.
        reason: Why the batch was closed with this size.
    """

    batch: int
    instance: str
    tickets: tuple[int, ...]
    rows: int
    reason: CloseReason


@dataclass(frozen=True, slots=True)
class Expire:
    """Answer this ticket with `DeadlineExceededError`. If it is running, its rows finish unheard."""

    ticket: int


Command = Start | Expire
