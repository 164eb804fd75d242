"""What the scheduler can refuse.

BatchingError
├── QueueFullError         no room: limit in requests or rows
├── DeadlineExceededError  the caller's deadline passed, or cannot be met
├── TooManyRowsError       more rows than the largest batch
├── ShuttingDownError      the scheduler takes no more requests
└── PolicyError            a policy broke a law: a defect of the program, never of a request
"""

import copyreg
from typing import Any

from typing_extensions import override


class BatchingError(Exception):
    """Base of all errors of this package. Instances survive copying and pickling, whatever their constructors."""

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class QueueFullError(BatchingError):
    """No room in the queue; try again later.

    Attributes:
        limit: The limit that was reached.
        unit: What it counts, ``requests`` or ``rows``.
    """

    def __init__(self, *, limit: int, unit: str) -> None:
        super().__init__(f"Exceeds maximum queue size ({limit} {unit})")
        self.limit = limit
        self.unit = unit


class DeadlineExceededError(BatchingError):
    """The deadline passed before the answer was ready.

    Attributes:
        admitted: Whether the request had been admitted; False if its deadline had passed before.
    """

    def __init__(self, *, admitted: bool = True) -> None:
        super().__init__("Request timeout expired")
        self.admitted = admitted


class TooManyRowsError(BatchingError):
    """One request has more rows than the largest batch.

    Attributes:
        rows: Rows of the request.
        limit_rows: The largest batch.
    """

    def __init__(self, *, rows: int, limit_rows: int) -> None:
        super().__init__(f"request has {rows} rows, the largest batch is {limit_rows}")
        self.rows = rows
        self.limit_rows = limit_rows


class ShuttingDownError(BatchingError):
    """The scheduler takes no more requests."""

    def __init__(self) -> None:
        super().__init__("Server is stopping, scheduler for model has stopped accepting new inference requests")


class PolicyError(BatchingError):
    """A policy broke a law of the scheduler; the message names the law."""
