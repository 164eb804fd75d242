"""Which sequence has which slot of which instance: what Triton's two sequence batchers have in common.

A sequence begins with a START request, gets the free slot with the lowest number, or waits in the backlog, first come
first served, and keeps its slot until its END request has been taken. All its requests go through that slot, in order.
Requests of a sequence that was not started are rejected. A sequence whose last request is too long ago loses its slot
when its waiting requests have been taken; one in the backlog is never idle, but the smallest of its requests'
timeouts rejects it as a whole. Who withdraws a waiting request ends the sequence, for its state would have a hole.

The rules are those of `SequenceBatchScheduler` (triton-inference-server/core, `sequence_batch_scheduler.cc`: Enqueue,
ReleaseSequenceSlot, ReaperThread). Two things are ours: a sequence whose instance leaves is rejected, and every
request must have one row, not only by declaration.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from batching.core.news import News
from batching.core.policy import View
from batching.core.tickets import Place, Ticket


class Slot:
    """A place in the batches of an instance.

    Attributes:
        instance: Its name.
        number: From 0.
        conversation: Whose it is, or None.
        is_pending: For the policy's own use.
    """

    __slots__ = ("conversation", "instance", "is_pending", "number")

    def __init__(self, instance: str, number: int) -> None:
        self.instance = instance
        self.number = number
        self.conversation: Conversation | None = None
        self.is_pending = False

    @property
    def next_ticket(self) -> Ticket | None:
        """The request that it would contribute to a batch."""
        waiting = self.conversation.waiting if self.conversation else None
        return waiting[0] if waiting else None


class Conversation:
    """A sequence from its START on.

    Attributes:
        correlation: Its name; another one may have it once this one is over.
        waiting: Its requests that were not taken, in order.
        slot: Where it is, or None: in the backlog, or ended.
        is_over: Its END has come, or it was ended: no request can join.
        seen_ns: When its last request came.
        expires_ns: When it is rejected if it is in the backlog then, or None.
    """

    __slots__ = ("correlation", "expires_ns", "is_over", "seen_ns", "slot", "waiting")

    def __init__(self, correlation: Hashable) -> None:
        self.correlation = correlation
        self.waiting: deque[Ticket] = deque()
        self.slot: Slot | None = None
        self.is_over = False
        self.seen_ns = 0
        self.expires_ns: int | None = None


class SequenceSlots:
    """The slots of all instances.

    Args:
        idle_ns: How long a sequence may be without a new request.
        on_ready: Told of a slot that has a new request, or a new sequence.
    """

    def __init__(self, idle_ns: int, on_ready: Callable[[Slot], None] = lambda _: None) -> None:
        self._idle_ns = idle_ns
        self._on_ready = on_ready
        self._slots: dict[str, list[Slot]] = {}
        self._free: list[tuple[int, int, Slot]] = []  # a heap: number, order of joining
        self._serial = count()
        self._open: dict[Hashable, Conversation] = {}  # those that a request can join
        self._backlog: deque[Conversation] = deque()
        self._alarms: list[tuple[int, int, Conversation]] = []  # a heap of times to look at a sequence
        self._is_new = True

    def of(self, instance: str) -> Sequence[Slot]:
        """The slots of an instance, by number."""
        return self._slots.get(instance, ())

    def notice(self, view: View, news: News, slots: int) -> list[Ticket]:
        """Bring everything up to date; every instance has so many slots. Returns waiting requests to reject."""
        rejected: list[Ticket] = []
        if news.fleet:
            self._fit(view, slots, rejected)
            if self._is_new:  # this policy takes over a queue
                self._arrive(view.queue, view.now_ns, rejected)
        elif news.arrived:
            self._arrive(news.arrived, view.now_ns, rejected)
        if news:
            self._is_new = False
        for ticket in news.gone:
            conversation = ticket.note
            if isinstance(conversation, Conversation) and ticket in conversation.waiting:
                conversation.waiting.remove(ticket)
                self._end(conversation, rejected)
        self._look_at_due(view.now_ns, rejected)
        return rejected

    def take(self, slot: Slot) -> None:
        """The next request of a slot starts. After the last one of its sequence the slot is the next sequence's."""
        conversation = slot.conversation
        if conversation is not None:
            conversation.waiting.popleft()
            if conversation.is_over and not conversation.waiting:
                self._release(slot)

    def wake_at_ns(self) -> int | None:
        """When a sequence may have been idle, or in the backlog, for too long."""
        while self._alarms and _needs_no_alarm(self._alarms[0][2]):
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    # Instances

    def _fit(self, view: View, slots: int, rejected: list[Ticket]) -> None:
        names = [worker.name for worker in view.instances]
        for name in [name for name in self._slots if name not in names]:
            self._remove(name, 0, rejected)
            del self._slots[name]
        for name in names:
            known = self._slots.setdefault(name, [])
            self._remove(name, slots, rejected)
            for number in range(len(known), slots):
                slot = Slot(name, number)
                known.append(slot)
                heappush(self._free, (number, next(self._serial), slot))
        while self._free and self._backlog:
            self._settle(self._backlog.popleft(), heappop(self._free)[2])

    def _remove(self, instance: str, keep: int, rejected: list[Ticket]) -> None:
        """Remove the slots of an instance from number `keep` on."""
        removed = self._slots[instance][keep:]
        if not removed:
            return
        del self._slots[instance][keep:]
        self._free = [entry for entry in self._free if entry[2] not in removed]
        heapify(self._free)
        for slot in removed:
            if slot.conversation is not None:
                slot.conversation.slot = None
                self._end(slot.conversation, rejected)

    # Requests

    def _arrive(self, tickets: Iterable[Ticket], now_ns: int, rejected: list[Ticket]) -> None:
        rejected += [ticket for ticket in tickets if not self._join(ticket, now_ns)]

    def _join(self, ticket: Ticket, now_ns: int) -> bool:
        sequence = ticket.sequence
        if sequence is None or ticket.rows != 1:
            return False
        conversation = self._open.get(sequence.correlation)
        if conversation is None:
            if not sequence.start:
                return False
            conversation = self._begin(sequence.correlation, now_ns)
        ticket.note = conversation
        conversation.waiting.append(ticket)
        conversation.seen_ns = now_ns
        if sequence.end:
            self._close(conversation)
        if conversation.slot is not None:
            self._on_ready(conversation.slot)
        elif ticket.timeout_ns:
            self._limit(conversation, now_ns + ticket.timeout_ns)
        return True

    def _begin(self, correlation: Hashable, now_ns: int) -> Conversation:
        conversation = self._open[correlation] = Conversation(correlation)
        conversation.seen_ns = now_ns
        if self._free:
            self._settle(conversation, heappop(self._free)[2])
        else:
            self._backlog.append(conversation)
        return conversation

    # Slots

    def _settle(self, conversation: Conversation, slot: Slot) -> None:
        slot.conversation, conversation.slot = conversation, slot
        if not conversation.is_over:
            self._alarm(conversation.seen_ns + self._idle_ns, conversation)
        if conversation.waiting:
            self._on_ready(slot)

    def _release(self, slot: Slot) -> None:
        slot.conversation = None
        if self._backlog:
            self._settle(self._backlog.popleft(), slot)
        else:
            heappush(self._free, (slot.number, next(self._serial), slot))

    def _close(self, conversation: Conversation) -> None:
        conversation.is_over = True
        if self._open.get(conversation.correlation) is conversation:
            del self._open[conversation.correlation]

    def _end(self, conversation: Conversation, rejected: list[Ticket]) -> None:
        """End a sequence now, and reject what waits."""
        rejected += [ticket for ticket in conversation.waiting if ticket.place is Place.WAITING]
        conversation.waiting.clear()
        conversation.expires_ns = None
        self._close(conversation)
        slot, conversation.slot = conversation.slot, None
        if slot is not None:
            self._release(slot)
        elif conversation in self._backlog:
            self._backlog.remove(conversation)

    # Time

    def _limit(self, conversation: Conversation, expires_ns: int) -> None:
        if conversation.expires_ns is None or expires_ns < conversation.expires_ns:
            conversation.expires_ns = expires_ns
            self._alarm(expires_ns, conversation)

    def _alarm(self, at_ns: int, conversation: Conversation) -> None:
        heappush(self._alarms, (at_ns, next(self._serial), conversation))

    def _look_at_due(self, now_ns: int, rejected: list[Ticket]) -> None:
        while self._alarms and self._alarms[0][0] <= now_ns:
            conversation = heappop(self._alarms)[2]
            if _needs_no_alarm(conversation):
                continue
            if conversation.slot is not None:
                self._look_whether_idle(conversation, conversation.slot, now_ns)
            elif conversation.expires_ns is not None and conversation.expires_ns <= now_ns:
                self._end(conversation, rejected)

    def _look_whether_idle(self, conversation: Conversation, slot: Slot, now_ns: int) -> None:
        due_ns = conversation.seen_ns + self._idle_ns
        if due_ns > now_ns:
            self._alarm(due_ns, conversation)
            return
        self._close(conversation)
        if not conversation.waiting:
            self._release(slot)


def _needs_no_alarm(conversation: Conversation) -> bool:
    return conversation.expires_ns is None if conversation.slot is None else conversation.is_over
