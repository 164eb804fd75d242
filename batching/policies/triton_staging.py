"""Triton's payloads between the batcher and the instances.

The rule of `InstanceQueue::Dequeue` (triton-inference-server/core, `instance_queue.cc`).
"""

from collections.abc import Sequence

from batching.core.actions import Action, Merge, StartBatch
from batching.core.batches import Batch
from batching.core.news import News
from batching.core.policy import View
from batching.policies.triton_options import TritonLatencies

_ANY = 1 << 30


class Staging:
    """Staged payloads, oldest first, and the one that the batcher fills.

    Args:
        merge_delay_ns: An instance absorbs followers that have waited longer than this; 0: it never does.
        latencies: `handoff_us` counts here.
        per_instance: How many payloads may be staged per instance; None: any.
        binds_late: Only as many as there are idle instances.

    Attributes:
        payloads: Staged, not taken.
        open: The payload that the batcher fills; None while it is empty.
        is_stale: The open payload can take no more: it was taken, examined in vain, or its members have left.
        is_outdated: `look` must be called.
        has_handoff: Waiting instances need time to take a payload.
    """

    def __init__(
        self, merge_delay_ns: int, latencies: TritonLatencies, per_instance: int | None, *, binds_late: bool
    ) -> None:
        self.payloads: Sequence[Batch] = ()
        self.open: Batch | None = None
        self.is_stale = False
        self.is_outdated = False
        self.has_handoff = latencies.handoff_us > 0
        self._merge_delay_ns = merge_delay_ns
        self._latencies = latencies
        self._per_instance = _ANY if per_instance is None else per_instance
        self._most = 0  # payloads of all instances, unless they are bound late
        self._binds_late = binds_late
        self._turns = 0  # instances that ended a batch at `_turns_ns` and take the next payload at once
        self._turns_ns = 0
        self._is_opening = False  # the open payload will be the last one staged
        self._frozen: set[int] = set()  # examined in vain by an instance: left marked as executing
        self._mixed: set[int] = set()  # whose follower has another shape: never merged
        self._ready_ns: dict[int, int] = {}  # when a waiting instance is ready to take it; empty without latency

    def look(self, view: View) -> None:
        """Catch up with what has become of the payloads."""
        self.is_outdated = False
        self.payloads = payloads = tuple(view.batches)
        self._most = self._per_instance * len(view.instances)
        if self._is_opening:
            self.open = payloads[-1]
            self._is_opening = False
        self.is_stale = self.open is not None and (self.open not in payloads or self.open.id in self._frozen)
        if self.has_handoff:
            self._ready_ns = {payload.id: self._ready_at(payload) for payload in payloads}
        if self._frozen or self._mixed:
            staged = {payload.id for payload in payloads}
            self._frozen &= staged
            self._mixed &= staged

    def note(self, news: News, now_ns: int) -> None:
        """Instances have ended batches, come or gone, or requests have left."""
        self._turns = min(len(news.freed), len(self.payloads))  # who finds nothing waits like the others
        self._turns_ns = now_ns
        self.is_outdated = True

    def has_slot(self, view: View) -> bool:
        """Whether a payload may be formed, or grow."""
        return len(self.payloads) < (view.idle_slots if self._binds_late else self._most)

    def renew(self) -> None:
        """The batcher fills a fresh payload from now on."""
        self.open = None
        self.is_stale = False

    def expect(self) -> None:
        """The fresh payload gets its first members and is staged."""
        self._is_opening = self.is_outdated = True

    def meets_another_shape(self, view: View) -> None:
        """What follows the open payload has another shape."""
        self._mixed.add(view.next_batch if self.open is None else self.open.id)

    def take(self, view: View) -> Sequence[Action]:
        """An idle instance takes the front payload, once it has noticed it; nothing if none can."""
        payloads = self.payloads
        if not payloads or not view.idle_slots or (self.has_handoff and self._is_early(view.now_ns)):
            return ()
        self._turns -= 1
        self.is_outdated = True
        actions = self._merges(view) if self._merge_delay_ns else []
        actions.append(StartBatch(payloads[0].id))
        return actions

    def ready_ns(self, view: View) -> int | None:
        """When an idle instance will take the front payload, or None."""
        return self._ready_ns[self.payloads[0].id] if self.payloads and view.idle_slots else None

    def _ready_at(self, payload: Batch) -> int:
        known_ns = self._ready_ns.get(payload.id)
        return payload.opened_ns + self._latencies.draw_ns(self._latencies.handoff_us) if known_ns is None else known_ns

    def _is_early(self, now_ns: int) -> bool:
        has_turn = self._turns > 0 and self._turns_ns == now_ns
        return not has_turn and now_ns < self._ready_ns[self.payloads[0].id]

    def _merges(self, view: View) -> list[Action]:
        """Followers to absorb: overdue, of the same shape, within the cap; the first that is not ends the search."""
        merges: list[Action] = []
        front, *followers = self.payloads
        if front.id in self._mixed or view.max_batch_rows == 1:
            return merges
        rows = front.rows
        for follower in followers:
            is_overdue = view.now_ns - follower.tickets[0].arrival_ns > self._merge_delay_ns
            if follower.id in self._mixed or not is_overdue:
                break
            if rows + follower.rows > view.max_batch_rows or _shape(follower) != _shape(front):
                self._frozen.add(follower.id)
                break
            merges.append(Merge(front.id, follower.id))
            rows += follower.rows
        return merges


def _shape(payload: Batch) -> object:
    return payload.tickets[0].shape_key
