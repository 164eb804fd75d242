"""Shoal's own policy: work-conserving, deadline-aware, and without a knob that must be set.

Start as soon as an instance is idle, with the size that finishes the queue in the least instance time according to
measured times; with several instances take only this instance's share of the rows in the house. Wait in two cases
only: the requests just answered are, by experience, about to come back, and running them together saves more than the
waiting costs; or several instances cannot keep up with deadlines, and the batch can still grow within its own. If the
earliest deadline cannot be kept, first try to keep all in two batches; otherwise give up the earliest ones until the
rest can be kept, because one batch too late makes every batch behind it late.

Random arrivals are not worth waiting for: by policy iteration over the semi-Markov decision process of one instance,
starting at once is within 1 % of the optimum at every load wherever larger batches are more efficient. Against an
exact dynamic program that knows all arrivals, the deadline rule answers 95 % or more of what can be answered in time.

While all instances are busy an arrival costs O(1); a start costs O(sqrt(largest batch)), with deadlines in danger
O(waiting requests).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from batching.core.actions import Action, Drop, Launch, RefusalReason
from batching.core.batches import CloseReason
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.prefix import fitting_prefix
from batching.policies.shoal_deadlines import Refusals, is_hopeless, sacrificed, size_in_time, size_of_two
from batching.policies.shoal_estimators import Attendance, Returns
from batching.policies.shoal_fleet import Fleet
from batching.policies.shoal_sizes import Scene, best_size, house_rows
from batching.policies.shoal_waits import Wait, callers_back, grown

_NEVER_NS = float("inf")
_MICROSECOND_NS = 1_000
_PATIENCE_NS = 10_000_000_000  # a request without a deadline is overtaken by those that have one, but not for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoalSettings:
    """Nothing has to be set.

    Attributes:
        latency_objective_us: A deadline for choosing sizes and ending waits, for requests that bring none or a later
            one; nobody is refused for it.
        refuse: Who is refused when deadlines cannot all be kept. "sacrifice": also requests that could be served in
            time, if that keeps more others in time. "hopeless": only those that cannot be served in time at all; in
            the matrix's scenarios with deadlines 40 % fewer are answered in time then.
        warm_up_us: Times of batches by their rows, measured before serving; without them they are learned from the
            first batches.
    """

    latency_objective_us: int | None = None
    refuse: Literal["sacrifice", "hopeless"] = "sacrifice"
    warm_up_us: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if self.latency_objective_us is not None and self.latency_objective_us < 1:
            raise ValueError(f"latency_objective_us must be at least 1, found {self.latency_objective_us}")
        if self.refuse not in ("sacrifice", "hopeless"):
            raise ValueError(f"refuse must be 'sacrifice' or 'hopeless', found {self.refuse!r}")
        if any(rows < 1 or not 0 < time_us < _NEVER_NS for rows, time_us in self.warm_up_us.items()):
            raise ValueError(f"warm_up_us must hold positive times by positive rows, found {dict(self.warm_up_us)}")


class Shoal:
    """The policy; one object per model version.

    Args:
        settings: See there.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.DEADLINE

    def __init__(self, settings: ShoalSettings = ShoalSettings()) -> None:
        objective_us = settings.latency_objective_us
        self.objective_ns = _PATIENCE_NS if objective_us is None else objective_us * _MICROSECOND_NS
        self._objective_ns = _NEVER_NS if objective_us is None else objective_us * _MICROSECOND_NS
        self._sacrifices = settings.refuse == "sacrifice"
        self._fleet = Fleet({rows: time_us * _MICROSECOND_NS for rows, time_us in settings.warm_up_us.items()})
        self._attendance = Attendance()
        self._returns = Returns()
        self._refusals = Refusals()
        self._wait: Wait | None = None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """Learn; then refuse, wait or start, as long as an instance is idle and somebody waits."""
        if news:
            self._learn(view, news)
            if self._wait and news.arrived and self._wait.goes_on(view):
                return ()
        self._wait = None
        head = view.queue.first if view.idle_slots else None
        if head is None:
            return ()
        scene = self._look(view, head)
        refused = self._refuse_hopeless(scene)
        if refused:
            return refused
        self._wait = callers_back(scene, self._attendance, self._returns) or grown(scene, self._refusals.pressure)
        return () if self._wait else self._start(scene)

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002 - decided before
        """The end of the wait, if there is one."""
        return self._wait.until_ns if self._wait else None

    def _learn(self, view: View, news: News) -> None:
        now_ns = view.now_ns
        if news.arrived:  # by far the most frequent, and nothing else comes with it
            self._returns.arrived(sum([ticket.rows for ticket in news.arrived]), now_ns, self._fleet.window_ns)
            return
        if news.answered:
            rows = house_rows(view)
            for batch in reversed(news.answered):
                rows += batch.rows
                self._attendance.add(rows)
                self._returns.answered(batch.rows, now_ns)
        for batch in news.freed:
            self._refusals.ended(batch.id, now_ns)
            if batch.instance is not None and not batch.failed:
                self._fleet.learn(batch.instance, batch.rows, batch.busy_ns)
        if news.fleet:
            self._fleet.keep(view.instances)

    def _look(self, view: View, head: Ticket) -> Scene:
        workers = view.instances
        worker = self._fleet.best(workers)
        slots = sum([worker.slots for worker in workers])
        return Scene(view, worker, self._fleet.of(worker.name), slots, head, self._deadline_ns(head), view.queue.rows)

    def _deadline_ns(self, ticket: Ticket) -> float:
        deadline_ns = _NEVER_NS if ticket.deadline_ns is None else ticket.deadline_ns
        return min(deadline_ns, ticket.arrival_ns + self._objective_ns)

    # Refuse

    def _refuse_hopeless(self, scene: Scene) -> Sequence[Action]:
        view = scene.view
        if not is_hopeless(scene.head, scene, view.now_ns):
            return ()  # nearly always
        hopeless: list[Ticket] = []
        for ticket in view.queue:
            if not is_hopeless(ticket, scene, view.now_ns):
                break
            if is_hopeless(ticket, scene, ticket.arrival_ns) and self._refusals.wants_probe() and not view.running:
                self._refusals.probe(view.next_batch, ticket.deadline_ns or 0)
                return (*self._refused(hopeless), Launch(1, CloseReason.DEADLINE, scene.worker.name))
            hopeless.append(ticket)
        return self._refused(hopeless)

    def _refused(self, tickets: Sequence[Ticket], reason: RefusalReason = RefusalReason.HOPELESS) -> Sequence[Action]:
        self._refusals.refused(sum([ticket.rows for ticket in tickets]))
        return (Drop(tickets, reason),) if tickets else ()

    # Start

    def _start(self, scene: Scene) -> Sequence[Action]:
        rows = most = best_size(scene)
        if scene.deadline_ns < _NEVER_NS and scene.end_ns(most) > scene.deadline_ns:
            rows = self._size_in_time(scene, most)
            dropped = sacrificed(scene, most) if self._sacrifices and not rows else ()
            if dropped:
                return self._refused(dropped, RefusalReason.OVERLOADED)
            rows = rows or most
        queue, largest = scene.view.queue, scene.view.max_batch_rows
        prefix = fitting_prefix(queue, max(rows, scene.head.rows))
        reason = prefix.reason
        if prefix.count == len(queue) and scene.rows < largest:
            reason = CloseReason.EAGER
        elif reason is not CloseReason.SHAPE and rows < largest:
            reason = CloseReason.SIZED if rows == most else CloseReason.DEADLINE
        self._refusals.started()
        return (Launch(prefix.count, reason, scene.worker.name),)

    def _size_in_time(self, scene: Scene, most: int) -> int:
        if not self._sacrifices:
            return size_in_time(scene, most)
        view = scene.view
        free_ns = view.now_ns if view.idle_slots > 1 else self._fleet.next_free_ns(view.running)
        return size_of_two(scene, most, free_ns, self._deadline_ns)
