"""Several schedulers whose instances are on the same devices.

Every model has its own scheduler with its own instances; what they share are resources, such as the device. The idle
slots of a model are hidden from its policy until they are offered to it: one slot of one model at a time, in the order
that an `Arbiter` chooses, until every model that has waiting requests has declined. So no policy knows of the others.
Whose turn it is and who lacks a resource keeps others from taking more of it, so nobody starves. A model that alone
has anything to do sees at once all slots that its resources allow, as without an arbiter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import count
from typing import Protocol

from batching.core.arbiter import Arbiter, Contender, Pool, Resources
from batching.core.commands import Command
from batching.core.events import Event
from batching.core.state import State
from batching.core.workers import Gate, Worker


class Shareable(Protocol):
    """What is shared: a `batching.core.scheduler.Scheduler`, or what stands in front of one."""

    @property
    def wake_at_ns(self) -> int | None:
        """See `Scheduler`."""
        ...

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Command]:
        """See `Scheduler`."""
        ...

    def share(self, gate: Gate) -> State:
        """See `Scheduler`."""
        ...

    def offer(self, now_ns: int) -> list[Command]:
        """See `Scheduler`."""
        ...


class _Gate:
    """Shows a model's policy no idle slot, one of one instance, or all that the resources allow together."""

    def __init__(self, model: str, resources: Resources) -> None:
        self.starts = 0  # slots taken since its owner has set it to 0
        self._model = model
        self._resources = resources
        self._held: Counter[str] = Counter()  # slots in use, by device
        self._shows_all = False
        self._only: str | None = None

    def show(self, only: str | None = None, *, all_slots: bool = False) -> None:
        """One slot of an instance until it is taken, or all slots, or none."""
        self._only = only
        self._shows_all = all_slots

    def shown(self, workers: Sequence[Worker]) -> Sequence[int]:
        """As `Gate`. In the order in which the scheduler would use the slots, each that fits beside those before."""
        shown = [0] * len(workers)
        if not self._shows_all and self._only is None:
            return shown
        idle = [
            (worker.busy + more, worker.releases, place)
            for place, worker in enumerate(workers)
            for more in range(worker.slots - worker.busy)
            if self._shows_all or (worker.name == self._only and more == 0)
        ]
        devices = []
        for _, _, place in sorted(idle):
            device = workers[place].device
            if self._resources.fit(self._model, device):
                self._resources.take(self._model, device)
                devices.append(device)
                shown[place] += 1
        for device in devices:
            self._resources.give_back(self._model, device)
        return shown

    def taken(self, device: str) -> None:
        """As `Gate`."""
        self._resources.take(self._model, device)
        self._held[device] += 1
        self.starts += 1
        self._only = None

    def returned(self, device: str) -> None:
        """As `Gate`."""
        self._resources.give_back(self._model, device)
        self._held[device] -= 1

    def return_all(self) -> None:
        """No slot is in use any more, whatever was said before."""
        for device in tuple(self._held.elements()):
            self.returned(device)


class _Model:
    """A scheduler among others."""

    def __init__(self, name: str, position: int, scheduler: Shareable, resources: Resources) -> None:
        self.name = name
        self.position = position
        self.scheduler = scheduler
        self._gate = _Gate(name, resources)
        self._resources = resources
        self._state = scheduler.share(self._gate)

    @property
    def has_waiting(self) -> bool:
        state = self._state
        return len(state.queue) > 0 or len(state.batches) > 0

    def is_due(self, now_ns: int) -> bool:
        wake_ns = self.scheduler.wake_at_ns
        return wake_ns is not None and wake_ns <= now_ns

    def contender(self) -> Contender | None:
        """Itself, if it has waiting requests and an idle instance."""
        if not self.has_waiting or not any(worker.held for worker in self._state.instances):
            return None
        batches, queue = self._state.batches, self._state.queue
        first = queue.first if not batches else batches[0].tickets[0]
        assert first is not None  # noqa: S101 - something waits
        return Contender(self.name, self.position, first, queue.rows + sum(batch.rows for batch in batches))

    def usable(self, kept: Set[Pool]) -> list[str]:
        """Idle instances that can start a batch without the pools that are kept for others, best first."""
        idle = [worker for worker in self._state.instances if worker.held and self._can_use(worker.device, kept)]
        if len(idle) > 1:
            idle.sort(key=lambda worker: (worker.busy - worker.held, worker.releases))
        return [worker.name for worker in idle]

    def lacks(self) -> set[Pool]:
        """The pools of its idle instances if none of them has all that it needs."""
        resources = self._resources
        devices = {worker.device for worker in self._state.instances if worker.held}
        if any(resources.fit(self.name, device) for device in devices):
            return set()
        possible = (device for device in devices if resources.suffice(self.name, device))
        return set().union(*(resources.pools(self.name, device) for device in possible))

    def _can_use(self, device: str, kept: Set[Pool]) -> bool:
        resources = self._resources
        return resources.fit(self.name, device) and (not kept or kept.isdisjoint(resources.pools(self.name, device)))

    def handle(self, events: Sequence[Event], now_ns: int, *, is_alone: bool) -> list[Command]:
        """Tell it what happened; it can start batches only if nobody else has anything to do."""
        if not is_alone:
            return self.scheduler.handle(events, now_ns)
        self._show(all_slots=True)
        commands = self.scheduler.handle(events, now_ns)
        self._show()
        return commands

    def offer(self, instance: str, now_ns: int) -> list[Command]:
        """Offer it one slot."""
        self._show(instance)
        commands = self.scheduler.offer(now_ns)
        self._show()
        return commands

    def give_back(self) -> None:
        """Return all that its batches hold."""
        self._gate.return_all()

    def pop_starts(self) -> int:
        """How many slots it has taken since the last call."""
        starts, self._gate.starts = self._gate.starts, 0
        return starts

    def _show(self, only: str | None = None, *, all_slots: bool = False) -> None:
        self._gate.show(only, all_slots=all_slots)
        self._state.workers.show()


