"""From directories to loaded versions."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backends.cpu_budget import available_cores
from backends.errors import BackendError
from backends.pool import InstancePool
from batching.alarm import Alarm
from batching.clock import MILLISECOND_NS, Clock, seconds_to_ns
from gateway.decoding import Decoder
from gateway.policies import create_scheduler
from gateway.served import Served
from gateway.settings import Settings
from models.errors import ModelsError, RepositoryError
from models.repository import ModelEntry, scan
from models.spec import ModelSpec
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
    async with AsyncExitStack() as stack:
        for entry in entries:
            for problem in entry.problems:
                loaded.add_failure(entry.name, None, problem)
            for spec in entry.versions:
                await _load(spec, loaded, stack, settings, decoder, clock, create_alarm)
        yield loaded


async def _load(
    spec: ModelSpec,
    loaded: Loaded,
    stack: AsyncExitStack,
    settings: Settings,
    decoder: Decoder,
    clock: Clock,
    create_alarm: Callable[[Callable[[], None]], Alarm],
) -> None:
    started_ns = clock.now_ns()
    pool = InstancePool(spec, clock=clock, budget_cores=available_cores(), allow_cpu=settings.allow_cpu)
    try:
        create_scheduler(spec)  # only to find mistakes in its settings before the model is loaded
        await pool.start()
    except (BackendError, ModelsError) as error:
        loaded.add_failure(spec.name, spec.version, error)
        return
    stack.push_async_callback(pool.aclose)
    timeout_ns = seconds_to_ns(settings.request_timeout_secs)
    served = Served(spec, pool, decoder, clock, create_alarm, timeout_ns)
    loaded.models.setdefault(spec.name, {})[spec.version] = served
    fields = {
        "model": spec.name,
        "version": spec.version,
        "backend": spec.backend,
        "policy": spec.batching.policy,
        "instances": len(pool.instances),
        "load_ms": (clock.now_ns() - started_ns) // MILLISECOND_NS,
    }
    _log.info("model ready", extra={"fields": fields})
    for output in spec.outputs:
        if output.labels and not output.has_variable_dims and len(output.labels) != element_count(output.dims):
            _log.warning(
                "model %s: output '%s' has %d labels for %d classes",
                spec.name,
                output.name,
                len(output.labels),
                element_count(output.dims),
            )
