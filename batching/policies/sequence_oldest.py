"""Triton's oldest-first sequence batcher: sequences share dynamic batches, one request of each at a time.

A sequence keeps its instance. Its requests are handed on to that instance's dynamic batcher one at a time, the next
one when the answer of the one before is out. The batcher takes handed-on requests, oldest first, by the rule of
`dynamic_batching` with late binding: up to the largest preferred size that is there; without one, at once, or with a
delay, when another shape or a full batch ends the wait or the oldest has waited long enough since it was handed on.

The rule is that of `OldestSequenceBatch` (triton-inference-server/core, `sequence_batch_scheduler.cc`:
CompleteAndNext) over `DynamicBatchScheduler`; which sequence is where is in `batching.policies.sequence_slots`. In the
original the batcher forms a batch ahead while its instance is busy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.sequence_direct import check_times, earliest
from batching.policies.sequence_slots import SequenceSlots, Slot

_MICROSECOND_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceOldestSettings:
    """The parameters of `sequence_batching` with `oldest` in config.pbtxt.

    Attributes:
        max_candidate_sequences: Sequences of one instance at a time; 0: as many as the largest batch has rows.
        preferred_batch_size: Ascending sizes in rows; empty means the largest batch only.
        max_queue_delay_microseconds: How long the oldest request may wait for a preferred size.
        max_sequence_idle_microseconds: A sequence without a new request for so long is ended.
    """

    max_candidate_sequences: int = 0
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    max_sequence_idle_microseconds: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        check_times(self.max_sequence_idle_microseconds, self.max_queue_delay_microseconds)
        if self.max_candidate_sequences < 0:
            raise ValueError(f"max_candidate_sequences must not be negative, found {self.max_candidate_sequences}")
        if any(low >= high for low, high in pairwise((0, *self.preferred_batch_size))):
            found = list(self.preferred_batch_size)
            raise ValueError(f"preferred_batch_size must be positive and ascend, found {found}")


class _Handed(NamedTuple):
    """A request that was handed on to the dynamic batcher."""

    ticket: Ticket
    slot: Slot
    since_ns: int


class SequenceOldest:
    """The policy; one object per model version.

    Args:
        settings: Of the model.
        max_batch_rows: The largest batch.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, settings: SequenceOldestSettings, max_batch_rows: int) -> None:
        self._preferred = settings.preferred_batch_size
        if self._preferred and self._preferred[-1] > max_batch_rows:
            raise ValueError(f"preferred_batch_size {self._preferred[-1]} is above max_batch_size {max_batch_rows}")
        self._delay_ns = settings.max_queue_delay_microseconds * _MICROSECOND_NS
        self._candidates = settings.max_candidate_sequences or max_batch_rows
        self._table = SequenceSlots(settings.max_sequence_idle_microseconds * _MICROSECOND_NS, self._hand_on)
        self._handed: dict[str, list[_Handed]] = {}  # by instance, oldest first
        self._running: dict[int, list[Slot]] = {}  # by batch
        self._now_ns = 0
        self._due_ns: int | None = None  # when the first request that waits for others has waited long enough

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Reject what belongs to no sequence, hand on what can be, start a batch on an idle instance."""
        self._now_ns = view.now_ns
        self._due_ns = None
        rejected = self._table.notice(view, news, self._candidates)
        for batch in news.answered:
            for slot in self._running.pop(batch.id, ()):
                slot.is_pending = False
                self._hand_on(slot)
        if rejected:
            return (Drop(rejected, RefusalReason.SEQUENCE),)
        if not view.idle_slots:
            return ()
        for worker in view.instances:
            launch = self._form(worker.name, view) if worker.busy < worker.slots else ()
            if launch:
                return launch
        return ()

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """When a request has waited long enough, or a sequence has been idle for too long."""
        return earliest(self._due_ns, self._table.wake_at_ns())

    def _hand_on(self, slot: Slot) -> None:
        ticket = slot.next_ticket
        if ticket is not None and not slot.is_pending:
            slot.is_pending = True
            self._handed.setdefault(slot.instance, []).append(_Handed(ticket, slot, self._now_ns))

    def _form(self, instance: str, view: View) -> Sequence[Action]:
        handed = self._still_here(instance)
        if not handed:
            return ()
        size, reason = self._choose(handed, view)
        if not size:
            return ()
        members, self._handed[instance] = handed[:size], handed[size:]
        self._running[view.next_batch] = [entry.slot for entry in members]
        for entry in members:
            self._table.take(entry.slot)
        return (Launch(size, reason, instance, tickets=[entry.ticket for entry in members]),)

    def _still_here(self, instance: str) -> list[_Handed]:
        """What was handed on, without requests whose sequence has ended."""
        handed = self._handed.get(instance, [])
        gone = [entry for entry in handed if entry.slot.next_ticket is not entry.ticket]
        if gone:
            self._handed[instance] = [entry for entry in handed if entry.slot.next_ticket is entry.ticket]
            for entry in gone:
                entry.slot.is_pending = False
                self._hand_on(entry.slot)
        return self._handed.get(instance, [])

    def _choose(self, handed: Sequence[_Handed], view: View) -> tuple[int, CloseReason]:
        """How many to take, 0 to wait. Every request has one row."""
        largest = view.max_batch_rows
        preferred = [size for size in self._preferred if size <= largest] or [largest]
        same_shape = 0
        for entry in handed[:largest]:
            if entry.ticket.shape_key != handed[0].ticket.shape_key:
                break
            same_shape += 1
        due_ns = handed[0].since_ns + self._delay_ns
        is_overdue = self._delay_ns > 0 and view.now_ns >= due_ns
        best = max((size for size in preferred if size <= same_shape), default=0)
        if best and not is_overdue:
            return best, CloseReason.FULL if best == largest else CloseReason.PREFERRED
        if same_shape < min(len(handed), largest):
            return same_shape, CloseReason.SHAPE
        if is_overdue or not self._delay_ns:
            return same_shape, CloseReason.DELAY if is_overdue else CloseReason.EAGER
        self._due_ns = earliest(self._due_ns, due_ns)
        return 0, CloseReason.EAGER
