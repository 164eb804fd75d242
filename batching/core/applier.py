"""Applies what happened to the state, and notes it for the policy."""

from collections.abc import Callable
from typing import Any

from batching.core.actions import RefusalReason
from batching.core.batches import Batch
from batching.core.commands import Command, Expire, Release
from batching.core.events import (
    Arrived,
    BatchDone,
    CapChanged,
    Event,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Timer,
    Withdrawn,
)
from batching.core.ledger import Ledger
from batching.core.news import News
from batching.core.performer import Performer
from batching.core.state import State
from batching.core.tickets import RESERVED, WAITING, Ticket


class Applier:
    """One method for each kind of event. Events of unknown tickets and batches are ignored.

    Attributes:
        news: What was applied since it was cleared.
    """

    def __init__(self, state: State, ledger: Ledger, performer: Performer) -> None:
        self.news = News()
        self._state = state
        self._ledger = ledger
        self._performer = performer
        self._ended: list[Batch] = []  # at this instant; the policy is told when their turn comes
        self._appliers: dict[type, Callable[[Any, list[Command]], None]] = {
            Arrived: self.on_arrived,
            Withdrawn: self._on_withdrawn,
            BatchDone: self._on_batch_done,
            InstanceFree: self._on_instance_free,
            InstanceJoined: self._on_instance_joined,
            InstanceLeft: self._on_instance_left,
            CapChanged: self._on_cap_changed,
            Timer: self._on_timer,
        }

    def apply(self, event: Event, commands: list[Command]) -> None:
        """Apply one event."""
        self._appliers[type(event)](event, commands)

    def end_batch(self, number: int, commands: list[Command]) -> None:
        """Its members have been answered; to be called before anybody expires. The policy is told by `apply`."""
        batch = self._state.started.get(number)
        if batch is not None and batch.is_running:
            batch.is_running = False
            self._ledger.finish(batch.tickets)
            self._ended.append(batch)
            self.release(commands)

    def expire(self, commands: list[Command]) -> None:
        """End whose deadline has come."""
        for ticket in self._ledger.deadlines.pop_due(self._state.now_ns):
            self._ledger.end(ticket, "expired")
            self.news.gone.append(ticket)
            commands.append(Expire(ticket.id))
        self.release(commands)

    def release(self, commands: list[Command]) -> None:
        """Let the answers leave whose turn it is; nothing to do unless their order is to be preserved."""
        if self._ledger.order is not None:
            commands.extend(Release(request.id) for request in self._ledger.release())

    def _on_batch_done(self, _event: BatchDone, _commands: list[Command]) -> None:
        self.news.answered += self._ended  # by `end_batch`
        self._ended.clear()

    def on_arrived(self, event: Arrived, commands: list[Command]) -> None:
        """The most frequent event, which may be applied without asking which kind it is."""
        ticket = self._ledger.tickets.get(event.ticket)
        if ticket is None or ticket.place is not RESERVED:
            return
        state = self._state
        if ticket.rows > state.workers.max_batch_rows:
            self._refuse(ticket, commands)
            return
        ticket.place = WAITING
        ticket.arrival_ns = state.now_ns
        state.reserved_requests -= 1
        state.queue.append(ticket)
        self.news.arrived.append(ticket)

    def _on_withdrawn(self, event: Withdrawn, commands: list[Command]) -> None:
        ticket = self._ledger.tickets.get(event.ticket)
        if ticket is not None:
            self._ledger.end(ticket, "withdrawn")
            self.news.gone.append(ticket)
            self.release(commands)

    def _on_instance_free(self, event: InstanceFree, _commands: list[Command]) -> None:
        batch = self._state.started.get(event.batch)
        if batch is not None:
            batch.failed = event.failed
            self._state.free(batch)
            self.news.freed.append(batch)
            self.news.answered += self._ended
            self._ended.clear()

    def _on_instance_joined(self, event: InstanceJoined, commands: list[Command]) -> None:
        self._state.workers.join(event.instance, event.device, event.slots, event.max_rows, self._state.now_ns)
        self.news.fleet = True
        self._fit_cap(commands)

    def _on_instance_left(self, event: InstanceLeft, _commands: list[Command]) -> None:
        bound = [batch for batch in self._state.batches if batch.instance == event.instance]
        self._state.requeue_staged(bound)
        self.news.fleet |= self._state.workers.leave(event.instance)

    def _on_cap_changed(self, event: CapChanged, commands: list[Command]) -> None:
        if self._state.workers.change_cap(event.instance, event.max_rows):
            self.news.fleet = True
            self._fit_cap(commands)

    def _fit_cap(self, commands: list[Command]) -> None:
        """Take batches apart that are too large now, and refuse requests that can never run."""
        state = self._state
        largest = state.max_batch_rows
        state.requeue_staged([batch for batch in state.batches if batch.rows > largest])
        for ticket in [ticket for ticket in state.queue if ticket.rows > largest]:
            if ticket.place is not WAITING:
                continue  # gone with another part of its request
            if ticket.is_answered:
                self._ledger.bury(ticket)
            else:
                self._refuse(ticket.of or ticket, commands)
        self.release(commands)

    def _refuse(self, request: Ticket, commands: list[Command]) -> None:
        self._performer.refuse(request, RefusalReason.TOO_MANY_ROWS, commands)
        self.news.gone.append(request)

    def _on_timer(self, _event: Timer, _commands: list[Command]) -> None:
        self.news.timer = True
