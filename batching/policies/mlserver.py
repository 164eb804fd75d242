"""MLServer's adaptive batching.

The rule is that of `AdaptiveBatcher` (SeldonIO/MLServer, `mlserver/batching/adaptive.py`: _batcher, _batch_requests):
a loop collects up to `max_batch_size` *requests*, whatever their rows, for at most `max_batch_time` from the moment at
which it takes the first one, hands the batch over and begins again. A lone request always waits the whole time; a
backlog behind a full batch begins its own window at the hand-over. Batching is off unless the size is above 1 and the
time above 0.

The original hands over without looking at its workers and has no limit on batches that run at once; here a formed
batch starts, first come first served, as soon as an instance slot is idle. With enough slots there is no difference.
Two more differences: a batch is also closed before it passes the instances' cap in rows, or would mix shapes (there the
whole batch fails), and a caller that leaves takes nobody else's answer with it: in the original, members behind a
cancelled one are never answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batching.core.actions import Action, StartBatch
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.form_ahead import FormAhead, oldest_formed
from batching.policies.greedy import Greedy

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MLServerSettings:
    """The fields of model-settings.json.

    Attributes:
        max_batch_size: Most requests in one batch; 0 or 1 turns batching off.
        max_batch_time: Seconds to collect; 0 turns batching off.
    """

    max_batch_size: int = 0
    max_batch_time: float = 0.0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in ("max_batch_size", "max_batch_time"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must not be negative, nor infinite, found {getattr(self, name)}")

    @property
    def batches(self) -> bool:
        """Whether batching is on."""
        return self.max_batch_size > 1 and self.max_batch_time > 0


class MLServer:
    """The policy; one object per model version."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: MLServerSettings) -> None:
        self._loop = FormAhead(
            window_ns=round(settings.max_batch_time * _SECOND_NS), max_requests=settings.max_batch_size
        )
        self._single = None if settings.batches else Greedy(max_requests=1)

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Form batches, and start the oldest one that is formed."""
        if self._single is not None:
            return self._single.decide(view, news)
        return self._loop.step(view) or self._start(view)

    def wake_at_ns(self, view: View) -> int | None:
        """The end of the window."""
        return None if self._single is not None else self._loop.ends_ns(view)

    def _start(self, view: View) -> Sequence[Action]:
        batch = oldest_formed(view) if view.idle_slots else None
        return () if batch is None else (StartBatch(batch.id),)
