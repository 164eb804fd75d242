"""BentoML's adaptive batching.

The rule is that of `CorkDispatcher` (bentoml/BentoML, `_internal/marshal/dispatcher.py`: train_optimizer, controller).
A loop sleeps until somebody waits, then looks every millisecond, on the grid that begins there, until it starts a
batch, which it does as soon as nothing runs, unless waiting for one more request seems worth it:

* n requests wait on while n * (age of the newest + 1 ms + slope) is at most 95 % of the mean wait of recent batches.
  The means come from a line through the durations of recent batches (`Optimizer`), over requests, not rows. So there is
  no batch window: an idle server starts a lone request at once;
* if the estimate says that the first of several cannot be answered within `max_latency_ms`, it is shed; the same for a
  lone one that has waited so long behind a running batch. `max_latency_ms` is a bound for shedding, no window;
* a batch takes rows until `max_batch_size`; a request that does not fit is cut and its rest stays first;
* the first eleven batches train the line: nine start like any other, then one waits for two requests and one for three.

Each of the original's worker processes has its own queue and runs one batch at a time; here all instances share one
queue and one line, and "nothing runs" means that an instance is idle. A batch also ends before it would mix shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, NamedTuple

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import Batch, CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.bentoml_optimizer import FixedOptimizer, Optimizer
from batching.policies.prefix import fitting_prefix

_MILLISECOND_NS = 1_000_000
_TICK_NS = _MILLISECOND_NS
_PATIENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class BentoMLSettings:
    """The parameters of `@bentoml.api(batchable=True)`.

    Attributes:
        max_batch_size: Most rows in one batch.
        max_latency_ms: Answers that would come later are refused.
        trained: (seconds for one more request, seconds for an empty batch, mean wait in seconds) for a dispatcher that
            is neither trained nor learns; None, as in the original, for one that does.
    """

    max_batch_size: int = 100
    max_latency_ms: int = 60_000
    trained: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in ("max_batch_size", "max_latency_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.trained is not None and not all(0 <= value < float("inf") for value in self.trained):
            raise ValueError(f"trained must be three times, none negative or infinite, found {self.trained}")


class _Stage(NamedTuple):
    """A part of the training."""

    required: int  # requests that it wants to see: only more than that are shed
    batches: int
    jobs: int  # that a batch waits for


_TRAINING = (_Stage(2, 8, 1), _Stage(6, 1, 1), _Stage(5, 1, 2), _Stage(3, 1, 3))


class BentoML:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: BentoMLSettings) -> None:
        self._max_rows = settings.max_batch_size
        self._max_latency_ns = settings.max_latency_ms * _MILLISECOND_NS
        self._learns = settings.trained is None
        self._line = Optimizer(self._max_latency_ns) if settings.trained is None else FixedOptimizer(*settings.trained)
        self._stages = list(_TRAINING) if self._learns else []  # what is left of the training
        self._started = 0  # batches of the present stage
        self._patience_ns = 0.0  # age up to which the present stage waits for more
        self._trained_by: set[int] = set()  # running batches of the training
        self._tick_ns: int | None = None  # asleep until then; None: until somebody waits

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Look at the queue if it is time to."""
        if self._learns:
            for batch in news.freed:
                self._learn(batch, view.now_ns)
        if self._tick_ns is not None:
            if not news.timer or view.now_ns < self._tick_ns:
                return ()
            self._tick_ns = None
        first = view.queue.first
        if first is None:
            return ()
        action = self._train(view, first) if self._stages else self._serve(view, first)
        if action is None:
            self._tick_ns = view.now_ns + _TICK_NS
            return ()
        return (action,)

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """The next tick, while somebody waits."""
        return self._tick_ns

    def _serve(self, view: View, first: Ticket) -> Action | None:
        jobs = len(view.queue)
        age_ns = view.now_ns - first.arrival_ns
        if jobs > 1 and age_ns + self._line.duration_ns(jobs) >= self._max_latency_ns:
            return Drop((first,), RefusalReason.OVERLOADED)
        if not view.idle_slots:
            return Drop((first,), RefusalReason.OVERLOADED) if age_ns >= self._max_latency_ns else None
        return None if self._pays_to_wait(view, jobs) else self._launch(view)

    def _pays_to_wait(self, view: View, jobs: int) -> bool:
        if jobs >= self._max_rows:
            return False
        newest_ns = max(ticket.arrival_ns for ticket in view.queue)
        return jobs * (view.now_ns - newest_ns + _TICK_NS + self._line.slope_ns) <= self._line.wait_ns * _PATIENCE

    def _train(self, view: View, first: Ticket) -> Action | None:
        stage = self._stages[0]
        jobs, wanted = len(view.queue), min(stage.jobs, self._max_rows)
        age_ns = view.now_ns - first.arrival_ns
        if jobs > stage.required - self._started and age_ns >= self._max_latency_ns:
            return Drop((first,), RefusalReason.OVERLOADED)
        if wanted > 1 and jobs < wanted and self._line.duration_ns(wanted) + age_ns <= self._patience_ns:
            return None
        if not view.idle_slots:
            return None
        self._trained_by.add(view.next_batch)
        self._started += 1
        if self._started == stage.batches:
            self._end_stage()
        return self._launch(view)

    def _end_stage(self) -> None:
        """Go on to the next stage with a new line."""
        self._started = 0
        self._line.refresh()
        del self._stages[0]
        if self._stages:
            wanted = min(self._stages[0].jobs, self._max_rows)
            line = self._line
            self._patience_ns = min(_PATIENCE * self._max_latency_ns, line.duration_ns(2 * wanted + 1))

    def _launch(self, view: View) -> Launch:
        largest = min(self._max_rows, view.max_batch_rows)
        prefix = fitting_prefix(view.queue, largest)
        if prefix.reason is not CloseReason.OVERFLOW:
            return Launch(prefix.count, prefix.reason)
        room_rows = largest - sum(ticket.rows for ticket in islice(view.queue, prefix.count))
        return Launch(prefix.count + 1, CloseReason.SPLIT, rows_of_last=room_rows)

    def _learn(self, batch: Batch, now_ns: int) -> None:
        """A sample is what a batch took, over its requests, and how long its first one waited; 0 in the training."""
        is_training = batch.id in self._trained_by
        self._trained_by.discard(batch.id)
        if batch.failed or batch.started_ns is None:
            return
        wait_ns = 0 if is_training else batch.started_ns - batch.tickets[0].arrival_ns
        self._line.note(len(batch.tickets), batch.busy_ns, wait_ns, now_ns)
