"""The instances of one model version: made from its instance groups, started together, closed together."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from backends.errors import LoadError
from backends.ports import ExecutorFactory, Placement
from backends.registry import create_executors
from backends.thread_host import ThreadInstance
from batching.clock import Clock
from batching.ports import Instance, InstanceStatistics
from models.inference import Tensors
from models.spec import DeviceKind, InstanceGroup, ModelSpec

logger = logging.getLogger(__name__)

MAX_WARM_UP_ROWS = 32


class InstancePool:
    """Owns a model version's instances. It does not dispatch: which instance takes a batch is the scheduler's choice.

    Args:
        spec: The model version.
        clock: Stamps the batches.
        budget_cores: Cores that all instances together may use, see `backends.cpu_budget`.
        allow_cpu: Run instance groups of KIND_GPU on the CPU instead of refusing them.
        factory: Makes the executors.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        clock: Clock,
        budget_cores: int,
        allow_cpu: bool = False,
        factory: ExecutorFactory = create_executors,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._budget_cores = budget_cores
        self._allow_cpu = allow_cpu
        self._factory = factory
        self._instances: tuple[ThreadInstance, ...] = ()

    @property
    def instances(self) -> Sequence[Instance[Tensors, Tensors]]:
        """The ready instances in the order of the groups; empty before `start` and after `aclose`."""
        return self._instances

    async def start(self) -> None:
        """Load and warm up all instances, at the same time: all of them become ready, or none is left behind.

        Raises:
            LoadError: One cannot be made ready, a group asks for a GPU, or the backend is unknown.
        """
        names = [name for group in self._spec.instance_groups for name in self._names(group)]
        # In a thread, because the first model of a backend imports its engine while the loop serves the others.
        placement = Placement(instances=len(names), cores=self._budget_cores)
        lanes = await asyncio.to_thread(self._factory, self._spec, placement)
        instances = tuple(
            ThreadInstance(
                name=name,
                device="cpu",
                spec=self._spec,
                lanes=executors,
                clock=self._clock,
                allowed_rows=self._spec.batching.allowed_rows,
            )
            for name, executors in zip(names, lanes, strict=True)
        )
        sizes = warm_up_sizes(self._spec)
        try:
            await _start(instances, sizes)
        except BaseException:
            await _close(instances)
            raise
        self._instances = instances

    def statistics(self) -> Sequence[InstanceStatistics]:
        """Counters of each instance, in the order of `instances`."""
        return [instance.statistics() for instance in self._instances]

    async def aclose(self) -> None:
        """Close all instances; returns when their running batches are done. Safe to call twice."""
        instances, self._instances = self._instances, ()
        await _close(instances)

    def _names(self, group: InstanceGroup) -> Iterator[str]:
        if group.kind is DeviceKind.GPU:
            where = f"model '{self._spec.name}' version {self._spec.version}: instance group '{group.name}'"
            if not self._allow_cpu:
                raise LoadError(
                    f"{where} asks for KIND_GPU, which backend '{self._spec.backend}' does not have here; "
                    "set its kind to KIND_CPU, or start with --allow-cpu"
                )
            logger.warning("%s asks for KIND_GPU and runs on the CPU", where)
        return (f"{group.name}_{index}" for index in range(group.count))


def warm_up_sizes(spec: ModelSpec) -> Sequence[int]:
    """Batch sizes to run before the first request.

    The allowed ones; without such a list, powers of two up to the largest, and it, but none above
    `MAX_WARM_UP_ROWS`: a large `max_batch_size` is often only a permission, and must not cost minutes and gigabytes.
    """
    if spec.batching.allowed_rows:
        return spec.batching.allowed_rows
    largest = min(spec.largest_batch_rows, MAX_WARM_UP_ROWS)
    powers = [1 << exponent for exponent in range(largest.bit_length())]
    return powers if powers[-1] == largest else [*powers, largest]


async def _start(instances: Sequence[ThreadInstance], sizes: Sequence[int]) -> None:
    outcomes = await asyncio.gather(*(instance.start(sizes) for instance in instances), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def _close(instances: Sequence[ThreadInstance]) -> None:
    for instance in instances:
        instance.stop_nowait()
    for instance in instances:
        await instance.aclose()
