"""How much one scheduler may hold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one model version's queue.

    Attributes:
        max_batch_rows: The largest batch, and so the largest request.
        max_requests: Requests that may be admitted and not yet executing.
        max_rows: The same in rows.
    """

    max_batch_rows: int
    max_requests: int = 1024
    max_rows: int = 4096

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in ("max_batch_rows", "max_requests", "max_rows"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if self.max_rows < self.max_batch_rows:
            raise ValueError(f"max_rows ({self.max_rows}) must hold one batch (max_batch_rows {self.max_batch_rows})")
