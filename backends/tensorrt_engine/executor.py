"""Which executors serve a TensorRT model version: those of its engine, or of another backend until it is built.

1. A plan file that TensorRT reads on this machine is used as it is.
2. Otherwise, and for an ONNX file, the engine that was built here from the ONNX file.
3. Otherwise another backend runs the ONNX file (or a ``model.pt`` beside it) on the same device, while the engine is
   built in a process of its own: `jobs.needs_build`, `build_process.build_in_process`. Executors that are made after
   that find the engine: the pool replaces instances one by one.
4. Where no other backend works, the engine is built before anything is served.

After `create_executors` nothing is ever built in a serving process.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backends import registry
from backends.errors import LoadError
from backends.ports import Executor, ExecutorFactory, Placement
from backends.tensorrt_engine.bindings import load_tensorrt
from backends.tensorrt_engine.building import run_build
from backends.tensorrt_engine.engine import LoadedEngine, RefusedPlanError, read_engine
from backends.tensorrt_engine.engine_lane import engine_executors
from backends.tensorrt_engine.jobs import build_job, check_placement, find_sources, plan_digest, version_name
from backends.tensorrt_engine.keys import Machine, this_machine
from backends.tensorrt_engine.messages import Library
from backends.tensorrt_engine.store import EngineStore
from backends.torch_engine.device import Device
from batching.clock import Clock, MonotonicClock
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

OWN_PARAMETERS = ("workspace_bytes", "allow_tf32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What executors are made with.

    Attributes:
        library: TensorRT.
        device: The GPU.
        machine: What engines are built for.
        clock: Times builds.
        factory: Makes the executors of other backends.
    """

    library: Library
    device: Device
    machine: Machine
    clock: Clock
    factory: ExecutorFactory


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """Executors of the version's engine, or of another backend as long as that engine has to be built.

    Reads the plan, which may take seconds: whether it can be read decides which executors there are.

    Raises:
        LoadError: TensorRT or PyTorch is missing, the placement is the CPU, or neither an engine nor another backend
            can serve the version.
    """
    check_placement(spec, placement)
    library = load_tensorrt()
    tools = Tools(
        library=library,
        device=_create_device(),
        machine=this_machine(placement) or Machine(tensorrt_version=library.api.__version__),
        clock=MonotonicClock(),
        factory=registry.create_executors,
    )
    return choose_executors(spec, placement, tools)


def choose_executors(spec: ModelSpec, placement: Placement, tools: Tools) -> Sequence[Sequence[Executor]]:
    """As the module says. Raises LoadError as `create_executors`."""
    try:
        loaded = find_engine(spec, placement, tools)
    except RefusedPlanError as refusal:
        onnx = find_sources(spec).onnx
        if onnx is None:
            raise LoadError(
                f"{version_name(spec)}: {refusal}; build the plan again for this machine, or put the ONNX file beside "
                "it as model.onnx, from which an engine is then built here"
            ) from refusal
        substitute = find_substitute(spec, onnx, placement, tools.factory)
        if substitute is not None:
            logger.warning(
                "%s: %s; backend '%s' serves until an engine is built", version_name(spec), refusal, substitute.backend
            )
            return tools.factory(substitute, placement)
        logger.warning("%s: %s; no other backend can serve, so it is built first", version_name(spec), refusal)
        loaded = _build_first(spec, onnx, placement, tools, str(refusal))
    return engine_executors(spec, placement, loaded, tools.device)


