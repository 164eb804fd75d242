"""What servers have in common whose workers pull requests and collect their own batches.

A *receiver* is a worker that can take a request now: an idle one, or one that is collecting. Who has waited longest
since it became idle, or since it last took a request, is served next; so trickling arrivals are dealt out in turn. An
instance with several slots counts as so many workers.
"""

from collections.abc import Iterable
from typing import NamedTuple

from batching.core.batches import Batch
from batching.core.policy import View


class Receiver(NamedTuple):
    """A worker that can take a request.

    Attributes:
        since_ns: When it became idle, or took its last request.
        turn: Orders those of the same moment: the idle ones (0) before the others, these by their last request.
        instance: Its name.
        batch: What it is collecting, or None.
    """

    since_ns: int
    turn: int
    instance: str
    batch: Batch | None


def can_receive(view: View) -> bool:
    """Whether any worker is a receiver; to be asked first, as it costs next to nothing."""
    return view.idle_slots > 0 or len(view.batches) > 0


def receivers(view: View) -> list[Receiver]:
    """All receivers; every staged batch is taken as one that an instance is collecting."""
    found: list[Receiver] = []
    if view.idle_slots:
        found += [
            Receiver(worker.idle_since_ns, 0, worker.name, None)
            for worker in view.instances
            if worker.busy < worker.slots
        ]
    for batch in view.batches:
        last = batch.tickets[-1]
        found.append(Receiver(last.taken_ns, last.id, batch.instance or "", batch))
    return found


def longest_waiting(candidates: Iterable[Receiver]) -> Receiver | None:
    """The receiver that is served next, or None."""
    return min(candidates, key=lambda receiver: receiver[:2], default=None)