class SharedDevices:
    """Drives several schedulers as one. They are its own from now on, but for `reserve` and what only looks.

    Models may come and go while the others run. Laws: whoever leaves is given no more turns and keeps nobody waiting;
    what its running batches need stays taken until it is removed, when they have ended.

    Args:
        schedulers: By name of the model, fresh. An instance's device names the pool of resources that it uses.
        arbiter: Whose turn it is.
        resources: What batches need; by default one batch at a time runs on every device.
    """

    def __init__(
        self, schedulers: Mapping[str, Shareable], arbiter: Arbiter, resources: Resources | None = None
    ) -> None:
        self._arbiter = arbiter
        self._resources = resources or Resources(per_device={"device": 1})
        self._models: dict[str, _Model] = {}
        self._left: dict[str, _Model] = {}  # without turns, but their batches may still run
        self._positions = count()
        for name, scheduler in schedulers.items():
            self.add(name, scheduler)

    @property
    def wake_at_ns(self) -> int | None:
        """When to call `handle` if nothing happens before, or None; as of now."""
        times = [model.scheduler.wake_at_ns for model in self._models.values()]
        return min((wake_ns for wake_ns in times if wake_ns is not None), default=None)

    def add(self, name: str, scheduler: Shareable) -> None:
        """Another model, with a fresh scheduler. Raises ValueError if one of this name is here."""
        if name in self._models or name in self._left:
            raise ValueError(f"a model named {name!r} is here already")
        self._models[name] = _Model(name, next(self._positions), scheduler, self._resources)

    def leave(self, name: str) -> None:
        """Give a model no more turns, and tell it nothing more. Call `handle` then: its turn may be another's now."""
        self._left[name] = self._models.pop(name)

    def remove(self, name: str) -> None:
        """Forget a model, whether it has left before or not; its batches have ended. Call `handle` then, likewise."""
        model = self._left.pop(name, None) or self._models.pop(name)
        model.give_back()
        self._arbiter.forget(name)

    def handle(self, events: Mapping[str, Sequence[Event]], now_ns: int) -> dict[str, list[Command]]:
        """Apply what happened to each model at one instant and say what must be done for each.

        Args:
            events: By model, as for `Scheduler.handle`; nothing is needed for a wake-up.
            now_ns: Not earlier than in any call before.
        """
        if unknown := events.keys() - self._models.keys():
            raise ValueError(f"no model is named {', '.join(sorted(unknown))}")
        models = self._models.values()
        concerned = [model for model in models if events.get(model.name) or model.is_due(now_ns)]
        active = [model for model in models if model in concerned or model.has_waiting]
        commands: dict[str, list[Command]] = {}
        for model in concerned:
            commands[model.name] = model.handle(events.get(model.name, ()), now_ns, is_alone=active == [model])
            for _ in range(model.pop_starts()):
                self._arbiter.started(model.name)
        self._offer(commands, now_ns)
        return commands

    def _offer(self, commands: dict[str, list[Command]], now_ns: int) -> None:
        """Who has once declined need not be asked again: what others start only leaves less."""
        contenders = [contender for model in self._models.values() if (contender := model.contender()) is not None]
        if not any(self._models[contender.model].usable(frozenset()) for contender in contenders):
            return  # while the devices are full, most events end here
        kept: set[Pool] = set()  # for models whose turn it is and that lack resources, so that nobody starves
        while contenders:
            chosen = self._arbiter.first(contenders)
            contenders.remove(chosen)
            model = self._models[chosen.model]
            if not self._takes_one(model, model.usable(kept), commands, now_ns):
                kept |= model.lacks()
            elif (again := model.contender()) is not None:
                contenders.append(again)

    def _takes_one(self, model: _Model, usable: Sequence[str], commands: dict[str, list[Command]], now_ns: int) -> bool:
        for instance in usable:
            found = model.offer(instance, now_ns)
            if found:
                commands.setdefault(model.name, []).extend(found)
            if model.pop_starts():
                self._arbiter.started(model.name)
                return True
        return False
