"""How many rows fit into a device's memory, learned from batches that did not fit."""

from bisect import bisect_left
from collections.abc import Sequence

from batching.clock import SECOND_NS

RETRY_NS = 60 * SECOND_NS
"""After this time without a failure, twice as many rows are tried: another program may have freed the memory."""


class MemoryCap:
    """The cap of one instance: halved when memory does not suffice, doubled again later.

    Args:
        largest_rows: The cap without any failure.
        sizes: Batch sizes that are executed, ascending; empty means any.
    """

    def __init__(self, largest_rows: int, sizes: Sequence[int] = ()) -> None:
        self.failures = 0
        self._largest_rows = largest_rows
        self._sizes = sizes
        self._rows = largest_rows
        self._retry_at_ns = 0

    @property
    def rows(self) -> int:
        """Rows that are run at once, at least 1."""
        return self._rows

    def allowed_rows(self, now_ns: int) -> int:
        """Rows that may be run at once now."""
        if self._rows < self._largest_rows and now_ns >= self._retry_at_ns:
            self._rows = min(self._largest_rows, 2 * self._rows)
            self._retry_at_ns = now_ns + RETRY_NS
        return self._rows

    def too_large(self, rows: int, now_ns: int) -> bool:
        """A batch of `rows` executed rows did not fit. Returns whether that lowers the cap."""
        self.failures += 1
        self._retry_at_ns = now_ns + RETRY_NS
        lower = self.next_smaller(rows) or (self._sizes[0] if self._sizes else 1)
        if lower >= self._rows:
            return False
        self._rows = lower
        return True

    def next_smaller(self, rows: int) -> int:
        """What to try when `rows` executed rows do not fit: half, or the next smaller size; 0 if there is none."""
        if not self._sizes:
            return rows // 2
        place = bisect_left(self._sizes, rows)
        return self._sizes[place - 1] if place else 0
