"""CPU plans on disk: one small file each, named by everything that a plan depends on."""

import hashlib
import logging
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from backends.errors import LoadError
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_FORMAT = 1
_DISTRIBUTIONS = {"onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"), "pytorch": ("torch",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPlan:
    """How a model's share of the cores is used.

    Attributes:
        instances: At least 1.
        threads: Of each instance, at least 1.
        best_rows: The batch size with the most rows a second, of those tried; 0 if nothing was measured.
        rows_per_s: What all instances together achieved with it; 0 if nothing was measured.
        explanation: For people, one line.
    """

    instances: int
    threads: int
    best_rows: int
    rows_per_s: float
    explanation: str


_PLAN = TypeAdapter(CpuPlan)


def plan_file(cache_dir: Path, spec: ModelSpec, cores: int) -> Path:
    """Where the plan of a model version is kept: another file for other weights, parameters, engines and processors.

    Raises:
        LoadError: The model file cannot be read.
    """
    key = hashlib.sha256()
    for part in (_FORMAT, spec.backend, *_versions(spec.backend), cores, _processor(), *_traits(spec)):
        key.update(f"{part}\n".encode())
    try:
        for file in _files(spec.file):
            with file.open("rb") as content:
                key.update(hashlib.file_digest(content, "sha256").digest())
    except OSError as error:
        raise LoadError(f"model '{spec.name}' version {spec.version}: cannot be read: {error.strerror}") from error
    return cache_dir / "cpu-plans" / f"{spec.name}-{key.hexdigest()[:16]}.json"


def read_plan(file: Path, cores: int) -> CpuPlan | None:
    """The plan in a file; None if there is none, it is damaged or does not fit the cores."""
    try:
        plan = _PLAN.validate_json(file.read_bytes(), strict=True)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        logger.warning("cpu-plans/%s is damaged and measured again (%s)", file.name, type(error).__name__)
        return None
    return plan if plan.instances > 0 and 0 < plan.instances * plan.threads <= cores else None


def write_plan(file: Path, plan: CpuPlan) -> None:
    """Keep a plan, if the directory can be written: whoever reads sees all of it or nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
            part.write(_PLAN.dump_json(plan))
        Path(part.name).replace(file)
    except OSError as error:
        logger.warning("cpu-plans/%s cannot be written, it is measured again next time: %s", file.name, error.strerror)


def _traits(spec: ModelSpec) -> Iterator[object]:
    yield from sorted(spec.parameters.items())
    yield from ((declared.name, declared.data_type, declared.dims) for declared in spec.inputs)
    yield spec.max_batch_rows
    yield spec.batching.allowed_rows
    yield from (
        (accelerator.name, sorted(accelerator.parameters.items())) for accelerator in spec.execution.cpu_accelerators
    )


def _versions(backend: str) -> Iterator[str]:
    for distribution in _DISTRIBUTIONS.get(backend, ()):
        try:
            yield f"{distribution} {metadata.version(distribution)}"
        except metadata.PackageNotFoundError:
            continue


def _processor() -> str:
    """The processor's name as Linux tells it, else as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _files(path: Path) -> list[Path]:
    """The model's file, or all files of its directory."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
