"""Triton's direct sequence batcher: a sequence keeps its slot, its place in every batch of its instance.

When the last batch of an instance has ended, the next one takes at most one request of each slot; slots without a
request, or with one of another shape than that of the first, are left out of it, and the driver fills the gaps (the
command `Start` names the slots). It starts at once by default; with a delay and a minimum utilisation, when so many
slots have a request or the oldest of these requests has waited long enough.

The rule is that of `DirectSequenceBatch::BatcherThread` (triton-inference-server/core, `sequence_batch_scheduler.cc`);
which sequence has which slot is in `batching.policies.sequence_slots`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.sequence_slots import SequenceSlots, Slot

_MICROSECOND_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceDirectSettings:
    """The parameters of `sequence_batching` with `direct` in config.pbtxt.

    Attributes:
        max_sequence_idle_microseconds: A sequence without a new request for so long loses its slot.
        max_queue_delay_microseconds: How long a request may wait for others; 0: it does not.
        minimum_slot_utilization: Share of the slots that must have a request to start before; 0: any.
    """

    max_sequence_idle_microseconds: int = 1_000_000
    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        check_times(self.max_sequence_idle_microseconds, self.max_queue_delay_microseconds)
        if not 0 <= self.minimum_slot_utilization <= 1:
            raise ValueError(f"minimum_slot_utilization must be from 0 to 1, found {self.minimum_slot_utilization}")


def check_times(max_sequence_idle_microseconds: int, max_queue_delay_microseconds: int) -> None:
    """Raise ValueError, naming the parameter, if one of the sequence batchers' times cannot be."""
    if max_sequence_idle_microseconds < 1:
        raise ValueError(f"max_sequence_idle_microseconds must be at least 1, found {max_sequence_idle_microseconds}")
    if max_queue_delay_microseconds < 0:
        raise ValueError(f"max_queue_delay_microseconds must not be negative, found {max_queue_delay_microseconds}")


class SequenceDirect:
    """The policy; one object per model version.

    Args:
        settings: Of the model.
        max_batch_rows: The largest batch, and so the slots of every instance.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: SequenceDirectSettings, max_batch_rows: int) -> None:
        self._max_batch_rows = max_batch_rows
        self._delay_ns = settings.max_queue_delay_microseconds * _MICROSECOND_NS
        self._utilization = settings.minimum_slot_utilization
        self._table = SequenceSlots(settings.max_sequence_idle_microseconds * _MICROSECOND_NS)
        self._due_ns: int | None = None  # when the first request that waits for others has waited long enough

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Reject what belongs to no sequence; an instance whose last batch has ended takes the next one."""
        self._due_ns = None
        rejected = self._table.notice(view, news, min(self._max_batch_rows, view.max_batch_rows))
        if rejected:
            return (Drop(rejected, RefusalReason.SEQUENCE),)
        if not view.idle_slots:
            return ()
        for worker in view.instances:
            launch = () if worker.busy else self._form(worker.name, view.now_ns)
            if launch:
                return launch
        return ()

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """When a request has waited long enough, or a sequence has been idle for too long."""
        return earliest(self._due_ns, self._table.wake_at_ns())

    def _form(self, instance: str, now_ns: int) -> Sequence[Action]:
        slots = self._table.of(instance)
        ready = [(slot, ticket) for slot in slots if (ticket := slot.next_ticket) is not None]
        if not ready:
            return ()
        due_ns = min(ticket.arrival_ns for _, ticket in ready) + self._delay_ns
        waits = self._delay_ns > 0 and self._utilization > 0
        is_enough = len(ready) >= self._utilization * self._max_batch_rows
        if waits and not is_enough and now_ns < due_ns:
            self._due_ns = earliest(self._due_ns, due_ns)
            return ()
        shape_key = ready[0][1].shape_key
        members = [(slot, ticket) for slot, ticket in ready if ticket.shape_key == shape_key]
        if len(members) == len(slots):
            reason = CloseReason.FULL
        elif len(members) < len(ready):
            reason = CloseReason.SHAPE
        elif waits:
            reason = CloseReason.PREFERRED if is_enough else CloseReason.DELAY
        else:
            reason = CloseReason.EAGER
        return (self._launch(instance, members, reason),)

    def _launch(self, instance: str, members: Sequence[tuple[Slot, Ticket]], reason: CloseReason) -> Launch:
        for slot, _ in members:
            self._table.take(slot)
        tickets = [ticket for _, ticket in members]
        slots = tuple([slot.number for slot, _ in members])
        return Launch(len(tickets), reason, instance, tickets=tickets, slots=slots)


def earliest(first_ns: int | None, second_ns: int | None) -> int | None:
    """The earlier of two moments that may not come."""
    if first_ns is None or second_ns is None:
        return second_ns if first_ns is None else first_ns
    return min(first_ns, second_ns)
