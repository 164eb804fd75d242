"""The measured number of instances and threads of a model on the CPU, put into its specification."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from backends.cpu_plan import choose_plan, is_open
from backends.errors import LoadError
from backends.placing import Machine, Site, place
from backends.ports import Executor, ExecutorFactory, Placement
from backends.process.worker_process import WorkerProcess
from backends.registry import Hosting, find_backend
from backends.tenancy import environment
from batching.clock import Clock
from models.spec import ModelSpec

Make = Callable[[Placement], Sequence[Sequence[Executor]]]


async def with_measured_split(
    spec: ModelSpec, machine: Machine, factory: ExecutorFactory, clock: Clock
) -> tuple[ModelSpec, Machine]:
    """The version with as many instances as are best, and the machine with the cores that these use together.

    Both stay as they are unless all instances are on the CPU, the configuration says neither how many there are nor
    how many threads each has, and the backend is one for which that matters.

    Raises:
        LoadError: The model cannot be made ready.
    """
    sites = place(spec, machine)
    if not _is_open(spec, sites):
        return spec, machine
    placement = sites[0].placement
    if placement.cores == 1:
        return _split(spec, machine, instances=1, cores=1)
    async with _maker(spec, sites[0], factory, clock) as make:

        def executors(instances: int, threads: int) -> Sequence[Executor]:
            split = replace(placement, instances=instances, cores=instances * threads, names=())
            return [lanes[0] for lanes in make(split)]

        try:
            async with asyncio.timeout(spec.execution.load_timeout_s):
                plan = await asyncio.to_thread(
                    choose_plan, spec, cores=placement.cores, cache_dir=placement.cache_dir, make=executors, clock=clock
                )
        except TimeoutError:
            limit_s = spec.execution.load_timeout_s
            raise LoadError(f"model '{spec.name}': measuring it took longer than {limit_s:g} s") from None
    return _split(spec, machine, instances=plan.instances, cores=plan.instances * plan.threads)


def _split(spec: ModelSpec, machine: Machine, *, instances: int, cores: int) -> tuple[ModelSpec, Machine]:
    (group,) = spec.instance_groups
    measured = replace(spec, instance_groups=(replace(group, count=instances),))
    return measured, machine._replace(defaults=replace(machine.defaults, cores=cores))


def _is_open(spec: ModelSpec, sites: Sequence[Site]) -> bool:
    on_cpu = all(site.placement.device == "cpu" for site in sites)
    shared = all(site.hosting is not Hosting.INSTANCE_PROCESS for site in sites)
    return on_cpu and shared and find_backend(spec).has_costly_sizes and is_open(spec)


@asynccontextmanager
async def _maker(spec: ModelSpec, site: Site, factory: ExecutorFactory, clock: Clock) -> AsyncIterator[Make]:
    """Makes executors where the site's will be: in this process, or in one like theirs that is ended afterwards."""
    if site.hosting is Hosting.THREAD:
        yield lambda placement: factory(spec, placement)
        return
    loop = asyncio.get_running_loop()
    variables = {name: value for name, value in environment(spec, site, {}).items() if name != "OMP_NUM_THREADS"}
    process = WorkerProcess(f"{site.process} (measuring)", clock=clock, environment=variables)
    try:
        await process.start()
        yield lambda placement: asyncio.run_coroutine_threadsafe(process.assign(spec, placement), loop).result()
    finally:
        await process.aclose(grace_s=1.0)
