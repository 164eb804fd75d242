"""The scheduler: events and a time in, commands out.

It owns the mechanics that every policy needs: admission, the queue's order, deadlines, withdrawal, batches under
construction, instance slots, statistics. The policy decides when a batch starts and which requests are in it. Drivers
(`batching.runner`, `batching.simulation`) own the clock and execute the commands.

Laws, for every policy: each admitted ticket ends exactly once (in a batch, by expiry, refused, or withdrawn); no batch
passes the cap; what has been withdrawn or has expired never starts; members of a batch have one shape key; requests of
one level leave in the policy's order; after the policy was asked at its wake-up time, the next one is later.
"""

from collections.abc import Hashable, Iterable, Sequence

from batching.core.actions import Action
from batching.core.applier import Applier
from batching.core.commands import Command
from batching.core.errors import BatchingError, PolicyError, refusal_error
from batching.core.events import (
    ORDER,
    Arrived,
    BatchDone,
    Event,
    InstanceFree,
    Reconfigured,
    Timer,
)
from batching.core.ledger import Ledger
from batching.core.limits import Limits
from batching.core.news import NOTHING
from batching.core.performer import Performer
from batching.core.policy import Admitting, Planning, Policy
from batching.core.queue import WaitingQueue
from batching.core.state import State
from batching.core.statistics import SchedulerStatistics
from batching.core.tickets import Sequence as TicketSequence
from batching.core.workers import Gate

_MOST_ROUNDS = 100_000  # of one fix-point; a policy that needs more turns in circles


