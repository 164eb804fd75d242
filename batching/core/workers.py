"""Which instances exist and which of them can take a batch."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from batching.core.errors import PolicyError


class Worker:
    """An instance as policies see it.

    Attributes:
        name: Unique within the scheduler.
        device: Where it runs; load is balanced over devices.
        slots: Batches that it can hold at once.
        busy: Slots that are running or collecting, or held back.
        held: Idle slots that a gate hides.
        max_rows: The largest batch that it takes.
        idle_since_ns: When it last ended a batch, or joined.
    """

    __slots__ = ("busy", "device", "held", "idle_since_ns", "is_leaving", "max_rows", "name", "releases", "slots")

    def __init__(self, name: str, device: str, slots: int, max_rows: int, now_ns: int) -> None:
        self.name = name
        self.device = device
        self.slots = slots
        self.busy = self.held = 0
        self.max_rows = max_rows
        self.idle_since_ns = now_ns
        self.releases = 0  # sequence number of its last release
        self.is_leaving = False


class Gate(Protocol):
    """Decides which idle slots can be seen, on devices that other schedulers use as well."""

    def shown(self, workers: Sequence[Worker]) -> Sequence[int]:
        """How many idle slots of each instance may be taken now."""
        ...

    def taken(self, device: str) -> None:
        """A slot is in use."""
        ...

    def returned(self, device: str) -> None:
        """A slot is not in use any more."""
        ...


class Workers:
    """Slots of instances.

    A batch goes to the least-loaded device, there to the least-loaded instance, there to the one that has been free
    longest.
    """

    def __init__(self, max_batch_rows: int) -> None:
        self.idle_slots = 0
        self.max_batch_rows = max_batch_rows  # what every instance takes
        self.staying: tuple[Worker, ...] = ()
        self.gate: Gate | None = None
        self._limit_rows = max_batch_rows
        self._workers: dict[str, Worker] = {}
        self._device_busy: Counter[str] = Counter()
        self._releases = 0

    def join(self, name: str, device: str, slots: int, max_rows: int | None, now_ns: int) -> None:
        """Add an instance; its name must be new.

        One that left and comes back before its last batch has ended goes on where it was: the batches that it still
        runs, or somebody else in its place, occupy its slots.
        """
        worker = self._workers.get(name)
        if worker is None:
            worker = self._workers[name] = Worker(name, device, slots, max_rows or self._limit_rows, now_ns)
        elif worker.is_leaving and worker.device == device:
            worker.is_leaving = False
            worker.slots, worker.max_rows = slots, max_rows or self._limit_rows
        else:
            raise ValueError(f"an instance named {name!r} is already here")
        self.idle_slots += max(0, slots - worker.busy)
        self._recount()
        self.show()

    def leave(self, name: str) -> bool:
        """Give an instance no more batches; it is forgotten when its last one has ended."""
        worker = self._workers.get(name)
        if worker is None or worker.is_leaving:
            return False
        worker.is_leaving = True
        self.idle_slots -= max(0, worker.slots - worker.busy)
        worker.busy, worker.held = worker.busy - worker.held, 0
        self._forget_if_gone(worker)
        self._recount()
        self.show()
        return True

    def change_cap(self, name: str, max_rows: int) -> bool:
        """Set the largest batch of an instance."""
        worker = self._workers.get(name)
        if worker is None:
            return False
        worker.max_rows = max_rows
        self._recount()
        return True

    def acquire(self, name: str | None = None) -> Worker:
        """Take a slot of an instance, or of the best one. Raises PolicyError if there is no idle one."""
        if not self.idle_slots:
            raise PolicyError("a batch starts without an idle instance")
        worker = self._best() if name is None else self._idle(name)
        worker.busy += 1
        self._device_busy[worker.device] += 1
        self.idle_slots -= 1
        if self.gate is not None:
            self.gate.taken(worker.device)
        return worker

    def release(self, name: str, now_ns: int) -> int:
        """Give the slot of a batch back that has run. Returns when the instance had ended the batch before that."""
        worker = self._workers[name]
        self._releases += 1
        worker.releases = self._releases
        before_ns, worker.idle_since_ns = worker.idle_since_ns, now_ns
        self._give_back(worker)
        return before_ns

    def unbind(self, name: str) -> None:
        """Give the slot of a batch back that was never started."""
        self._give_back(self._workers[name])

    def show(self) -> None:
        """Let the gate say anew which idle slots can be seen; the others look busy."""
        if self.gate is None:
            return
        for worker in self.staying:
            worker.busy -= worker.held
            worker.held = 0
        shown = self.gate.shown(self.staying)
        for worker, slots in zip(self.staying, shown, strict=True):
            worker.held = max(0, worker.slots - worker.busy - slots)
            worker.busy += worker.held
        self.idle_slots = sum(shown)

    def _give_back(self, worker: Worker) -> None:
        worker.busy -= 1
        self._device_busy[worker.device] -= 1
        if worker.is_leaving:
            self._forget_if_gone(worker)
        elif worker.busy < worker.slots:  # not if it came back with fewer of them
            self.idle_slots += 1
        if self.gate is not None:
            self.gate.returned(worker.device)
            self.show()

    def _best(self) -> Worker:
        if len(self.staying) == 1:
            return self.staying[0]
        busy = self._device_busy
        return min(
            (worker for worker in self.staying if worker.busy < worker.slots),
            key=lambda worker: (busy[worker.device], worker.busy, worker.releases),
        )

    def _idle(self, name: str) -> Worker:
        worker = self._workers.get(name)
        if worker is None or worker.is_leaving or worker.busy >= worker.slots:
            raise PolicyError(f"instance {name!r} cannot take a batch now")
        return worker

    def _forget_if_gone(self, worker: Worker) -> None:
        if worker.is_leaving and not worker.busy:
            del self._workers[worker.name]

    def _recount(self) -> None:
        self.staying = tuple(worker for worker in self._workers.values() if not worker.is_leaving)
        self.max_batch_rows = min([self._limit_rows, *(worker.max_rows for worker in self.staying)])
