"""The scheduler: events and a time in, commands out.

It owns the mechanics that every policy needs: admission, the queue's order, deadlines, withdrawal, buffers, instance
slots, statistics. The policy decides when a batch starts and which requests are in it. Drivers (`batching.runner`,
`batching.simulation`) own the clock and execute the commands.

Laws, for every policy: each admitted ticket ends exactly once (in a batch, by expiry, or withdrawn); no batch passes
the cap; what has been withdrawn or has expired never starts; members of a batch have one shape key; requests of one
level leave in order of arrival; after the policy was asked at its wake-up time, the next one is later.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any

from batching.core.commands import Command, Expire, Start
from batching.core.deadlines import Deadlines
from batching.core.errors import (
    BatchingError,
    DeadlineExceededError,
    PolicyError,
    QueueFullError,
    ShuttingDownError,
    TooManyRowsError,
)
from batching.core.events import (
    ORDER,
    Arrived,
    BatchDone,
    Event,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Timer,
    Withdrawn,
)
from batching.core.limits import Limits
from batching.core.policy import Action, Launch, Merge, Policy, Stage, StartStaged
from batching.core.state import Buffer, State
from batching.core.statistics import SchedulerStatistics
from batching.core.tickets import Place, Ticket


class Scheduler:
    """One queue, one policy, any number of instances. Not thread-safe, and never blocks."""

    def __init__(self, policy: Policy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits
        self._state = State(limits)
        self._tickets: dict[int, Ticket] = {}  # all that have not ended; every exit goes through _end
        self._running: dict[int, Sequence[Ticket]] = {}  # members by batch
        self._deadlines = Deadlines()
        self._pending_requests = 0  # admitted and not started: what the limits count
        self._pending_rows = 0
        self._closed = False
        self._last_ticket = 0
        self._last_batch = 0
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._appliers: dict[type, Callable[[Any], bool]] = {
            Arrived: self._on_arrived,
            Withdrawn: self._on_withdrawn,
            BatchDone: lambda _: True,  # _end_batch has seen it
            InstanceFree: self._on_instance_free,
            InstanceJoined: self._on_instance_joined,
            InstanceLeft: self._on_instance_left,
            Timer: lambda _: True,
        }
        self.wake_at_ns: int | None = None
        """When to hand in a `Timer`, or None; valid until the next `reserve` or `handle`."""

    def reserve(
        self,
        rows: int,
        now_ns: int,
        *,
        deadline_ns: int | None = None,
        priority: int = 0,
        shape_key: Hashable = None,
    ) -> int:
        """Admit a request before its rows are ready, so that an overloaded server refuses before it decodes.

        Returns:
            The ticket for `Arrived` or `Withdrawn`, one of which must follow.

        Raises:
            TooManyRowsError: It could never run.
            QueueFullError: No room now.
            DeadlineExceededError: The deadline has already passed.
            ShuttingDownError: `close` was called.
        """
        refusal = self._refusal(rows, now_ns, deadline_ns)
        if refusal is not None:
            self._counts["refused"] += 1
            raise refusal
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket, rows, now_ns, deadline_ns, priority, shape_key)
        self._tickets[ticket.id] = ticket
        self._pending_requests += 1
        self._pending_rows += rows
        if deadline_ns is not None:
            self._deadlines.add(ticket)
            if self.wake_at_ns is None or deadline_ns < self.wake_at_ns:
                self.wake_at_ns = deadline_ns
        return ticket.id

    def handle(self, events: Iterable[Event], now_ns: int) -> list[Command]:
        """Apply what happened at one instant and say what must be done.

        Events of unknown tickets are ignored: they crossed with an expiry or a withdrawal.

        Args:
            events: In any order; the scheduler orders those of one instant (`batching.core.events.ORDER`).
            now_ns: Not earlier than in any call before.

        Raises:
            ValueError: Time runs backwards.
            PolicyError: The policy broke a law.
        """
        if now_ns < self._state.now_ns:
            raise ValueError(f"time runs backwards: {now_ns} ns after {self._state.now_ns} ns")
        self._state.now_ns = now_ns
        ordered = sorted(events, key=_order)
        if self.wake_at_ns is not None and self.wake_at_ns <= now_ns:
            ordered.append(Timer())  # whatever brings the driver here, the time that it was to wait for has come
        for event in ordered:
            if isinstance(event, BatchDone):  # before anything expires: who has been answered is not late
                self._end_batch(event.batch)
        commands: list[Command] = []
        for _, group in groupby(ordered, key=_order):
            applied = [event for event in group if self._appliers[type(event)](event)]
            self._expire(commands)
            if applied:
                self._settle(applied, commands)
        self._set_wake_up()
        return commands

    def close(self) -> None:
        """Admit nothing more; what is here still runs."""
        self._closed = True

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def is_empty(self) -> bool:
        """Whether every admitted ticket has ended and no batch runs."""
        return not self._tickets and not self._running

    def statistics(self) -> SchedulerStatistics:
        """A snapshot."""
        buffers = self._state.buffers
        waiting = len(self._state.queue) + sum(len(buffer.tickets) for buffer in buffers)
        return SchedulerStatistics(
            reserved_requests=self._pending_requests - waiting,
            waiting_requests=waiting,
            waiting_rows=self._state.queue.rows + sum(buffer.rows for buffer in buffers),
            running_batches=len(self._running),
            instances=self._state.instances,
            admitted_requests=self._last_ticket,
            refused_requests=self._counts["refused"],
            expired_requests=self._counts["expired"],
            withdrawn_requests=self._counts["withdrawn"],
            close_reasons=dict(self._reasons),
        )

    def _refusal(self, rows: int, now_ns: int, deadline_ns: int | None) -> BatchingError | None:
        limits = self._limits
        if self._closed:
            return ShuttingDownError()
        if rows > limits.max_batch_rows:
            return TooManyRowsError(rows=rows, limit_rows=limits.max_batch_rows)
        if deadline_ns is not None and deadline_ns <= now_ns:
            return DeadlineExceededError(admitted=False)
        if self._pending_requests >= limits.max_requests:
            return QueueFullError(limit=limits.max_requests, unit="requests")
        if self._pending_rows + rows > limits.max_rows:
            return QueueFullError(limit=limits.max_rows, unit="rows")
        return None

    # Events: each handler changes the state and says whether anything that is here was concerned.

    def _on_arrived(self, event: Arrived) -> bool:
        ticket = self._tickets.get(event.ticket)
        if ticket is None or ticket.place is not Place.RESERVED:
            return False
        ticket.place = Place.WAITING
        ticket.arrival_ns = self._state.now_ns
        self._state.queue.append(ticket)
        return True

    def _on_withdrawn(self, event: Withdrawn) -> bool:
        ticket = self._tickets.get(event.ticket)
        if ticket is None:
            return False
        self._counts["withdrawn"] += 1
        self._end(ticket)
        return True

    def _on_instance_free(self, event: InstanceFree) -> bool:
        self._state.workers.release(event.instance)
        return True

    def _on_instance_joined(self, event: InstanceJoined) -> bool:
        self._state.workers.join(event.instance, event.device, event.slots)
        return True

    def _on_instance_left(self, event: InstanceLeft) -> bool:
        self._state.workers.leave(event.instance)
        return True

    def _expire(self, commands: list[Command]) -> None:
        for ticket in self._deadlines.pop_due(self._state.now_ns):
            self._counts["expired"] += 1
            self._end(ticket)
            commands.append(Expire(ticket.id))

    def _end_batch(self, batch: int) -> None:
        for ticket in self._running.pop(batch):
            self._end(ticket)

    def _end(self, ticket: Ticket) -> None:
        """Forget a ticket wherever it is. A running one stays in its batch, unheard."""
        if ticket.place is Place.GONE:
            return
        if ticket.place is not Place.RUNNING:
            self._state.remove(ticket)
            self._no_longer_pending(ticket)
        ticket.place = Place.GONE
        del self._tickets[ticket.id]

    def _no_longer_pending(self, ticket: Ticket) -> None:
        self._pending_requests -= 1
        self._pending_rows -= ticket.rows

    # Actions

    def _settle(self, events: Sequence[Event], commands: list[Command]) -> None:
        """Ask the policy until it has nothing more to do. Every action moves a ticket forward, so this ends."""
        actions = self._policy.decide(self._state, events)
        while actions:
            for action in actions:
                self._perform(action, commands)
            actions = self._policy.decide(self._state, ())

    def _perform(self, action: Action, commands: list[Command]) -> None:
        state = self._state
        match action:
            case Launch(count, reason):
                buffer = Buffer(0)  # never staged, so it needs no id
                buffer.reason = reason
                state.take(count, buffer)
                commands.append(self._start(buffer))
            case Stage(count, reason, into):
                buffer = state.open_buffer() if into is None else state.staged(into)
                buffer.reason = reason
                state.take(count, buffer)
            case Merge(into, source):
                state.merge(state.staged(into), state.staged(source))
            case StartStaged(number):
                commands.append(self._start(state.unstage(number)))

    def _start(self, buffer: Buffer) -> Start:
        if not self._state.idle_slots:
            raise PolicyError("a batch starts without an idle instance")
        self._last_batch += 1
        for ticket in buffer.tickets:
            ticket.place = Place.RUNNING
            self._no_longer_pending(ticket)
        self._running[self._last_batch] = buffer.tickets
        self._reasons[buffer.reason.value] += 1
        return Start(
            batch=self._last_batch,
            instance=self._state.workers.acquire(),
            tickets=tuple([ticket.id for ticket in buffer.tickets]),
            rows=buffer.rows,
            reason=buffer.reason,
        )

    def _set_wake_up(self) -> None:
        wake_ns = self._policy.wake_at_ns(self._state)
        if wake_ns is not None and wake_ns <= self._state.now_ns:
            raise PolicyError(f"the policy wants to be asked at {wake_ns} ns, it is {self._state.now_ns} ns already")
        deadline_ns = self._deadlines.nearest_ns()
        if wake_ns is None or (deadline_ns is not None and deadline_ns < wake_ns):
            wake_ns = deadline_ns
        self.wake_at_ns = wake_ns


def _order(event: Event) -> int:
    return ORDER[type(event)]
