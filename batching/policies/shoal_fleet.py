"""The instances as the `shoal` policy knows them: how fast each one is, and which one takes the next batch."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from batching.core.batches import Batch
from batching.core.workers import Worker
from batching.policies.shoal_estimators import ServiceTimes


class Fleet:
    """Service times of each instance. One that has not run anything yet is taken to be like the one heard of last.

    Args:
        known_ns: Times by rows of any instance, to begin with.

    Attributes:
        window_ns: The most that waiting for one more caller can save: two batches of one row instead of one of two.
    """

    def __init__(self, known_ns: Mapping[int, float]) -> None:
        self.window_ns = 0.0
        self._times: dict[str, ServiceTimes] = {}
        self._latest = ServiceTimes(known_ns)

    def of(self, instance: str | None) -> ServiceTimes:
        """Of one instance."""
        return self._times.get(instance or "", self._latest)

    def learn(self, instance: str, rows: int, busy_ns: int) -> None:
        """An instance was busy so long with a batch."""
        times = self._times.get(instance)
        if times is None:
            times = self._times[instance] = self._latest.copy()
        times.add(rows, max(busy_ns, 1))
        self._latest = times
        self.window_ns = 2 * times.of(1) - times.of(2)

    def keep(self, workers: Iterable[Worker]) -> None:
        """Forget all instances but these."""
        names = {worker.name for worker in workers}
        self._times = {name: times for name, times in self._times.items() if name in names}

    def best(self, workers: Sequence[Worker]) -> Worker:
        """Of the idle instances about as fast as the fastest of them: on the least-loaded device, idle for longest."""
        if len(workers) == 1:
            return workers[0]
        load = Counter[str]()
        for worker in workers:
            load[worker.device] += worker.busy
        idle = [(self.of(worker.name).of(1), worker) for worker in workers if worker.busy < worker.slots]
        enough_ns = 1.25 * min([time_ns for time_ns, _ in idle])
        fast = [worker for time_ns, worker in idle if time_ns <= enough_ns]
        return min(fast, key=lambda worker: (load[worker.device], worker.busy, worker.idle_since_ns))

    def next_free_ns(self, running: Iterable[Batch]) -> float:
        """When the first of the running batches should have ended; never if none runs."""
        ends_ns = [(batch.started_ns or 0) + self.of(batch.instance).of(batch.rows) for batch in running]
        return min(ends_ns, default=float("inf"))
