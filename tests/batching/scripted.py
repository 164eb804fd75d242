"""A policy that does as it is told, to show what the scheduler makes of each action."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from batching.core.actions import Action
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined, Timer
from batching.core.limits import Limits
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler

Step = Callable[[View], Sequence[Action]]


class Told:
    """Performs `next` once, whenever it is set."""

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self) -> None:
        self.next: Step | None = None
        self.heard: list[str] = []  # what the policy was told, in words

    def decide(self, view: View, news: News) -> Sequence[Action]:
        self.heard += [
            *(f"arrived {ticket.id}" for ticket in news.arrived),
            *(f"gone {ticket.id}" for ticket in news.gone),
            *(f"answered {batch.id}" for batch in news.answered),
            *(f"freed {batch.id} after {batch.busy_ns}{' (failed)' if batch.failed else ''}" for batch in news.freed),
            *(["fleet"] if news.fleet else []),
            *(["timer"] if news.timer else []),
        ]
        step, self.next = self.next, None
        return step(view) if step else ()

    def wake_at_ns(self, view: View) -> int | None:
        return None


class ToldByDeadline(Told):
    queue_order: ClassVar[QueueOrder] = QueueOrder.DEADLINE


class Bench:
    """A scheduler with instances i0, i1, ... and short ways to drive it; every step is a nanosecond later."""

    def __init__(self, policy: Told | None = None, *, rows: int = 8, instances: int = 1, slots: int = 1, **how) -> None:
        self.policy = policy or Told()
        self.scheduler = Scheduler(self.policy, Limits(max_batch_rows=rows), **how)
        self.now_ns = 0
        self.handle(*(InstanceJoined(f"i{number}", "cpu", slots) for number in range(instances)))

    def handle(self, *events) -> list:
        self.now_ns += 1
        return self.scheduler.handle(events, self.now_ns)

    def arrive(self, rows: int = 1, **details) -> int:
        ticket = self.scheduler.reserve(rows, self.now_ns, **details)
        self.handle(Arrived(ticket))
        return ticket

    def do(self, *actions: Action | Step) -> list:
        """Let the policy perform these actions, and say what was commanded."""
        self.policy.next = lambda view: [
            chosen for action in actions for chosen in (action(view) if callable(action) else (action,))
        ]
        return self.handle(Timer())

    def finish(self, batch: int) -> list:
        return self.handle(BatchDone(batch), InstanceFree(batch))