class Scheduler:
    """One queue, one policy, any number of instances. Not thread-safe, and never blocks.

    Args:
        policy: A fresh one.
        limits: Of the queue.
        enforce_deadlines: Expire callers' deadlines on time; otherwise only the policy, in its own time, does.
        preserve_ordering: Answers leave in the order in which requests left the queue.
        can_abort: The driver can stop a running batch.
    """

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        *,
        enforce_deadlines: bool = True,
        preserve_ordering: bool = False,
        can_abort: bool = False,
    ) -> None:
        self._policy = policy
        self._admit = policy.admit if isinstance(policy, Admitting) else None
        self._state = State(limits, _queue_for(policy), can_abort=can_abort)
        self._ledger = Ledger(limits, self._state, preserve_ordering=preserve_ordering)
        self._performer = Performer(self._state, self._ledger)
        self._enforce_deadlines = enforce_deadlines
        self._has_deadlines = False  # a request had one at some time
        self._applier = Applier(self._state, self._ledger, self._performer)
        self.wake_at_ns: int | None = None
        """When to hand in a `Timer`, or None; valid until the next `reserve` or `handle`."""

    def reserve(  # noqa: PLR0913 - all but two are optional and named
        self,
        rows: int,
        now_ns: int,
        *,
        deadline_ns: int | None = None,
        expires_ns: int | None = None,
        priority: int = 0,
        shape_key: Hashable = None,
        timeout_ns: int | None = None,
        sequence: TicketSequence | None = None,
    ) -> int:
        """Admit a request before its rows are ready, so that an overloaded server refuses before it decodes.

        Args:
            rows: Of the request.
            now_ns: The time.
            deadline_ns: When its caller stops waiting. Policies see it.
            expires_ns: When the server gives up, for requests without a deadline. Policies do not see it: it says
                nothing about how urgent the request is.
            priority: Level, lower is served first.
            shape_key: Requests share a batch only if their keys are equal.
            timeout_ns: The request's own queue timeout, for policies that know such a parameter.
            sequence: Of stateful models.

        Returns:
            The ticket for `Arrived` or `Withdrawn`, one of which must follow.

        Raises:
            ValueError: No rows.
            TooManyRowsError: It could never run.
            QueueFullError: No room now.
            DeadlineExceededError: The deadline has already passed.
            ShuttingDownError: `close` was called.
        """
        if rows < 1:
            raise ValueError(f"a request has at least 1 row, found {rows}")
        refusal = self._ledger.refusal(rows, now_ns, deadline_ns)
        if refusal is None and self._admit is not None:
            refusal = self._policy_refusal(rows, priority, now_ns)
        if refusal is not None:
            self._ledger.counts["refused"] += 1
            raise refusal
        ticket = self._ledger.admit(rows, now_ns, deadline_ns, priority, shape_key)
        if timeout_ns is not None or sequence is not None:
            ticket.timeout_ns = timeout_ns
            ticket.sequence = sequence
        ends_ns = expires_ns if deadline_ns is None else deadline_ns
        if ends_ns is not None and self._enforce_deadlines:
            self._has_deadlines = True
            self._ledger.deadlines.add(ticket, ends_ns)
            if self.wake_at_ns is None or ends_ns < self.wake_at_ns:
                self.wake_at_ns = ends_ns
        return ticket.id

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Command]:
        """Apply what happened at one instant and say what must be done.

        Events of unknown tickets and batches are ignored: they crossed with an expiry, a withdrawal or a preemption.

        Args:
            events: In any order; the scheduler orders those of one instant (`batching.core.events.ORDER`).
            now_ns: Not earlier than in any call before.

        Raises:
            ValueError: Time runs backwards.
            PolicyError: The policy broke a law.
        """
        state = self._state
        if now_ns < state.now_ns:
            raise ValueError(f"time runs backwards: {now_ns} ns after {state.now_ns} ns")
        state.now_ns = now_ns
        commands: list[Command] = []
        wake_ns = self.wake_at_ns
        is_due = wake_ns is not None and wake_ns <= now_ns
        kinds = None if is_due else {type(event) for event in events}
        if kinds == _ONLY_ARRIVED or (kinds == _ONLY_ENDED and len(events) == 2):  # by far the most frequent
            self._handle_alike(events, commands)
        else:
            self._handle_any(events, commands, is_due=is_due)
        self._set_wake_up()
        return commands

    def share(self, gate: Gate) -> State:
        """Let the policy see only the idle slots that a gate shows. Returns the state, to look at."""
        self._state.workers.gate = gate
        self._state.workers.show()
        return self._state

    def offer(self, now_ns: int) -> list[Command]:
        """Ask the policy again after `share`'s gate has shown another slot, at a time that `handle` has seen."""
        earlier_ns = self.wake_at_ns
        self._state.now_ns = now_ns
        commands: list[Command] = []
        self._settle(commands)
        self._set_wake_up()
        if earlier_ns is not None and (self.wake_at_ns is None or earlier_ns < self.wake_at_ns):
            self.wake_at_ns = earlier_ns
        return commands

    def close(self) -> None:
        """Admit nothing more; what is here still runs."""
        self._ledger.is_closed = True

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._ledger.is_closed

    @property
    def is_empty(self) -> bool:
        """Whether every admitted ticket has ended and no batch runs."""
        return not self._ledger.tickets and not self._running_batches()

    @property
    def preserves_ordering(self) -> bool:
        """Whether answers leave only by `Release`."""
        return self._ledger.order is not None

    def statistics(self) -> SchedulerStatistics:
        """A snapshot."""
        state, ledger = self._state, self._ledger
        return SchedulerStatistics(
            reserved_requests=state.reserved_requests,
            waiting_requests=state.waiting_requests,
            waiting_rows=state.queue.rows + sum(batch.rows for batch in state.batches),
            running_batches=self._running_batches(),
            instances=len(state.instances),
            admitted_requests=ledger.admitted_requests,
            refused_requests=ledger.counts["refused"],
            dropped_requests=ledger.counts["dropped"],
            expired_requests=ledger.counts["expired"],
            withdrawn_requests=ledger.counts["withdrawn"],
            close_reasons=dict(self._performer.close_reasons),
            drop_reasons=dict(self._performer.drop_reasons),
        )

    def _running_batches(self) -> int:
        return sum(batch.is_running for batch in self._state.running)

    def _policy_refusal(self, rows: int, priority: int, now_ns: int) -> BatchingError | None:
        if self._admit is None:
            return None
        self._state.now_ns = max(self._state.now_ns, now_ns)
        reason = self._admit(self._state, rows, priority)
        return None if reason is None else refusal_error(reason, admitted=False)

    # Events: first what has ended, then all others by kind; the policy is asked after each kind.

    def _handle_alike(self, events: Iterable[Event], commands: list[Command]) -> None:
        """The short way for arrivals, or for the end of one batch: nothing to sort, and the policy is asked once."""
        applier = self._applier
        for event in events:
            if type(event) is not Arrived and isinstance(event, _ENDINGS):
                applier.end_batch(event.batch, commands)
            applier.apply(event, commands)
        if applier.news:
            self._settle(commands)

    def _handle_any(self, events: Iterable[Event], commands: list[Command], *, is_due: bool) -> None:
        ordered = sorted(events, key=_order)
        if is_due:
            ordered.append(Timer())  # whatever brings the driver here, the time that it was to wait for has come
        for event in ordered:
            if isinstance(event, _ENDINGS):  # first of all: who has been answered is not late
                self._applier.end_batch(event.batch, commands)
        if is_due:
            self._expire(ordered, commands)
        self._apply(ordered, commands)

    def _expire(self, ordered: Sequence[Event], commands: list[Command]) -> None:
        for event in ordered:
            if ORDER[type(event)] < ORDER[BatchDone]:  # who leaves at this instant has left, not expired
                self._applier.apply(event, commands)
        self._applier.expire(commands)
        if self._applier.news:
            self._settle(commands)

    def _apply(self, ordered: Sequence[Event], commands: list[Command]) -> None:
        news = self._applier.news
        last: type = Timer
        for event in ordered:
            now = type(event)
            if now is not last:
                if news and ORDER[now] // 10 != ORDER[last] // 10:
                    self._settle(commands)
                last = now
            if isinstance(event, Reconfigured):
                self._take_over(event.policy)
            else:
                self._applier.apply(event, commands)
        if news:
            self._settle(commands)

    def _take_over(self, policy: Policy) -> None:
        self._policy = policy
        self._admit = policy.admit if isinstance(policy, Admitting) else None
        self._state.requeue_staged(self._state.batches)
        self._state.move_to(_queue_for(policy))
        self._applier.news.fleet = True

    # The policy

    def _settle(self, commands: list[Command]) -> None:
        """Tell the policy the news, then ask until it has nothing more to do."""
        news = self._applier.news
        actions = self._policy.decide(self._state, news)
        news.clear()
        if actions:
            self._perform(actions, commands)

    def _perform(self, actions: Sequence[Action], commands: list[Command]) -> None:
        for _ in range(_MOST_ROUNDS):
            for action in actions:
                self._performer.perform(action, commands)
            actions = self._policy.decide(self._state, NOTHING)
            if not actions:
                self._applier.release(commands)
                return
        raise PolicyError(f"the policy does not come to rest; its last actions: {list(actions)[:3]}")

    def _set_wake_up(self) -> None:
        wake_ns = self._policy.wake_at_ns(self._state)
        if wake_ns is not None and wake_ns <= self._state.now_ns:
            raise PolicyError(f"the policy wants to be asked at {wake_ns} ns, it is {self._state.now_ns} ns already")
        if self._has_deadlines:
            deadline_ns = self._ledger.deadlines.nearest_ns()
            if deadline_ns is not None and (wake_ns is None or deadline_ns < wake_ns):
                wake_ns = deadline_ns
        self.wake_at_ns = wake_ns


def _queue_for(policy: Policy) -> WaitingQueue:
    return WaitingQueue(policy.queue_order, policy.objective_ns if isinstance(policy, Planning) else None)


_ENDINGS = (BatchDone, InstanceFree)
_ONLY_ARRIVED, _ONLY_ENDED = {Arrived}, {BatchDone, InstanceFree}


def _order(event: Event) -> int:
    return ORDER[type(event)]
