"""The textbook static batcher: it waits for a fixed number of rows.

An idle instance gets a batch of exactly `batch_rows` rows as soon as so many wait; fewer only if the next request has
another shape or would not fit. With a timeout, whatever is there starts when the first in the queue has waited that
long. Without one, an incomplete last batch waits for ever: deadlines are then the only way out.

It is a baseline to compare with (Clipper and Nexus call it fixed or static batching), not a rule to serve with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batching.core.actions import Action, Launch
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.prefix import fitting_prefix

_MICROSECOND_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSettings:
    """How many rows, and for how long at most.

    Attributes:
        batch_rows: Rows of every batch; a larger request runs alone. Above the largest batch it counts as that.
        timeout_us: Start what is there when the first in the queue has waited so long; None: never.
    """

    batch_rows: int
    timeout_us: int | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, found {self.batch_rows}")
        if self.timeout_us is not None and self.timeout_us < 0:
            raise ValueError(f"timeout_us must not be negative, found {self.timeout_us}; None waits for ever")


class Fixed:
    """The policy; it has no state of its own."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: FixedSettings) -> None:
        self._rows = settings.batch_rows
        self._timeout_ns = None if settings.timeout_us is None else settings.timeout_us * _MICROSECOND_NS

    def decide(self, view: View, news: News) -> Sequence[Action]:  # noqa: ARG002 - all is in the view
        """Launch a batch that is complete, or has waited long enough, on an idle instance."""
        if not view.idle_slots or not len(view.queue):
            return ()
        prefix = fitting_prefix(view.queue, min(self._rows, view.max_batch_rows))
        if prefix.reason is not CloseReason.EAGER:
            return (Launch(max(prefix.count, 1), prefix.reason),)
        due_ns = self._due_ns(view)
        if due_ns is not None and due_ns <= view.now_ns:
            return (Launch(prefix.count, CloseReason.DELAY),)
        return ()

    def wake_at_ns(self, view: View) -> int | None:
        """When the first in the queue has waited long enough, if an instance is there to take it."""
        return self._due_ns(view) if view.idle_slots else None

    def _due_ns(self, view: View) -> int | None:
        first = view.queue.first
        return None if first is None or self._timeout_ns is None else first.arrival_ns + self._timeout_ns
