"""The longest prefix of the queue that may run as one batch."""

from dataclasses import dataclass

from batching.core.policy import CloseReason, QueueView


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `count` waiting requests, and why the next one is not among them."""

    count: int
    reason: CloseReason


def fitting_prefix(queue: QueueView, max_rows: int, max_requests: int | None = None) -> Prefix:
    """Take requests in service order while they fit; one that does not fit stops the walk, none is overtaken.

    Args:
        queue: Not empty.
        max_rows: The largest batch.
        max_requests: Most requests in one batch, or None.
    """
    count = rows = 0
    shape_key = None
    for ticket in queue:
        if count == max_requests or rows == max_rows:
            return Prefix(count, CloseReason.FULL)
        if count and ticket.shape_key != shape_key:
            return Prefix(count, CloseReason.SHAPE)
        if rows + ticket.rows > max_rows:
            return Prefix(count, CloseReason.OVERFLOW)
        count += 1
        rows += ticket.rows
        shape_key = ticket.shape_key
    full = count == max_requests or rows == max_rows
    return Prefix(count, CloseReason.FULL if full else CloseReason.EAGER)
