"""From an ONNX file to a plan. Takes seconds to minutes, and the GPU meanwhile."""

import logging
from collections.abc import Mapping

from backends.errors import LoadError
from backends.tensorrt_engine.api import (
    Builder,
    BuilderConfig,
    HostMemory,
    Network,
    OnnxParser,
    OptimizationProfile,
    TensorRt,
)
from backends.tensorrt_engine.jobs import BuildJob
from backends.tensorrt_engine.keys import Machine
from backends.tensorrt_engine.messages import Library, clean
from backends.tensorrt_engine.store import EngineState, EngineStore
from batching.clock import SECOND_NS, Clock

logger = logging.getLogger(__name__)


def run_build(library: Library, job: BuildJob, clock: Clock) -> None:
    """Build the job's engine into the cache, unless it is there, or another process builds it meanwhile.

    Raises:
        LoadError: TensorRT cannot read the model or build an engine of it; says why.
    """
    store = EngineStore(job.cache_dir, job.machine)
    try:
        with store.building(job.key):
            if store.state(job.key) is not EngineState.READY:
                _build(library, job, store, clock)
    except OSError as error:
        raise LoadError(f"{job.model}: cannot write to the engine cache: {error.strerror}") from error


def _build(library: Library, job: BuildJob, store: EngineStore, clock: Clock) -> None:
    logger.info("%s: building a TensorRT engine: %s", job.model, job.reason)
    started_ns = clock.now_ns()
    plan, timings = build_plan(library, job, store.load_timings())
    store.save(job.key, plan)
    if timings:
        store.save_timings(timings)
    seconds = (clock.now_ns() - started_ns) / SECOND_NS
    logger.info("%s: built a TensorRT engine of %.1f MB in %.1f s", job.model, len(plan) / 1e6, seconds)


def build_plan(library: Library, job: BuildJob, timings: bytes) -> tuple[bytes, bytes]:
    """The plan, and the timing cache with what this build has learned.

    The network is strongly typed: its element types are those of the ONNX file, so fp16 is a converted file, int8 one
    with Q/DQ nodes, and no kernel is chosen that rounds more than the file says.

    Raises:
        LoadError: TensorRT cannot read the model or build an engine of it.
    """
    api = library.api
    api.init_libnvinfer_plugins(None, "")  # layers of the ONNX file may be TensorRT's plugins
    builder = api.Builder(library.logger)
    network = builder.create_network(1 << int(api.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = _parse(library, job, network)
    config = builder.create_builder_config()
    _configure(api, config, job)
    profile = builder.create_optimization_profile()
    if _add_shapes(profile, network, job):
        config.add_optimization_profile(profile)
    _set_timings(config, timings, job.machine)
    plan = _serialize(builder, network, config, job, library)
    del parser  # it owned the weights until here
    cache = config.get_timing_cache()
    learned = cache.serialize() if cache is not None else None
    return plan, _bytes(learned) if learned is not None else b""


def _parse(library: Library, job: BuildJob, network: Network) -> OnnxParser:
    parser = library.api.OnnxParser(network, library.logger)
    if not parser.parse_from_file(str(job.source.absolute())):
        errors = [clean(parser.get_error(index).desc(), job.source) for index in range(parser.num_errors)]
        text = "; ".join(errors) or clean(library.messages.take(), job.source)
        raise LoadError(f"{job.model}: TensorRT cannot read '{job.source.name}': {text}")
    return parser


def _configure(api: TensorRt, config: BuilderConfig, job: BuildJob) -> None:
    if job.options.workspace_bytes:
        config.set_memory_pool_limit(api.MemoryPoolType.WORKSPACE, job.options.workspace_bytes)
    if not job.options.allow_tf32:
        config.clear_flag(api.BuilderFlag.TF32)


def _add_shapes(profile: OptimizationProfile, network: Network, job: BuildJob) -> bool:
    """Set the range of each input that has one; returns whether there is any."""
    inputs = {tensor.name: tuple(tensor.shape) for tensor in map(network.get_input, range(network.num_inputs))}
    _check_names(inputs, job)
    varying = [name for name, shape in inputs.items() if any(dim < 0 for dim in shape)]
    for name in varying:
        item = job.shapes[name]
        if any(dim < 0 for dim in item):
            raise LoadError(
                f"{job.model}: input '{name}' is declared with variable dims {list(item)}, expected fixed ones: an "
                "engine is tuned for the shapes it gets; declare the dims, or supply a plan that was built for a range"
            )
        rows = job.rows
        shapes = [(count, *item) for count in (rows.least, rows.best, rows.most)] if rows else [item] * 3
        profile.set_shape(name, *shapes)
    return bool(varying)


def _check_names(inputs: Mapping[str, tuple[int, ...]], job: BuildJob) -> None:
    missing = sorted(inputs.keys() - job.shapes.keys())
    if missing:
        raise LoadError(
            f"{job.model}: '{job.source.name}' has inputs {', '.join(missing)} that the configuration does not declare"
        )


def _set_timings(config: BuilderConfig, timings: bytes, machine: Machine) -> None:
    # Empty bytes make an empty cache, which the build then fills. None: not for this version; start afresh.
    cache = config.create_timing_cache(timings) or config.create_timing_cache(b"")
    if cache is None or not config.set_timing_cache(cache, False):
        logger.warning("TensorRT takes no timing cache on %s: the build tries every kernel again", machine.describe())


def _serialize(builder: Builder, network: Network, config: BuilderConfig, job: BuildJob, library: Library) -> bytes:
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        text = clean(library.messages.take(), job.source)
        raise LoadError(f"{job.model}: TensorRT cannot build an engine of '{job.source.name}': {text}")
    return _bytes(plan)


def _bytes(memory: HostMemory) -> bytes:
    return bytes(memoryview(memory))  # a copy: TensorRT's memory goes with its object