def find_engine(spec: ModelSpec, placement: Placement, tools: Tools) -> LoadedEngine:
    """The version's engine, from its plan file or from the cache; builds nothing.

    Raises:
        RefusedPlanError: There is none that TensorRT reads here; says why, and names both versions if that is why.
        LoadError: The engine is not what the version declares, or a file cannot be read.
    """
    store = EngineStore(placement.cache_dir, tools.machine)
    sources = find_sources(spec)
    reason = "no engine was built for this machine yet"
    if sources.plan is not None:
        try:
            return _read_plan(spec, sources.plan, store, tools)
        except RefusedPlanError as refusal:
            reason = f"'{sources.plan.name}' cannot be used: {refusal}"
    if sources.onnx is not None:
        job = build_job(spec, sources.onnx, placement.cache_dir, tools.machine, reason)
        loaded = _read_cached(spec, job.key, store, tools)
        if loaded is not None:
            return loaded
    raise RefusedPlanError(reason)


def find_substitute(spec: ModelSpec, onnx: Path, placement: Placement, factory: ExecutorFactory) -> ModelSpec | None:
    """The version as another backend runs it, the first that loads on the device; None if none does."""
    for candidate in _substitutes(spec, onnx):
        try:
            (lanes,) = factory(candidate, replace(placement, instances=1))
            _try(lanes[0])
        except LoadError as error:
            logger.info("%s: backend '%s' cannot serve meanwhile: %s", version_name(spec), candidate.backend, error)
        else:
            return candidate
    return None


def _substitutes(spec: ModelSpec, onnx: Path) -> Iterator[ModelSpec]:
    execution = replace(spec.execution, gpu_accelerators=())  # which could be TensorRT again, built in this process
    plain = replace(spec, execution=execution, parameters={}, batching=spec.batching)
    yield replace(plain, backend="onnxruntime", platform="onnxruntime_onnx", file=onnx)
    torch_file = onnx.with_name("model.pt")
    if torch_file.is_file():
        parameters = {name: text for name, text in spec.parameters.items() if name not in OWN_PARAMETERS}
        yield replace(plain, backend="pytorch", platform="pytorch_libtorch", file=torch_file, parameters=parameters)


def _try(executor: Executor) -> None:
    """Whether a backend works on a device shows when it loads a model, not before."""
    try:
        executor.load()
    finally:
        executor.close()


def _read_plan(spec: ModelSpec, plan: Path, store: EngineStore, tools: Tools) -> LoadedEngine:
    digest = plan_digest(spec, plan)
    try:
        content = plan.read_bytes()
    except OSError as error:
        raise LoadError(f"{version_name(spec)}: cannot read '{plan.name}': {error.strerror}") from error
    try:
        return _read(spec, content, tools)
    except RefusedPlanError as refusal:
        store.note_refused(digest, str(refusal))
        raise


def _read_cached(spec: ModelSpec, key: str, store: EngineStore, tools: Tools) -> LoadedEngine | None:
    plan = store.load(key)
    if plan is None:
        return None
    try:
        return _read(spec, plan, tools)
    except RefusedPlanError as refusal:
        logger.warning("%s: the cached engine is dropped: %s", version_name(spec), refusal)
        store.discard(key)
        return None


def _read(spec: ModelSpec, plan: bytes, tools: Tools) -> LoadedEngine:
    with tools.device.preparing():  # it moves weights to the device
        return read_engine(tools.library, plan, spec, tools.machine)


def _build_first(spec: ModelSpec, onnx: Path, placement: Placement, tools: Tools, reason: str) -> LoadedEngine:
    job = build_job(spec, onnx, placement.cache_dir, tools.machine, reason)
    run_build(tools.library, job, tools.clock)
    store = EngineStore(placement.cache_dir, tools.machine)
    loaded = _read_cached(spec, job.key, store, tools)
    if loaded is None:
        raise LoadError(f"{version_name(spec)}: the engine that was just built cannot be read back from the cache")
    return loaded


def _create_device() -> Device:
    try:
        from backends.torch_engine.cuda_device import CudaDevice  # noqa: PLC0415 - imports PyTorch, which takes seconds
    except ImportError as error:
        raise LoadError(
            f"backend 'tensorrt' manages GPU memory and streams with PyTorch, which cannot be imported ({error}); run "
            "`make setup-gpu`"
        ) from error
    return CudaDevice()
