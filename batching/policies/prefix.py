"""The longest prefix of the queue that may run as one batch."""

from dataclasses import dataclass

from batching.core.batches import Batch, CloseReason
from batching.core.policy import QueueView


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `count` waiting requests, and why the next one is not among them."""

    count: int
    reason: CloseReason


def fitting_prefix(
    queue: QueueView, max_rows: int, max_requests: int | None = None, joins: Batch | None = None
) -> Prefix:
    """Take requests in service order while they fit; one that does not fit stops the walk, none is overtaken.

    Args:
        queue: Not empty, unless `joins` is given.
        max_rows: The largest batch.
        max_requests: Most requests in one batch, or None.
        joins: The batch that they would join; its rows and requests count.
    """
    count = len(joins.tickets) if joins else 0
    rows = joins.rows if joins else 0
    shape_key = joins.tickets[0].shape_key if joins else None
    already = count
    for ticket in queue:
        if count == max_requests or rows == max_rows:
            return Prefix(count - already, CloseReason.FULL)
        if count and ticket.shape_key != shape_key:
            return Prefix(count - already, CloseReason.SHAPE)
        if rows + ticket.rows > max_rows:
            return Prefix(count - already, CloseReason.OVERFLOW)
        count += 1
        rows += ticket.rows
        shape_key = ticket.shape_key
    full = count == max_requests or rows == max_rows
    return Prefix(count - already, CloseReason.FULL if full else CloseReason.EAGER)
