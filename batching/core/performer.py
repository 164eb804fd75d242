"""Performs a policy's actions on the state and commands the driver accordingly."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from batching.core.actions import (
    Action,
    Drop,
    Launch,
    Merge,
    Preempt,
    RefusalReason,
    Requeue,
    Seal,
    StartBatch,
    Take,
    Where,
)
from batching.core.batches import Batch, CloseReason
from batching.core.commands import Abort, Command, Part, Refuse, Start
from batching.core.errors import PolicyError
from batching.core.ledger import Ledger
from batching.core.state import State
from batching.core.tickets import GONE, RUNNING, STAGED, WAITING, Ticket


class Performer:
    """One method for each action; all raise PolicyError if it would break a law."""

    def __init__(self, state: State, ledger: Ledger) -> None:
        self.close_reasons: Counter[str] = Counter()
        self.drop_reasons: Counter[str] = Counter()
        self._state = state
        self._ledger = ledger
        self._has_dead = False  # a batch may have members that were answered while they kept their place
        self._performers: dict[type, Callable[[Any, list[Command]], None]] = {
            Launch: self._launch,
            Take: self._take,
            Merge: self._merge,
            Seal: self._seal,
            StartBatch: self._start_batch,
            Drop: self._drop,
            Requeue: self._requeue,
            Preempt: self._preempt,
        }

    def perform(self, action: Action, commands: list[Command]) -> None:
        """One step."""
        self._performers[type(action)](action, commands)

    def refuse(self, request: Ticket, reason: RefusalReason, commands: list[Command]) -> None:
        """End a request with a refusal."""
        self._ledger.end(request, "dropped")
        self.drop_reasons[reason.value] += 1
        commands.append(Refuse(request.id, reason))

    def _launch(self, action: Launch, commands: list[Command]) -> None:
        batch = self._state.new_batch()
        self._fill(batch, action)
        batch.reason = action.reason
        self._start(batch, action.instance, action.slots, commands)

    def _take(self, action: Take, _commands: list[Command]) -> None:
        state = self._state
        if action.into is None:
            batch = state.open(action.instance)
        elif action.instance is None:
            batch = state.staged(action.into)
        else:
            raise PolicyError(f"batch {action.into} is open already: only a new one can be bound to an instance")
        self._fill(batch, action)
        if action.reason is not None:
            batch.reason = action.reason

    def _fill(self, batch: Batch, action: Launch | Take) -> None:
        taken: Sequence[Ticket]
        if action.tickets is None:
            taken = self._state.take(action.requests, batch, action.rows_of_last)
        elif action.requests != len(action.tickets) or action.rows_of_last is not None:
            raise PolicyError(f"{len(action.tickets)} chosen requests are taken as {action.requests}, whole ones only")
        else:
            taken = self._state.take_chosen(action.tickets, batch)
        if self._ledger.order is not None:
            for ticket in taken:
                self._ledger.order.take(ticket.of or ticket)

    def _merge(self, action: Merge, _commands: list[Command]) -> None:
        self._state.merge(self._state.staged(action.into), self._state.staged(action.source))

    def _seal(self, action: Seal, _commands: list[Command]) -> None:
        batch = self._state.staged(action.batch)
        if batch.sealed_ns is not None:
            raise PolicyError(f"batch {batch.id} is sealed already")
        batch.sealed_ns = self._state.now_ns
        batch.reason = action.reason

    def _start_batch(self, action: StartBatch, commands: list[Command]) -> None:
        batch = self._state.staged(action.batch)
        if action.reason is not None:
            batch.reason = action.reason
        self._start(batch, action.instance, action.slots, commands)

    def _start(
        self, batch: Batch, instance: str | None, slots: tuple[int, ...] | None, commands: list[Command]
    ) -> None:
        state, ledger = self._state, self._ledger
        if self._has_dead:
            self._bury(batch)
            if not batch.tickets:
                state.dissolve(batch)
                return
        if slots is not None and len(slots) != len(batch.tickets):
            raise PolicyError(f"{len(slots)} slots are given for the {len(batch.tickets)} members of batch {batch.id}")
        if batch.rows >= state.max_batch_rows and batch.reason in _OPEN_ENDED:
            batch.reason = CloseReason.FULL
        state.start(batch, instance)
        ledger.start(batch.tickets)
        self.close_reasons[batch.reason.value] += 1
        commands.append(_start_command(batch, slots, has_parts=state.has_parts))

    def _bury(self, batch: Batch) -> None:
        """Leave out who was answered while keeping its place."""
        for ticket in [ticket for ticket in batch.tickets if ticket.is_answered]:
            batch.tickets.remove(ticket)
            batch.rows -= ticket.rows
            self._ledger.start((ticket,))
            ticket.place = GONE

    def _drop(self, action: Drop, commands: list[Command]) -> None:
        for ticket in list(action.tickets):
            request = ticket.of or ticket
            if ticket.place not in _DROPPABLE or request.id not in self._ledger.tickets:
                raise PolicyError(f"ticket {ticket.id} cannot be dropped: it is {ticket.place.value}")
            if action.keeps_place:
                self._has_dead = True
                self._ledger.end_in_place(request, "dropped")
                self.drop_reasons[action.reason.value] += 1
                commands.append(Refuse(request.id, action.reason))
            else:
                self.refuse(request, action.reason, commands)

    def _requeue(self, action: Requeue, _commands: list[Command]) -> None:
        tickets = list(action.tickets)
        for ticket in tickets:
            if ticket.place not in _DROPPABLE:
                raise PolicyError(f"ticket {ticket.id} cannot be put back: it is {ticket.place.value}")
        if len({ticket.id for ticket in tickets}) < len(tickets):
            raise PolicyError("a ticket is put back twice")
        self._state.requeue(tickets, action.where)

    def _preempt(self, action: Preempt, commands: list[Command]) -> None:
        batch = self._state.started.get(action.batch)
        if batch is None or not batch.is_running or not self._state.can_abort:
            raise PolicyError(f"batch {action.batch} cannot be preempted")
        self._state.free(batch)
        members = [ticket for ticket in batch.tickets if ticket.place is RUNNING]
        for ticket in members:
            self._ledger.restart(ticket)
        self._state.requeue(members, Where.FRONT)
        commands.append(Abort(batch.id))


_DROPPABLE = frozenset({WAITING, STAGED})
_OPEN_ENDED = frozenset({CloseReason.EAGER, CloseReason.DELAY, CloseReason.OVERFLOW, CloseReason.PREFERRED})


def _start_command(batch: Batch, slots: tuple[int, ...] | None, *, has_parts: bool) -> Start:
    tickets = batch.tickets
    parts = None
    if has_parts and any(ticket.of is not None or ticket.first_row for ticket in tickets):
        parts = tuple(Part(ticket.first_row, ticket.rows) for ticket in tickets)
    return Start(
        batch.id,
        batch.instance or "",
        tuple([(ticket.of or ticket).id for ticket in tickets] if parts else [ticket.id for ticket in tickets]),
        batch.rows,
        batch.reason,
        batch.opened_ns,
        batch.sealed_ns or 0,
        () if batch.sealed_ns == batch.opened_ns else tuple([ticket.taken_ns for ticket in tickets]),
        parts,
        slots,
    )
