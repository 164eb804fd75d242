"""What an engine depends on, and so what its name in the cache is made of."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from backends.devices import Gpu, driver_version, gpus
from backends.errors import LoadError
from backends.ports import Placement
from backends.sizes import executed_sizes
from models.spec import ModelSpec

DISTRIBUTIONS = ("tensorrt", "tensorrt_cu13", "tensorrt_cu12", "tensorrt_cu13_bindings", "tensorrt_cu12_bindings")
LAYOUT = 1
"""Goes up when the same key would stand for another engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What runs an engine: one that was built for another is of no use, or not as fast as it could be.

    Attributes:
        tensorrt_version: Of the installed package.
        gpu_name: Product name.
        compute_capability: ``9.0``, or ``unknown``.
        driver_major: First number of the driver's version, or ``unknown``.
    """

    tensorrt_version: str
    gpu_name: str = "unknown GPU"
    compute_capability: str = "unknown"
    driver_major: str = "unknown"

    def describe(self) -> str:
        """In words, for messages."""
        return (
            f"TensorRT {self.tensorrt_version} on {self.gpu_name} (compute capability {self.compute_capability}, "
            f"driver {self.driver_major})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """An optimisation profile's range of batch sizes, and the one that it is tuned for."""

    least: int
    best: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How an engine is built, apart from its shapes.

    Attributes:
        workspace_bytes: Most memory for one layer's scratch; 0 leaves it to TensorRT.
        allow_tf32: Whether fp32 layers may round their inputs to 10 bits of mantissa.
    """

    workspace_bytes: int = 0
    allow_tf32: bool = True


def installed_version() -> str | None:
    """Version of the installed TensorRT package, without importing it; None where there is none."""
    for distribution in DISTRIBUTIONS:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def this_machine(placement: Placement) -> Machine | None:
    """The machine for a GPU placement, or None without TensorRT. Touches no CUDA, so any process may ask."""
    version = installed_version()
    if version is None:
        return None
    gpu = choose_gpu(gpus(), placement)
    capability = gpu.compute_capability if gpu else None
    return Machine(
        tensorrt_version=version,
        gpu_name=gpu.name if gpu else "unknown GPU",
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else "unknown",
        driver_major=(driver_version() or "unknown").split(".", 1)[0],
    )


def row_range(spec: ModelSpec) -> RowRange | None:
    """The batch sizes that an engine of the version must take; None for models without batch dimension.

    Tuned for the largest preferred size of the configuration, or else the largest batch: full batches decide how much
    load an instance can bear.
    """
    if not spec.has_batch_dimension:
        return None
    sizes = executed_sizes(spec, is_costly=True, is_gpu=True)
    most = sizes[-1] if sizes else spec.largest_batch_rows
    preferred = spec.batching.parameters.get("preferred_batch_size")
    listed = preferred if isinstance(preferred, Sequence) else ()
    fitting = [rows for rows in listed if isinstance(rows, int) and 0 < rows <= most]
    return RowRange(least=1, best=max(fitting, default=most), most=most)


def build_options(spec: ModelSpec) -> BuildOptions:
    """From the model's parameters `workspace_bytes` and `allow_tf32`. Raises LoadError on a bad value."""
    where = f"model '{spec.name}': parameter"
    workspace = spec.parameters.get("workspace_bytes", "0")
    if not (workspace.isascii() and workspace.isdigit()):
        raise LoadError(f"{where} 'workspace_bytes' is '{workspace}', expected a number from 0 up")
    tf32 = spec.parameters.get("allow_tf32", "true")
    if tf32 not in ("true", "false"):
        raise LoadError(f"{where} 'allow_tf32' is '{tf32}', expected true or false")
    return BuildOptions(workspace_bytes=int(workspace), allow_tf32=tf32 == "true")


def model_digest(source: Path) -> str:
    """Of an ONNX file and of all files beside it that may hold its weights; hexadecimal."""
    digest = hashlib.sha256()
    for file in sorted({source, *source.parent.iterdir()}):
        if file.is_file() and file.suffix not in {".plan", ".engine"}:
            digest.update(f"{file.name}\0".encode() + file_digest(file))
    return digest.hexdigest()


def file_digest(file: Path) -> bytes:
    """SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def engine_key(
    digest: str,
    machine: Machine,
    shapes: Mapping[str, tuple[int, ...]],
    rows: RowRange | None,
    options: BuildOptions,
) -> str:
    """Name of an engine in the cache: engines of one name are interchangeable. Hexadecimal, 40 digits."""
    parts = {
        "layout": LAYOUT,
        "model": digest,
        "machine": asdict(machine),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "rows": asdict(rows) if rows else None,
        "options": asdict(options),
    }
    return short_digest(json.dumps(parts, sort_keys=True))


def short_digest(text: str) -> str:
    """40 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def choose_gpu(found: Sequence[Gpu], placement: Placement) -> Gpu | None:
    """The placement's GPU. A worker of one GPU sees that one only, whatever number it has outside."""
    if len(found) == 1:
        return found[0]
    index = int(placement.device.removeprefix("gpu") or 0)
    return found[index] if index < len(found) else None
