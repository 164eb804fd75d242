"""Triton's dynamic batcher as a policy: who wakes the batcher, and what happens first.

The rule is that of triton-inference-server/core (`dynamic_batch_scheduler.cc`: Enqueue, BatcherThread;
`rate_limiter.cc`: PayloadSlotAvailable; `instance_queue.cc`: Dequeue), with its quirks:

* without queue policies, batches ("payloads") are formed ahead of time: up to two per instance are staged behind those
  that run; with them, a payload is formed only while an instance is idle;
* the newest payload stays *open*: while it is staged it may grow, until it is saturated or starts;
* with a delay, an instance that takes the front payload absorbs followers that have waited longer than the delay;
* a single arrival wakes the batcher only if it can complete a preferred size, so a request may sit behind a staged
  payload until something else happens (at the latest the batcher's 500 ms poll);
* late requests are noticed only where the batcher passes them, or at its poll while it can form nothing.

After a completion the instance takes its next payload before the batcher looks at the queue, as in the real server.
A withdrawn request leaves its staged payload here; in the real server it stays and is computed for nobody.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from batching.core.actions import Action, RefusalReason
from batching.core.news import NOTHING, News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.tickets import Ticket
from batching.policies.triton_batcher import Batcher
from batching.policies.triton_doorbell import Doorbell, have_shapes
from batching.policies.triton_form import Form
from batching.policies.triton_options import TritonExperiments, TritonLatencies
from batching.policies.triton_queue import LevelLimits, QueuePolicies
from batching.policies.triton_sleep import Sleep
from batching.policies.triton_staging import Staging
from batching.policies.triton_timeouts import Punctual, earlier


class Triton:
    """The policy; one object per model version. `batching.policies.triton.create_triton` makes it.

    Args:
        form: How a batch is formed.
        policies: How long requests may wait, and how many.
        binds_late: Form payloads only for idle instances.
        check_shapes: Rows may differ in shape, so that every arrival must be looked at.
        faithful: Notice late requests when the original does; otherwise on time.
        latencies: Those of a real server.
        experiments: Deviations from the rule.
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(
        self,
        form: Form,
        policies: QueuePolicies,
        *,
        binds_late: bool,
        check_shapes: bool,
        faithful: bool,
        latencies: TritonLatencies,
        experiments: TritonExperiments,
    ) -> None:
        self._staging = Staging(
            form.delay_ns if experiments.merge_at_dequeue else 0,
            latencies,
            experiments.staged_payloads_per_instance,
            binds_late=binds_late,
        )
        self._form = form
        self._sleep = Sleep(latencies)
        self._sifts = faithful and policies.has_timeouts
        self._batcher = Batcher(
            form, policies, self._staging, self._sleep, sifts=self._sifts, must_look=policies.has_levels
        )
        self._limits = LevelLimits(policies) if policies.has_limits else None
        self._punctual = Punctual(policies) if policies.has_timeouts and not faithful else None
        self._is_watching = self._limits is not None or self._punctual is not None
        self._dequeue_first = experiments.dequeue_first
        has_policies = policies.has_timeouts or policies.has_limits
        self._doorbell = Doorbell(
            self._batcher,
            self._staging,
            self._sleep,
            rings_always=check_shapes or experiments.every_arrival_wakes,
            may_leave_behind=not (form.delay_ns or binds_late or latencies.reaction_us or has_policies),
        )
        self._is_silent = False  # nothing has changed since the last wake-up time was told
        self._wake_ns: int | None = None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        """An instance takes a staged payload; otherwise the batcher, if awake, forms one."""
        if news.arrived:
            if self._is_watching:
                self._watch(news.arrived)
            self._is_silent = self._punctual is None and self._doorbell.is_silent(view, news.arrived)
            if self._is_silent:
                return ()  # the commonest case
            self._doorbell.arrive(view, news.arrived)
        elif news is not NOTHING:
            self._notice(view, news)
        if self._staging.is_outdated:
            self._staging.look(view)
        return self._catch_up(view) or self._act(view)

    def wake_at_ns(self, view: View) -> int | None:
        """The nearest of what the batcher, an instance and the timeouts wait for."""
        if not self._is_silent:
            self._wake_ns = self._batcher_wakes_ns(view)
            if self._staging.has_handoff:
                self._wake_ns = earlier(self._wake_ns, self._staging.ready_ns(view))
            if self._punctual is not None:
                self._wake_ns = earlier(self._wake_ns, self._punctual.nearest_ns())
        return self._wake_ns

    def _batcher_wakes_ns(self, view: View) -> int | None:
        acts_ns = self._sleep.acts_ns
        if acts_ns is not None:
            return acts_ns if acts_ns > view.now_ns else None  # blocked by a shape: only events can help
        if not view.queue.rows or self._doorbell.is_behind:
            return None
        return self._sleep.ends_ns if self._sifts or self._staging.has_slot(view) else None

    def _notice(self, view: View, news: News) -> None:
        """Anything but arrivals."""
        self._is_silent = False
        self._staging.note(news, view.now_ns)
        self._doorbell.interrupt(view, fleet=news.fleet)
        if self._limits is not None:
            self._limits.gone(news.gone)
        if news.fleet:
            self._look_around(view)
        self._sleep.end_if_over(view.now_ns, is_idle=not view.queue.rows)
        if news.freed and not self._dequeue_first:
            self._sleep.acts_ns = view.now_ns
        elif news.freed or news.fleet:
            self._sleep.notify(view.now_ns)

    def _look_around(self, view: View) -> None:
        """The largest batch may be another one, payloads may have gone back to the queue, or this policy is new."""
        self._form.cap(view.max_batch_rows)
        self._batcher.must_look = self._batcher.must_look or have_shapes(view.queue)
        self._watch(view.queue)

    def _watch(self, waiting: Iterable[Ticket]) -> None:
        if self._punctual is not None:
            self._punctual.watch(waiting)
        if self._limits is not None:
            self._limits.arrived(waiting)

    def _catch_up(self, view: View) -> Sequence[Action]:
        """What should have happened before this moment, or at its beginning."""
        if self._doorbell.to_catch_up:
            return self._doorbell.catch_up()
        return self._punctual.pop_late(view.now_ns) if self._punctual is not None else ()

    def _act(self, view: View) -> Sequence[Action]:
        if not self._dequeue_first:
            return self._batcher.act(view) or self._dequeue(view)
        return self._dequeue(view) or self._batcher.act(view)

    def _dequeue(self, view: View) -> Sequence[Action]:
        actions = self._staging.take(view)
        if actions:
            self._sleep.notify(view.now_ns)
        return actions


class LimitedTriton(Triton):
    """The policy for queues of limited length."""

    def admit(self, view: View, rows: int, priority: int) -> RefusalReason | None:
        """Refuse a request whose level is full; what has left the queue for a payload is not counted."""
        if self._limits is None or self._limits.admits(view, priority):
            return None
        self._batcher.phantom_rows += rows
        return RefusalReason.QUEUE_FULL
