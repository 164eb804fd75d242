"""Whose turn it is among models that share devices, and what their batches need of them.

Orders: `RoundRobin` is that of TF Serving's threads (`SharedBatchScheduler`), `RateLimiter` that of Triton
(`rate_limiter.cc`), `EarliestDeadline` that of Symphony and Clockwork.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from batching.core.tickets import Ticket

_NEVER_NS = 1 << 62
_ANY_DEVICE = "*"

Pool = tuple[str, str]
"""A resource, and the device that it belongs to, empty if to none."""


class Contender(NamedTuple):
    """A model with waiting requests and an idle instance.

    Attributes:
        model: Its name.
        position: Its place among all models.
        first: The request that it would serve first.
        rows: Rows of all its waiting requests, in the queue or in batches that have not started.
    """

    model: str
    position: int
    first: Ticket
    rows: int


class Arbiter(Protocol):
    """An order of models."""

    def first(self, contenders: Sequence[Contender]) -> Contender:
        """Whose turn it is. Asked again without those that have declined or lack resources."""
        ...

    def started(self, model: str) -> None:
        """The model has used its turn: a batch has started, or has been bound to an instance."""
        ...

    def forget(self, model: str) -> None:
        """The model is gone for good."""
        ...


class RoundRobin:
    """In turn: whoever has started goes to the end of the line.

    The original's pointer also passes over models that have nothing to start; here they keep their place.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._last: dict[str, int] = {}  # by model, when it has started last

    def first(self, contenders: Sequence[Contender]) -> Contender:
        """The one whose last start is longest ago."""
        return min(contenders, key=lambda contender: (self._last.get(contender.model, 0), contender.position))

    def started(self, model: str) -> None:
        """To the end of the line."""
        self._serial += 1
        self._last[model] = self._serial

    def forget(self, model: str) -> None:
        """As `Arbiter`."""
        self._last.pop(model, None)


class RateLimiter:
    """A model with priority p gets 1/p of the turns of one with priority 1.

    The original counts every model's turns since the start, so that a model that was idle for long then has all turns
    until it has made up for it; here it only comes first once (start-time fair queueing).

    Args:
        priorities: By model, from 1; others have 1.
    """

    def __init__(self, priorities: Mapping[str, int] | None = None) -> None:
        self._priorities: dict[str, int] = {}
        for model, priority in (priorities or {}).items():
            self.set_priority(model, priority)
        self._now = 0  # in turns of a model with priority 1
        self._earliest: dict[str, int] = {}  # by model, when its next turn is at the earliest
        self._turns: dict[str, int] = {}  # by model that waits, when its turn is; it never moves back

    def set_priority(self, model: str, priority: int) -> None:
        """From its next turn on. Raises ValueError unless it is at least 1."""
        if priority < 1:
            raise ValueError(f"priority of {model} must be at least 1, found {priority}")
        self._priorities[model] = priority

    def first(self, contenders: Sequence[Contender]) -> Contender:
        """The one whose turn is due first."""
        for contender in contenders:
            self._turns.setdefault(contender.model, self._next_turn(contender.model))
        return min(contenders, key=lambda contender: (self._turns[contender.model], contender.position))

    def started(self, model: str) -> None:
        """Its next turn is `priority` later."""
        turn = self._turns.pop(model, self._next_turn(model))
        self._now = max(self._now, turn)
        self._earliest[model] = turn + self._priorities.get(model, 1)

    def forget(self, model: str) -> None:
        """As `Arbiter`; its priority too."""
        for known in (self._priorities, self._earliest, self._turns):
            known.pop(model, None)

    def _next_turn(self, model: str) -> int:
        return max(self._earliest.get(model, 0), self._now)


class EarliestDeadline:
    """Who must start first: by the deadline of its first request, less the time of a batch if that is known.

    Args:
        batch_ns: By model, the time of a batch by its rows.
    """

    def __init__(self, batch_ns: Mapping[str, Callable[[int], int]] | None = None) -> None:
        self._batch_ns = dict(batch_ns or {})

    def first(self, contenders: Sequence[Contender]) -> Contender:
        """The most urgent; without deadlines, whoever waits for longest."""
        return min(contenders, key=self._urgency)

    def started(self, model: str) -> None:
        """Urgency does not depend on what has been."""

    def forget(self, model: str) -> None:
        """As `Arbiter`."""
        self._batch_ns.pop(model, None)

    def _urgency(self, contender: Contender) -> tuple[int, int, int]:
        first = contender.first
        deadline_ns = _NEVER_NS if first.deadline_ns is None else first.deadline_ns
        batch_ns = self._batch_ns.get(contender.model)
        latest_ns = deadline_ns - (batch_ns(contender.rows) if batch_ns else 0)
        return latest_ns, first.arrival_ns, contender.position


