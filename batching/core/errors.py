"""What the scheduler can refuse.

BatchingError
├── QueueFullError         no room: limit in requests or rows
├── DeadlineExceededError  the caller's deadline passed
├── HopelessError          the caller's deadline cannot be met, or only at the cost of others
├── OverloadedError        shed by the policy
├── SequenceError          a request of a stateful model does not fit its sequence
├── TooManyRowsError       more rows than the largest batch
├── ShuttingDownError      the scheduler takes no more requests
└── PolicyError            a policy broke a law: a defect of the program, never of a request
"""

import copyreg
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from batching.core.actions import RefusalReason


class BatchingError(Exception):
    """Base of all errors of this package. Instances survive copying and pickling, whatever their constructors.

    Attributes:
        admitted: Whether the request had been admitted; then it counts as failed, otherwise as refused.
    """

    admitted = False

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class QueueFullError(BatchingError):
    """No room in the queue; try again later.

    Attributes:
        limit: The limit that was reached; None if it is the policy's own.
        unit: What it counts, ``requests`` or ``rows``.
    """

    def __init__(self, *, limit: int | None = None, unit: str = "") -> None:
        which = f"{limit} {unit}" if limit is not None else "a limit of the model's batching policy"
        super().__init__(f"Exceeds maximum queue size ({which})")
        self.limit = limit
        self.unit = unit


class DeadlineExceededError(BatchingError):
    """The deadline passed before the answer was ready."""

    def __init__(self, *, admitted: bool = True) -> None:
        super().__init__("Request timeout expired")
        self.admitted = admitted


class HopelessError(BatchingError):
    """The deadline cannot be met any more, or only by making others late."""

    def __init__(self) -> None:
        super().__init__("Request cannot be answered within its timeout or the model's latency objective")


class OverloadedError(BatchingError):
    """The policy shed the request in order to serve the others in time; try again later."""

    def __init__(self) -> None:
        super().__init__("Request was shed: the model is overloaded")


class SequenceError(BatchingError):
    """The request belongs to a sequence that is unknown, has ended or timed out, or has no slot."""

    def __init__(self) -> None:
        super().__init__("Request does not fit its sequence: it was not started, has ended, or timed out")


class TooManyRowsError(BatchingError):
    """One request has more rows than the largest batch.

    Attributes:
        rows: Rows of the request, if known.
        limit_rows: The largest batch, if known.
    """

    def __init__(self, *, rows: int | None = None, limit_rows: int | None = None) -> None:
        known = rows is not None and limit_rows is not None
        sentence = f"request has {rows} rows, the largest batch is {limit_rows}"
        super().__init__(
            sentence if known else "request has more rows than the largest batch of the policy, or of the instances now"
        )
        self.rows = rows
        self.limit_rows = limit_rows


class ShuttingDownError(BatchingError):
    """The scheduler takes no more requests."""

    def __init__(self) -> None:
        super().__init__("Server is stopping, scheduler for model has stopped accepting new inference requests")


class PolicyError(BatchingError):
    """A policy broke a law of the scheduler; the message names the law."""


_ERRORS: dict[RefusalReason, Callable[[], BatchingError]] = {
    RefusalReason.QUEUE_FULL: QueueFullError,
    RefusalReason.TIMEOUT: DeadlineExceededError,
    RefusalReason.HOPELESS: HopelessError,
    RefusalReason.OVERLOADED: OverloadedError,
    RefusalReason.TOO_MANY_ROWS: TooManyRowsError,
    RefusalReason.SEQUENCE: SequenceError,
}


def refusal_error(reason: RefusalReason, *, admitted: bool) -> BatchingError:
    """What a caller gets whose request the policy refuses, before or after its admission."""
    error = _ERRORS[reason]()
    error.admitted = admitted
    return error
