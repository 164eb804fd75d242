"""Triton's batcher thread: it fills payloads from the queue while it may.

The rule of `DynamicBatchScheduler::BatcherThread` (triton-inference-server/core, `dynamic_batch_scheduler.cc`).
"""

from collections.abc import Sequence

from batching.core.actions import Action, Drop, RefusalReason, Take
from batching.core.batches import CloseReason
from batching.core.policy import View
from batching.policies.triton_form import Form, Walk
from batching.policies.triton_queue import QueuePolicies
from batching.policies.triton_sleep import Sleep
from batching.policies.triton_staging import Staging
from batching.policies.triton_timeouts import Sieve


class Batcher:
    """What the thread knows, and what it does each time it is awake.

    Args:
        form: How a batch is formed.
        policies: How long requests may wait.
        staging: Where payloads go.
        sleep: When it is awake.
        must_look: Requests differ in level.
        sifts: It looks for late requests where it passes them, as the original.

    Attributes:
        is_saturated: The open payload must not grow: a new one is opened before the next look at the queue.
        next_preferred: So many rows in the queue are worth a look.
        phantom_rows: Refused rows that the original goes on counting as queued.
        must_look: Requests differ in shape or level: what the queue holds cannot be told from its length.
    """

    def __init__(
        self, form: Form, policies: QueuePolicies, staging: Staging, sleep: Sleep, *, sifts: bool, must_look: bool
    ) -> None:
        self.is_saturated = False
        self.next_preferred = 0
        self.phantom_rows = 0
        self.must_look = must_look
        self._form = form
        self._policies = policies
        self._staging = staging
        self._sleep = sleep
        self._sifts = sifts

    def act(self, view: View) -> Sequence[Action]:
        """One round of the thread's loop that changes something; nothing once it sleeps, or can only wait awake."""
        sleep, staging = self._sleep, self._staging
        while sleep.acts_ns is not None and sleep.acts_ns <= view.now_ns:
            if self.is_saturated or staging.is_stale:
                staging.renew()
                self.is_saturated = False
                self.next_preferred = 0
            if not view.queue.rows:
                sleep.until_poll(view.now_ns)
            elif not staging.has_slot(view):
                return self._wait_for_slot(view)
            elif (actions := self._fill(view)) or not self.is_saturated:
                return actions  # none: asleep, or blocked by a shape until the payload starts
        return ()

    def quiet_rows(self, view: View) -> int:
        """Below so many, the waiting rows all join the open payload and close nothing, so that it matters not when."""
        payload = self._staging.open
        if payload is None or self._staging.is_stale or self.is_saturated or self.must_look:
            return 0
        return self._form.quiet_rows(payload.rows, view.max_batch_rows)

    def _wait_for_slot(self, view: View) -> Sequence[Action]:
        if not self._sleep.until_slot(view.now_ns) or not self._sifts:
            return ()
        late = self._policies.rejectable(view.queue, view.now_ns)
        if not late:
            return ()
        self.phantom_rows += sum([ticket.rows for ticket in late])
        self._sleep.waits_for_slot = len(late) < len(view.queue)  # with an empty queue there is no need of one
        return (Drop(late, RefusalReason.TIMEOUT),)

    def _fill(self, view: View) -> Sequence[Action]:
        """Move what the rule says into the open payload."""
        self._sleep.waits_for_slot = False
        if self._sifts:
            return self._sift(view)
        form, queue, payload, max_rows = self._form, view.queue, self._staging.open, view.max_batch_rows
        open_rows = payload.rows if payload else 0
        if not (self.must_look or form.delay_ns) and queue.rows < form.quiet_rows(open_rows, max_rows):
            return self._take(view, len(queue), CloseReason.EAGER)
        walk = None if self.must_look else form.glance(queue, open_rows, max_rows)
        return self._choose(view, walk or form.walk(queue, payload, max_rows), None)

    def _sift(self, view: View) -> Sequence[Action]:
        sieve = Sieve(self._policies, view.queue, view.now_ns)
        walk = self._form.walk(sieve, self._staging.open, view.max_batch_rows)
        actions = self._choose(view, walk, sieve.nearest_ns)
        return [*self._policies.actions(sieve.late), *actions]

    def _choose(self, view: View, walk: Walk, timeout_ns: int | None) -> Sequence[Action]:
        if walk.stop is CloseReason.SHAPE:
            self._staging.meets_another_shape(view)
        choice = self._form.choose(walk, view.now_ns, timeout_ns, is_saturated=self.is_saturated)
        self.is_saturated = self.is_saturated or choice.saturates
        if choice.next_preferred is not None:
            self.next_preferred = choice.next_preferred
        if choice.due_ns is not None:
            self._sleep.until(view.now_ns, choice.due_ns)
        return self._take(view, choice.requests, choice.reason) if choice.requests else ()

    def _take(self, view: View, requests: int, reason: CloseReason | None) -> Sequence[Action]:
        payload = self._staging.open
        if requests == len(view.queue):
            self._sleep.until_poll(view.now_ns)  # nothing will be left
        if payload is None:
            self._staging.expect()
        return (Take(requests, payload.id if payload else None, None, None, reason),)
