"""Which instances exist and which of them can take a batch."""

from collections import Counter


class _Worker:
    __slots__ = ("busy", "device", "freed", "leaving", "name", "slots")

    def __init__(self, name: str, device: str, slots: int) -> None:
        self.name = name
        self.device = device
        self.slots = slots
        self.busy = 0
        self.freed = 0  # sequence number of its last release
        self.leaving = False


class Workers:
    """Slots of instances.

    A batch goes to the least-loaded device, there to the least-loaded instance, there to the one that has been free
    longest.
    """

    def __init__(self) -> None:
        self.idle_slots = 0
        self._workers: dict[str, _Worker] = {}
        self._device_busy: Counter[str] = Counter()
        self._releases = 0

    def __len__(self) -> int:
        return sum(not worker.leaving for worker in self._workers.values())

    def join(self, name: str, device: str, slots: int) -> None:
        """Add an instance; its name must be new."""
        if name in self._workers:
            raise ValueError(f"an instance named {name!r} is already here")
        self._workers[name] = _Worker(name, device, slots)
        self.idle_slots += slots

    def leave(self, name: str) -> None:
        """Give an instance no more batches; it is forgotten when its last one has ended."""
        worker = self._workers.get(name)
        if worker is None or worker.leaving:
            return
        worker.leaving = True
        self.idle_slots -= worker.slots - worker.busy
        self._forget_if_gone(worker)

    def acquire(self) -> str:
        """Take a slot of the best instance; there must be an idle one."""
        busy = self._device_busy
        worker = min(
            (worker for worker in self._workers.values() if worker.busy < worker.slots and not worker.leaving),
            key=lambda worker: (busy[worker.device], worker.busy, worker.freed),
        )
        worker.busy += 1
        busy[worker.device] += 1
        self.idle_slots -= 1
        return worker.name

    def release(self, name: str) -> None:
        """Give a slot back."""
        worker = self._workers[name]
        worker.busy -= 1
        self._device_busy[worker.device] -= 1
        self._releases += 1
        worker.freed = self._releases
        if worker.leaving:
            self._forget_if_gone(worker)
        else:
            self.idle_slots += 1

    def _forget_if_gone(self, worker: _Worker) -> None:
        if worker.leaving and not worker.busy:
            del self._workers[worker.name]