class Resources:
    """What batches need while they occupy an instance, by name and count.

    Args:
        needs: By model, what one batch needs; models that are not named need one of everything.
        per_device: How much of a resource every device has.
        shared: How much there is of a resource that does not belong to a device.
        on_device: How much a certain device has of a resource, in place of `per_device`.

    Raises:
        ValueError: A model needs what there is not; it could never run.
    """

    def __init__(
        self,
        needs: Mapping[str, Mapping[str, int]] | None = None,
        *,
        per_device: Mapping[str, int] | None = None,
        shared: Mapping[str, int] | None = None,
        on_device: Mapping[Pool, int] | None = None,
    ) -> None:
        self._used: defaultdict[Pool, int] = defaultdict(int)
        self.define(needs, per_device=per_device, shared=shared, on_device=on_device)

    def define(
        self,
        needs: Mapping[str, Mapping[str, int]] | None = None,
        *,
        per_device: Mapping[str, int] | None = None,
        shared: Mapping[str, int] | None = None,
        on_device: Mapping[Pool, int] | None = None,
    ) -> None:
        """Change what there is and what is needed; arguments and errors as above, nothing changes after an error.

        The needs of a model whose batches run must stay, and whether what they need is shared.
        """
        totals = {(name, _ANY_DEVICE): total for name, total in (per_device or {}).items()}
        totals |= on_device or {}
        totals |= {(name, ""): total for name, total in (shared or {}).items()}
        _check_needs(needs or {}, totals)
        self._totals = totals
        self._needs = {
            model: [(name, count) for name, count in needed.items() if count] for model, needed in (needs or {}).items()
        }
        self._all = [(name, 1) for name in dict.fromkeys(name for name, _ in totals)]
        self._known_claims: dict[tuple[str, str], Sequence[tuple[Pool, int, int]]] = {}

    def fit(self, model: str, device: str) -> bool:
        """Whether a batch of the model can start on the device."""
        return all(self._used[pool] + count <= total for pool, count, total in self._claims(model, device))

    def suffice(self, model: str, device: str) -> bool:
        """Whether a batch of the model could start on the device if no other one ran."""
        return all(count <= total for _, count, total in self._claims(model, device))

    def pools(self, model: str, device: str) -> set[Pool]:
        """Where a batch of the model on the device takes its resources from."""
        return {pool for pool, _, _ in self._claims(model, device)}

    def take(self, model: str, device: str) -> None:
        """A batch occupies an instance."""
        for pool, count, _ in self._claims(model, device):
            self._used[pool] += count

    def give_back(self, model: str, device: str) -> None:
        """A batch does so no more."""
        for pool, count, _ in self._claims(model, device):
            self._used[pool] -= count

    def _claims(self, model: str, device: str) -> Sequence[tuple[Pool, int, int]]:
        """Pools, what a batch takes from them, and how much there is in all."""
        claims = self._known_claims.get((model, device))
        if claims is None:
            claims = self._known_claims[model, device] = [
                self._claim(name, count, device) for name, count in self._needs.get(model, self._all)
            ]
        return claims

    def _claim(self, name: str, count: int, device: str) -> tuple[Pool, int, int]:
        shared = self._totals.get((name, ""))
        if shared is not None:
            return (name, ""), count, shared
        everywhere = self._totals.get((name, _ANY_DEVICE), 0)
        return (name, device), count, self._totals.get((name, device), everywhere)


def _check_needs(needs: Mapping[str, Mapping[str, int]], totals: Mapping[Pool, int]) -> None:
    for model, needed in needs.items():
        for name, count in needed.items():
            most = max((total for (other, _), total in totals.items() if other == name), default=0)
            if not 0 <= count <= most:
                raise ValueError(f"{model} needs {count} of resource {name!r}, expected 0 to {most}, all there is")
