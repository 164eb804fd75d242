"""Forming batches ahead of time, as servers do whose batching loop does not look at the instances.

The loop takes the first waiting request into a new batch and goes on taking until the batch is full or its window is
over; then the batch is closed for good and the loop begins again. Who executes it, and when, is another matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from batching.core.actions import Action, Drop, RefusalReason, Requeue, Seal, Take, Where
from batching.core.batches import Batch, CloseReason
from batching.core.policy import View
from batching.policies.prefix import fitting_prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAhead:
    """One batching loop.

    Attributes:
        window_ns: How long it collects, from the moment at which it took the first request.
        max_requests: Most requests in one batch, or None.
        max_rows: Most rows in one batch; who does not fit goes to the end of the queue. None: what the instances take,
            and who does not fit stays first.
    """

    window_ns: int
    max_requests: int | None = None
    max_rows: int | None = None

    def step(self, view: View) -> Sequence[Action]:
        """Take what fits into the batch that is being formed, and close it if it is full or its window is over."""
        batch = being_formed(view)
        if not len(view.queue) or self.is_late(view):
            return (Seal(batch.id, CloseReason.DELAY),) if batch is not None and self._is_over(view, batch) else ()
        prefix = fitting_prefix(view.queue, self._largest_rows(view), self.max_requests, batch)
        actions: list[Action] = [Take(prefix.count, batch.id if batch else None)] if prefix.count else []
        number = batch.id if batch else view.next_batch
        if prefix.reason is CloseReason.EAGER:  # there is room
            return (*actions, Seal(number, CloseReason.DELAY)) if self._is_over(view, batch) else actions
        if prefix.reason is CloseReason.OVERFLOW and self.max_rows is not None:
            misfit = next(islice(view.queue, prefix.count, None))
            if misfit.rows > self._largest_rows(view):
                return (*actions, Drop((misfit,), RefusalReason.TOO_MANY_ROWS))
            return (*actions, Seal(number, CloseReason.OVERFLOW), Requeue((misfit,), Where.BACK))
        return (*actions, Seal(number, prefix.reason))

    def is_late(self, view: View) -> bool:
        """Whether the window was over before now, so that who waits has come too late for it."""
        batch = being_formed(view)
        return batch is not None and view.now_ns > batch.opened_ns + self.window_ns

    def ends_ns(self, view: View) -> int | None:
        """When the window is over, or None: nothing is being formed."""
        batch = being_formed(view)
        return None if batch is None else batch.opened_ns + self.window_ns

    def _is_over(self, view: View, batch: Batch | None) -> bool:
        """Whether the window of `batch`, or of one that is opened now, ends now or has ended."""
        opened_ns = view.now_ns if batch is None else batch.opened_ns
        return view.now_ns >= opened_ns + self.window_ns

    def _largest_rows(self, view: View) -> int:
        return view.max_batch_rows if self.max_rows is None else min(self.max_rows, view.max_batch_rows)


def being_formed(view: View) -> Batch | None:
    """The batch that is not closed; there is one at most, the newest."""
    batches = view.batches
    return batches[-1] if batches and batches[-1].sealed_ns is None else None


def oldest_formed(view: View) -> Batch | None:
    """The next closed batch to start."""
    batches = view.batches
    return batches[0] if batches and batches[0].sealed_ns is not None else None
