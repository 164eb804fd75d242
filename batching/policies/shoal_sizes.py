"""How many rows the `shoal` policy starts, deadlines aside."""

import math
from typing import NamedTuple

from batching.core.policy import View
from batching.core.tickets import Ticket
from batching.core.workers import Worker
from batching.policies.shoal_estimators import ServiceTimes


class Scene(NamedTuple):
    """What a decision is about: an idle instance, and requests for it.

    Attributes:
        view: The scheduler's state.
        worker: The instance.
        times: What a batch takes there.
        slots: Of all instances.
        head: The first request in service order, which has the earliest deadline of its level.
        deadline_ns: Its deadline, infinite if it has none.
        rows: Rows that wait.
    """

    view: View
    worker: Worker
    times: ServiceTimes
    slots: int
    head: Ticket
    deadline_ns: float
    rows: int

    def safe_ns(self, rows: int) -> float:
        """How long a batch of so many rows takes, on the safe side."""
        return (1 + self.times.error) * self.times.of(rows)

    def end_ns(self, rows: int) -> float:
        """When such a batch has ended if it starts now, on the safe side."""
        return self.view.now_ns + self.safe_ns(rows)


def house_rows(view: View) -> int:
    """Rows that wait or run; those that have been answered are out."""
    return view.queue.rows + sum([batch.rows for batch in view.running if batch.is_running])


def best_size(scene: Scene) -> int:
    """The size that finishes the queue in the least instance time, within a fair share of the house.

    Without a backlog small batches are worth a little instance time, because they answer sooner.
    """
    if scene.rows == 1:
        return 1
    largest = scene.view.max_batch_rows
    slack = 0.05 if scene.rows < largest else 0.005
    size = cheapest_size(scene.times, min(scene.rows, largest), slack)
    return size if scene.slots == 1 else min(size, _fair_share(scene, size))


def cheapest_size(times: ServiceTimes, rows: int, slack: float) -> int:
    """The smallest size of equal parts whose total time is within `slack` of the least; O(sqrt(rows))."""
    costs: list[tuple[float, int]] = []
    size = rows
    while size:
        parts = -(-rows // size)
        size = -(-rows // parts)  # the smallest that needs so many parts
        costs.append((parts * times.of(size), size))
        size -= 1
    enough_ns = (1 + slack) * min(costs)[0]
    return min([size for cost_ns, size in costs if cost_ns <= enough_ns])


def share(rows: float, slots: int) -> int:
    """Each instance's part of so many rows."""
    return math.ceil(rows / slots)


def _fair_share(scene: Scene, most: int) -> int:
    times = scene.times
    size = min(share(house_rows(scene.view), scene.slots), scene.view.max_batch_rows)
    enough_ns = 1.1 * times.of(size)
    while size < most and times.of(size + 1) <= enough_ns:  # rows that cost almost nothing
        size += 1
    return size
