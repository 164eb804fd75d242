"""Triton's queue policies: how long a request may wait, and how many may.

The rules are those of `PriorityQueue::PolicyQueue` (triton-inference-server/core, `scheduler_utils.cc`: Enqueue,
RejectTimeoutRequests).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from batching.core.actions import Action, Drop, RefusalReason, Requeue, Where
from batching.core.policy import QueueView, View
from batching.core.tickets import Ticket

_MICROSECOND_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """`ModelQueuePolicy` of config.pbtxt, for one priority level.

    Attributes:
        timeout_action: A request that has waited too long is refused ("REJECT"), or goes behind the others of its level
            and never times out again ("DELAY").
        default_timeout_microseconds: How long is too long; 0 means never.
        allow_timeout_override: A request's own `timeout` counts if it is shorter; without a default it never is.
        max_queue_size: Requests of the level that may wait, delayed ones included; 0 means any number.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # a typing error never means a default

    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if self.timeout_action not in ("REJECT", "DELAY"):
            raise ValueError(f"timeout_action must be REJECT or DELAY, found {self.timeout_action!r}")
        for name in ("default_timeout_microseconds", "max_queue_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}")

    @property
    def demands_late_binding(self) -> bool:
        """Whether requests must stay in the queue, where this policy sees them, until an instance is idle."""
        return bool(self.default_timeout_microseconds or self.allow_timeout_override or self.max_queue_size)

    @property
    def delays(self) -> bool:
        """Whether requests can be moved behind the others."""
        return self.timeout_action == "DELAY" and self.default_timeout_microseconds > 0

    def latest_ns(self, ticket: Ticket) -> int | None:
        """When a ticket has waited long enough, or None."""
        timeout_ns = self.default_timeout_microseconds * _MICROSECOND_NS
        if not timeout_ns or ticket.is_delayed:
            return None
        if self.allow_timeout_override and ticket.timeout_ns:
            timeout_ns = min(timeout_ns, ticket.timeout_ns)
        return ticket.arrival_ns + timeout_ns


class QueuePolicies:
    """The policies of all levels.

    Args:
        levels: How many there are; 0: a single queue, which is not called a level.
        default: Of levels without one of their own.
        by_level: Of single levels.
    """

    def __init__(self, levels: int, default: QueuePolicy, by_level: Mapping[int, QueuePolicy]) -> None:
        self.has_levels = levels > 0
        self._default = default
        self._by_level = dict(by_level)
        policies = (default, *self._by_level.values())
        self.has_timeouts = any(policy.default_timeout_microseconds for policy in policies)
        self.has_limits = any(policy.max_queue_size for policy in policies)

    def of(self, level: int) -> QueuePolicy:
        """The policy of a level."""
        return self._by_level.get(level, self._default)

    def latest_ns(self, ticket: Ticket) -> int | None:
        """When a waiting ticket times out, or None."""
        return self.of(ticket.priority).latest_ns(ticket)

    def rejectable(self, queue: QueueView, now_ns: int) -> list[Ticket]:
        """All late tickets of the levels that reject."""
        return [
            ticket
            for ticket in queue
            if (latest_ns := self.latest_ns(ticket)) is not None
            and now_ns > latest_ns
            and self.of(ticket.priority).timeout_action == "REJECT"
        ]

    def actions(self, late: Iterable[Ticket]) -> list[Action]:
        """What the levels' policies do with late tickets."""
        rejected: list[Ticket] = []
        delayed: list[Ticket] = []
        for ticket in late:
            rejects = self.of(ticket.priority).timeout_action == "REJECT"
            (rejected if rejects else delayed).append(ticket)
        actions: list[Action] = []
        if rejected:
            actions.append(Drop(rejected, RefusalReason.TIMEOUT))
        if delayed:
            actions.append(Requeue(delayed, Where.DELAYED))
        return actions


class LevelLimits:
    """`max_queue_size`, counted when a request is admitted, before its rows are ready."""

    def __init__(self, policies: QueuePolicies) -> None:
        self._policies = policies
        self._reserved: Counter[int] = Counter()  # admitted and not yet in the queue, by level

    def admits(self, view: View, level: int) -> bool:
        """Whether there is room for one more; it is then expected."""
        limit = self._policies.of(level).max_queue_size
        if limit and view.queue.level_requests(level) + self._reserved[level] >= limit:
            return False
        self._reserved[level] += 1
        return True

    def arrived(self, tickets: Iterable[Ticket]) -> None:
        """These are in the queue now; twice does no harm."""
        for ticket in tickets:
            if ticket.note is not self:
                ticket.note = self
                self._forget(ticket)

    def gone(self, tickets: Iterable[Ticket]) -> None:
        """These have left; who has no note had not arrived."""
        for ticket in tickets:
            if ticket.note is None:
                self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        if self._reserved[ticket.priority]:  # it may have been admitted under another policy
            self._reserved[ticket.priority] -= 1
