"""From directories to loaded versions."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from backends.cpu_budget import cpu_budget, divide, explain_division
from backends.devices import gpus
from backends.errors import BackendError
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.alarm import Alarm
from batching.clock import MILLISECOND_NS, Clock, seconds_to_ns
from batching.core.scheduler import Scheduler
from batching.runner import Runner
from batching.sharing import Seat
from gateway.decoding import Decoder
from gateway.policies import create_scheduler
from gateway.rate_limit import RateLimit, parse_resource_limit, rate_limit_notes
from gateway.served import Served
from gateway.settings import Settings
from models.errors import ModelsError, RepositoryError
from models.inference import Tensors
from models.repository import ModelEntry, scan
from models.spec import DeviceKind, ModelSpec
from models.tensors import element_count
from models.zoo.embedded import ensure_cached

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """What could be loaded and what could not.

    Attributes:
        models: Versions by model and number; a model that failed altogether has none.
        failed: Version numbers that could not be loaded, by model.
        problems: Why, in sentences.
    """

    models: dict[str, dict[int, Served]] = field(default_factory=dict)
    failed: dict[str, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def runners(self) -> Sequence[Runner[Tensors, Tensors]]:
        """Those of all versions."""
        return [served.runner for versions in self.models.values() for served in versions.values()]

    def add_failure(self, model: str, version: int | None, problem: Exception) -> None:
        """Remember a model or version that cannot answer."""
        self.models.setdefault(model, {})
        self.failed.setdefault(model, []).extend([] if version is None else [version])
        self.problems.append(str(problem))


def read_repositories(settings: Settings) -> Sequence[ModelEntry]:
    """Read the configured repositories, or the embedded model, built if need be. Blocks.

    Raises:
        RepositoryError: A repository cannot be read.
    """
    roots = settings.model_repository or (_embedded(settings.cache_dir),)
    entries = scan(roots).models
    if not entries:
        _log.warning("no model found in %s", ", ".join(map(str, roots)))
    for entry in entries:
        for note in entry.notes:
            _log.warning("model %s: %s", entry.name, note)
    return entries


def _embedded(cache_dir: Path) -> Path:
    try:
        return ensure_cached(cache_dir)
    except RepositoryError as error:
        raise RepositoryError(f"{error}: {cache_dir}; choose another with --cache-dir") from None


@asynccontextmanager
async def loaded_models(
    entries: Sequence[ModelEntry],
    settings: Settings,
    decoder: Decoder,
    clock: Clock,
    create_alarm: Callable[[Callable[[], None]], Alarm],
) -> AsyncIterator[Loaded]:
    """Load and warm all versions; their instances are closed at the end of the block."""
    loaded = Loaded()
    limits = [parse_resource_limit(text) for text in settings.rate_limit_resource]
    rate_limit = RateLimit(limits, clock) if settings.rate_limit == "execution_count" else None
    for text in rate_limit_notes([spec for entry in entries for spec in entry.versions], limits, rate_limit):
        _log.warning("%s", text)
    found = await asyncio.to_thread(gpus)
    visible = {gpu.index: gpu.uuid for gpu in found}
    cores = _divided_cores(entries, bool(found))
    async with WorkerHouse(clock) as workers, AsyncExitStack() as stack:
        loader = _Loader(settings, visible, cores, workers, rate_limit, decoder, clock, create_alarm)
        for entry in entries:
            for problem in entry.problems:
                loaded.add_failure(entry.name, None, problem)
            for spec in entry.versions:
                try:
                    served = await loader.load(spec, stack)
                except (BackendError, ModelsError) as error:
                    loaded.add_failure(spec.name, spec.version, error)
                else:
                    loaded.models.setdefault(spec.name, {})[spec.version] = served
        yield loaded


def _divided_cores(entries: Sequence[ModelEntry], has_gpus: bool) -> Mapping[str, int]:
    """The cores of each version; those that run on GPUs take none from the others."""
    versions = [spec for entry in entries for spec in entry.versions]
    on_cpu = [_name(spec) for spec in versions if not (has_gpus and _wants_gpu(spec))]
    budget = cpu_budget()
    shares = divide(budget.cores, on_cpu)
    if shares:
        _log.info("cores: %s", explain_division(budget, shares))
    return {_name(spec): shares.get(_name(spec), budget.cores) for spec in versions}


def _wants_gpu(spec: ModelSpec) -> bool:
    return all(group.kind in (DeviceKind.AUTO, DeviceKind.GPU) for group in spec.instance_groups)


class _Loader(NamedTuple):
    """What all versions need in order to be loaded."""

    settings: Settings
    visible_gpus: Mapping[int, str]
    cores: Mapping[str, int]
    workers: WorkerHouse
    rate_limit: RateLimit | None
    decoder: Decoder
    clock: Clock
    create_alarm: Callable[[Callable[[], None]], Alarm]

    async def load(self, spec: ModelSpec, stack: AsyncExitStack) -> Served:
        """Start a version's instances, which are closed with the stack. Raises BackendError and ModelsError."""
        started_ns = self.clock.now_ns()
        pool = InstancePool(spec, clock=self.clock, machine=self._machine(spec), workers=self.workers)
        plain = create_scheduler(spec)  # here, to find mistakes before the model is loaded
        scheduler: Scheduler | Seat = plain
        if self.rate_limit is not None:
            self.rate_limit.check(spec)
        await pool.start()
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(pool.aclose)
            if self.rate_limit is not None:
                # Below the pool in the stack: resources are given back when the executors are closed.
                devices = sorted({instance.device for instance in pool.instances})
                scheduler = stack.enter_context(self.rate_limit.share(spec, plain, devices))
            stack.push_async_exit(on_failure.pop_all())
        timeout_ns = seconds_to_ns(self.settings.request_timeout_secs)
        served = Served(spec, scheduler, pool, self.decoder, self.clock, self.create_alarm, timeout_ns)
        fields = {
            "model": spec.name,
            "version": spec.version,
            "backend": spec.backend,
            "policy": spec.batching.policy,
            "instances": len(pool.instances),
            "load_ms": (self.clock.now_ns() - started_ns) // MILLISECOND_NS,
        }
        _log.info("model ready", extra={"fields": fields})
        _warn_of_labels(spec)
        return served

    def _machine(self, spec: ModelSpec) -> Machine:
        defaults = Placement(
            cores=self.cores[_name(spec)],
            cache_dir=self.settings.cache_dir,
            trust_pickles=self.settings.trust_pickled_models,
        )
        return Machine(gpus=self.visible_gpus, defaults=defaults, allow_cpu=self.settings.allow_cpu)


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
