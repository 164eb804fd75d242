"""From a specification to a version in service: instances, scheduler, runner, and the order in which they end."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from backends.cpu_budget import cpu_budget, divide, explain_division
from backends.errors import LoadError
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.alarm import Alarm
from batching.clock import MILLISECOND_NS, Clock, seconds_to_ns
from batching.core.scheduler import Scheduler
from batching.sharing import Seat
from gateway.blocking import in_own_thread
from gateway.catalogue import Catalogue
from gateway.decoding import Decoder
from gateway.ensemble import Ensemble
from gateway.golden_check import check_golden
from gateway.hosted import Hosted
from gateway.policies import create_scheduler
from gateway.rate_limit import RateLimit
from gateway.served import Served
from gateway.settings import Settings
from models.archives.requirements import with_requirements
from models.ensembles import check_ensemble
from models.errors import ModelsError, RepositoryError
from models.problems import as_one
from models.spec import DeviceKind, ModelSpec
from models.tensors import element_count

_log = logging.getLogger(__name__)


class LoadingSite(NamedTuple):
    """What all versions need in order to be loaded.

    Attributes:
        settings: Of the server.
        visible_gpus: By ordinal, the value of CUDA_VISIBLE_DEVICES that shows it alone.
        workers: For instances in worker processes.
        rate_limit: Models take turns at resources, or None.
        decoder: For encoded images.
        clock: The clock of all times.
        create_alarm: For runners.
    """

    settings: Settings
    visible_gpus: Mapping[int, str]
    workers: WorkerHouse
    rate_limit: RateLimit | None
    decoder: Decoder
    clock: Clock
    create_alarm: Callable[[Callable[[], None]], Alarm]


class Loader:
    """Loads versions, beside those that are in service already.

    Args:
        site: What all versions need.
        catalogue: Where an ensemble finds its models.
        tasks: Owns the runners.
        on_defect: Told when a version cannot go on, because its policy broke a law.
    """

    def __init__(
        self,
        site: LoadingSite,
        catalogue: Catalogue,
        tasks: asyncio.TaskGroup,
        on_defect: Callable[[Served], None],
    ) -> None:
        self._site = site
        self._catalogue = catalogue
        self._tasks = tasks
        self._on_defect = on_defect
        self._running: set[asyncio.Task[None]] = set()
        self._loads: Counter[str] = Counter()  # by name
        self._division = ""  # of the cores, as it was told last

    def fits(self, spec: ModelSpec) -> bool:
        """Whether a version can go on: an ensemble cannot when its models have changed too much."""
        return not spec.steps or not check_ensemble(spec, self._catalogue.find_spec)

    def _missing(self, spec: ModelSpec) -> Iterator[ModelsError]:
        """Why models that an ensemble needs are not served."""
        for name in dict.fromkeys(step.model for step in spec.steps):
            if name in self._catalogue.names() and (problem := self._catalogue.problem(name)):
                yield RepositoryError(f"{spec.name}: found that model '{name}' is not served: {problem}")

    def end_runners(self) -> None:
        """A runner that ends answers everything that it holds."""
        for task in self._running:
            task.cancel()

    async def load(self, spec: ModelSpec) -> Hosted:
        """Start a version's instances and its runner.

        Raises:
            BackendError: It cannot be made ready.
            ModelsError: Its configuration or its files are wrong.
            BatchingError: It did not answer its golden photographs.
            OSError: What it requires cannot be installed.
        """
        started_ns = self._site.clock.now_ns()
        if self._site.settings.install_py_dep_per_model and spec.backend == "torchserve":
            spec = await in_own_thread(partial(with_requirements, spec))
        async with AsyncExitStack() as stack:
            served = self._connect(spec, stack) if spec.steps else await self._serve(spec, stack)
            await check_golden(served, self._site.decoder)
            if isinstance(served, Served) and served.failure is not None:
                raise LoadError(f"{_where(spec)}: its policy failed: {served.failure}")
            hosted = Hosted(served, stack.pop_all())
        fields = {
            "model": spec.name,
            "version": spec.version,
            "backend": spec.backend,
            "policy": spec.batching.policy,
            "instances": len(served.statistics().members),
            "load_ms": (self._site.clock.now_ns() - started_ns) // MILLISECOND_NS,
        }
        _log.info("model ready", extra={"fields": fields})
        _warn_of_labels(spec)
        return hosted

    def _connect(self, spec: ModelSpec, stack: AsyncExitStack) -> Ensemble:
        problems = check_ensemble(spec, self._catalogue.find_spec)
        if problems:
            raise as_one([*problems, *self._missing(spec)])
        timeout_ns = seconds_to_ns(self._site.settings.request_timeout_secs)
        ensemble = Ensemble(spec, self._catalogue.find, self._site.decoder, self._site.clock, timeout_ns)
        stack.push_async_callback(ensemble.aclose)
        return ensemble

    async def _serve(self, spec: ModelSpec, stack: AsyncExitStack) -> Served:
        site = self._site
        plain = create_scheduler(spec)  # here, to find mistakes before the model is loaded
        if site.rate_limit is not None:
            site.rate_limit.check(spec)
        pool = InstancePool(spec, clock=site.clock, machine=self._machine(spec), workers=site.workers)
        await pool.start()
        scheduler = await self._admit(spec, plain, pool, stack)
        timeout_ns = seconds_to_ns(site.settings.request_timeout_secs)
        served = Served(spec, scheduler, pool, site.decoder, site.clock, site.create_alarm, timeout_ns)
        stack.push_async_callback(self._start(served))
        await served.running.wait()
        return served

    async def _admit(
        self, spec: ModelSpec, plain: Scheduler, pool: InstancePool, stack: AsyncExitStack
    ) -> Scheduler | Seat:
        """The version's scheduler, in its place among those that share resources."""
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(pool.aclose)
            scheduler: Scheduler | Seat = plain
            if self._site.rate_limit is not None:
                # Below the pool in the stack: resources are given back when the executors are closed.
                devices = sorted({instance.device for instance in pool.instances})
                scheduler = stack.enter_context(self._site.rate_limit.share(spec, plain, devices))
            stack.push_async_exit(on_failure.pop_all())
        return scheduler

    def _start(self, served: Served) -> Callable[[], Awaitable[None]]:
        """Let a version's runner run; gives what ends it."""
        task = self._tasks.create_task(self._run(served))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        return end

    async def _run(self, served: Served) -> None:
        try:
            await served.run()
        except Exception:  # noqa: BLE001 - its policy broke a law: the end of this version, not of the others
            _log.exception("%s: its policy failed", _where(served.spec))
            self._on_defect(served)

    def _machine(self, spec: ModelSpec) -> Machine:
        settings, name = self._site.settings, _name(spec)
        self._loads[name] += 1
        cores = self._cores(spec)
        defaults = Placement(cores=cores, cache_dir=settings.cache_dir, trust_pickles=settings.trust_pickled_models)
        return Machine(
            gpus=self._site.visible_gpus,
            defaults=defaults,
            allow_cpu=settings.allow_cpu,
            incarnation=self._loads[name],
        )

    def _cores(self, spec: ModelSpec) -> int:
        """Its part of the cores, which are divided among all that computes on the CPU, or is about to."""
        names, are_known = [_name(spec)], True
        for record in self._catalogue.records():
            if record.is_wanted and not record.is_read:
                names.append(record.name)  # its versions are not known yet
                are_known = False
            names += [_name(other) for other in record.specs if self._is_on_cpu(other)]
        names = sorted(set(names))
        budget = cpu_budget()
        shares = divide(budget.cores, names)
        division = explain_division(budget, shares)
        if division != self._division and are_known:
            self._division = division
            _log.info("cores: %s", division)
        return shares[_name(spec)]

    def _is_on_cpu(self, spec: ModelSpec) -> bool:
        """Versions on GPUs take no cores from the others, and ensembles need none."""
        return not spec.steps and not (self._site.visible_gpus and _wants_gpu(spec))


def _where(spec: ModelSpec) -> str:
    return f"model '{spec.name}' version {spec.version}"


def _wants_gpu(spec: ModelSpec) -> bool:
    return all(group.kind in (DeviceKind.AUTO, DeviceKind.GPU) for group in spec.instance_groups)


def _name(spec: ModelSpec) -> str:
    return f"{spec.name}:{spec.version}"


def _warn_of_labels(spec: ModelSpec) -> None:
    for output in spec.outputs:
        if output.labels and not output.has_variable_dims and len(output.labels) != element_count(output.dims):
            _log.warning(
                "model %s: output '%s' has %d labels for %d classes",
                spec.name,
                output.name,
                len(output.labels),
                element_count(output.dims),
            )
