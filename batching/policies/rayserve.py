"""Ray Serve's `@serve.batch`, as of Ray 2.60.

The rule is that of `_BatchQueue` (ray-project/ray, `python/ray/serve/batching.py`: wait_for_batch, _process_batches):

* a loop takes the first waiting request, then collects up to `max_batch_size` for at most `batch_wait_timeout_s` from
  that moment. A lone request always waits the whole time; a time of 0 batches only what is there at the same instant;
* a formed batch is closed for good, and waits, first come first served, until fewer than `max_concurrent_batches` run.
  The loop goes on meanwhile, so a busy replica piles up batches as small as their windows left them;
* if sizes are rows, a request that does not fit closes the batch and goes to the *end* of the queue;
* if the batch function blocks the event loop, as model code inside `async def` does, nothing is collected while a batch
  runs. After it a formed batch comes first, then one whose window is over, as it is, then who came in the meantime.

Not modelled: the replica's router, multiplexed models, answers streamed from a generator. A batch is also closed before
it passes the instances' cap in rows or would mix shapes. Versions before 2025 formed one batch after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batching.core.actions import Action, RefusalReason, StartBatch
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.form_ahead import FormAhead, being_formed, oldest_formed

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServeSettings:
    """The arguments of `@serve.batch`, and how the decorated function behaves.

    Attributes:
        max_batch_size: Largest batch in requests, or in rows with `batch_size_fn_rows`.
        batch_wait_timeout_s: Seconds to collect, from taking the first request.
        max_concurrent_batches: Batches that may run at once for each instance, which stands for a replica.
        batch_size_fn_rows: `batch_size_fn` gives a request's rows; else every request counts 1.
        blocking: The function blocks the event loop while it runs, so that one batch runs at a time.
    """

    max_batch_size: int = 10
    batch_wait_timeout_s: float = 0.01
    max_concurrent_batches: int = 1
    batch_size_fn_rows: bool = False
    blocking: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in ("max_batch_size", "max_concurrent_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if not 0 <= self.batch_wait_timeout_s < float("inf"):
            raise ValueError(
                f"batch_wait_timeout_s must not be negative or infinite, found {self.batch_wait_timeout_s}"
            )


class RayServe:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: RayServeSettings) -> None:
        size = settings.max_batch_size
        self._max_rows = size if settings.batch_size_fn_rows else None
        self._loop = FormAhead(
            window_ns=round(settings.batch_wait_timeout_s * _SECOND_NS),
            max_requests=None if settings.batch_size_fn_rows else size,
            max_rows=self._max_rows,
        )
        self._blocking = settings.blocking
        self._concurrent = settings.max_concurrent_batches

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:  # noqa: ARG002
        """Refuse a request that is larger than a batch."""
        return RefusalReason.TOO_MANY_ROWS if self._max_rows is not None and rows > self._max_rows else None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Form batches, and start the oldest one that is formed while not too many run."""
        if self._blocking:
            if view.running:
                return ()
            if news.freed and (actions := self._start(view) or self._close_late(view)):
                return actions
        return self._loop.step(view) or self._start(view)

    def wake_at_ns(self, view: View) -> int | None:
        """The end of the window, unless nobody can look at the clock then."""
        return None if self._blocking and view.running else self._loop.ends_ns(view)

    def _start(self, view: View) -> Sequence[Action]:
        if not view.idle_slots or len(view.running) >= self._concurrent * len(view.instances):
            return ()
        batch = oldest_formed(view)
        return () if batch is None else (StartBatch(batch.id),)

    def _close_late(self, view: View) -> Sequence[Action]:
        """Start the batch whose window ended while the event loop was blocked, before anyone else can join it."""
        batch = being_formed(view)
        if batch is None or not view.idle_slots or not self._loop.is_late(view):
            return ()
        return (StartBatch(batch.id, CloseReason.DELAY),)
