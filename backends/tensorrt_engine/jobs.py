"""Which engine a model version needs, and whether it must be built. Imports no TensorRT, so any process may ask."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from backends.errors import LoadError
from backends.ports import Placement
from backends.tensorrt_engine.keys import (
    BuildOptions,
    Machine,
    RowRange,
    build_options,
    engine_key,
    file_digest,
    model_digest,
    row_range,
    this_machine,
)
from backends.tensorrt_engine.store import EngineState, EngineStore
from models.spec import ModelSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """An engine to be built. Crosses the border to the process that builds it, as JSON.

    Attributes:
        model: The version, as messages name it.
        reason: Why it has to be built.
        key: Its name in the cache.
        source: The ONNX file.
        cache_dir: Of the placement.
        machine: What it is built for.
        shapes: Of one row of each input, by name.
        rows: Batch sizes that it must take, or None without batch dimension.
        options: How it is built.
    """

    model: str
    reason: str
    key: str
    source: Path
    cache_dir: Path
    machine: Machine
    shapes: Mapping[str, tuple[int, ...]]
    rows: RowRange | None
    options: BuildOptions

    def to_json(self) -> bytes:
        """One line."""
        return _JOBS.dump_json(self)

    @staticmethod
    def from_json(text: bytes) -> "BuildJob":
        """Raises ValueError."""
        return _JOBS.validate_json(text)


_JOBS = TypeAdapter(BuildJob)


class Sources(NamedTuple):
    """What an engine of a version can come from.

    Attributes:
        plan: The plan file, ready built; None if the model file is an ONNX file.
        onnx: The ONNX file to build from; None if there is only a plan.
    """

    plan: Path | None
    onnx: Path | None


def find_sources(spec: ModelSpec) -> Sources:
    """The model file, and beside a plan the ONNX file ``model.onnx`` or that of the plan's own name."""
    if spec.file.suffix == ".onnx":
        return Sources(None, spec.file)
    beside = (spec.file.with_suffix(".onnx"), spec.file.with_name("model.onnx"))
    return Sources(spec.file, next((file for file in beside if file.is_file()), None))


def needs_build(
    spec: ModelSpec, placement: Placement, find_machine: Callable[[Placement], Machine | None] = this_machine
) -> BuildJob | None:
    """What to build so that this version runs on TensorRT, or None if nothing need or can be built.

    Ask after the version's executors were made: they find out, and remember, whether TensorRT refuses its plan. Reads
    and digests the model file, so call it in a thread.

    Raises:
        LoadError: A parameter of the model is not valid, or a file cannot be read.
    """
    machine = find_machine(placement)
    sources = find_sources(spec)
    if spec.backend != "tensorrt" or not placement.is_gpu or machine is None or sources.onnx is None:
        return None
    reason = "it was not built on this machine yet"
    store = EngineStore(placement.cache_dir, machine)
    if sources.plan is not None:
        if not store.is_refused(plan_digest(spec, sources.plan)):
            return None
        reason = f"'{sources.plan.name}' is not for {machine.describe()}"
    job = build_job(spec, sources.onnx, placement.cache_dir, machine, reason)
    return None if store.state(job.key) is EngineState.READY else job


def build_job(spec: ModelSpec, onnx: Path, cache_dir: Path, machine: Machine, reason: str) -> BuildJob:
    """The engine that this version needs, built or not. Raises LoadError as `needs_build`."""
    shapes = {declared.name: declared.dims for declared in spec.inputs}
    rows, options = row_range(spec), build_options(spec)
    try:
        digest = model_digest(onnx)
    except OSError as error:
        raise LoadError(f"{version_name(spec)}: cannot read '{onnx.name}': {error.strerror}") from error
    return BuildJob(
        model=version_name(spec),
        reason=reason,
        key=engine_key(digest, machine, shapes, rows, options),
        source=onnx,
        cache_dir=cache_dir,
        machine=machine,
        shapes=shapes,
        rows=rows,
        options=options,
    )


def plan_digest(spec: ModelSpec, plan: Path) -> str:
    """Of a plan file; hexadecimal. Raises LoadError."""
    try:
        return file_digest(plan).hex()
    except OSError as error:
        raise LoadError(f"{version_name(spec)}: cannot read '{plan.name}': {error.strerror}") from error


def check_placement(spec: ModelSpec, placement: Placement) -> None:
    """TensorRT has no CPU. Raises LoadError."""
    if not placement.is_gpu:
        raise LoadError(
            f"{version_name(spec)}: backend 'tensorrt' runs on NVIDIA GPUs only, found an instance on the CPU; set its "
            "kind to KIND_GPU, or use the ONNX file with backend 'onnxruntime'"
        )


def version_name(spec: ModelSpec) -> str:
    """As messages name it."""
    return f"model '{spec.name}' version {spec.version}"
