"""`shoal quantize`: an ONNX classifier becomes a version in 8 bits, calibrated and judged on photos. No PyTorch."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backends.errors import ExportError
from backends.export.kinds import Precision
from backends.export.onnx_tools import is_quantised, write_int8
from backends.export.parity import NO_WISHES, MissedError, ParityReport, Scores, Wishes, measure
from backends.export.samples import Samples, mirrored, read_photos
from backends.export.served import compared_sizes, one_by_one, served
from backends.export.staging import appearing, copy_configuration, only_version, present_versions
from models.preprocessing import Preprocessing
from models.spec import ExecutionSpec, ModelSpec

_FEWEST_PHOTOS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRequest:
    """What is to be quantised, and where it goes.

    Attributes:
        model: The model's directory in a repository.
        photos: A folder; half of it calibrates, the other half judges.
        version: The version to quantise; None for the newest.
        repository: Where the new version goes; None for the same repository.
        new_version: Its number; None for one more than the newest there.
        wishes: What it must keep.
        force: Replace the new version if it is there.
    """

    model: Path
    photos: Path
    version: int | None = None
    repository: Path | None = None
    new_version: int | None = None
    wishes: Wishes = NO_WISHES
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeResult:
    """How the new version compares with the old one, and the sizes of both files."""

    report: ParityReport
    bytes_before: int
    bytes_after: int


class _Photos(NamedTuple):
    calibration: Samples
    held_out: Samples


def quantize(request: QuantizeRequest) -> QuantizeResult:
    """Write the 8-bit version, unless it misses a bound. Blocks for seconds to minutes.

    Static quantisation in QDQ form: unsigned 8-bit values and signed 8-bit weights with a scale for each channel,
    ranges by smallest and largest value; for backend ``tensorrt`` values are signed and symmetric.

    Raises:
        MissedError: The variant misses a bound; has the report. Nothing was written.
        ExportError: It cannot be done; says why. Nothing was written.
    """
    directory = request.model.resolve()
    with _alone(directory, _version(request, directory)) as spec:
        how = _checked(spec)
        photos = _split(read_photos(request.photos, how), how)
        reference = served(_on_cpu(spec), lambda compute: one_by_one(compute, photos.held_out.rows))
        repository = request.repository or directory.parent
        number = _new_version(request, repository / directory.name)
        with appearing(repository, directory.name, number, like=directory, force=request.force) as staging:
            file = staging.version / spec.file.name
            write_int8(spec.file, file, photos.calibration.rows, is_symmetric=spec.backend == "tensorrt")
            report = _compared(request, spec, staging.spec(), photos, reference)
            if report.misses():
                raise MissedError(report)
            staging.write_report(report.as_json())
            bytes_after = file.stat().st_size
        return QuantizeResult(report=report, bytes_before=spec.file.stat().st_size, bytes_after=bytes_after)


def _version(request: QuantizeRequest, directory: Path) -> int:
    present = present_versions(directory)
    version = present[-1] if request.version is None else request.version
    if version not in present:
        found = ", ".join(map(str, present))
        raise ExportError(f"{directory.name}: found no version {version}, expected one of {found}")
    return version


def _new_version(request: QuantizeRequest, target: Path) -> int:
    if request.new_version is not None:
        return request.new_version
    return present_versions(target)[-1] + 1 if target.is_dir() else 1


@contextmanager
def _alone(directory: Path, version: int) -> Iterator[ModelSpec]:
    """The version as if it were the model's only one, because version_policy may serve newer ones only."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as scratch:
        model = Path(scratch) / directory.name
        model.mkdir()
        copy_configuration(directory, model)
        (model / str(version)).symlink_to(directory / str(version), target_is_directory=True)
        yield only_version(model, version)


def _checked(spec: ModelSpec) -> Preprocessing:
    where = f"{spec.name}/{spec.version}"
    if spec.file.suffix != ".onnx":
        raise ExportError(f"{where}: found backend '{spec.backend}' with {spec.file.name}, expected an ONNX file")
    if spec.preprocessing is None or spec.preprocessing.dtype != "float32":
        raise ExportError(
            f"{where}: expected [preprocessing] of dtype float32 in shoal.toml: the ranges of values come from photos "
            "that are prepared as they are when the model is served"
        )
    if is_quantised(spec.file):
        raise ExportError(f"{where}: {spec.file.name} computes in 8 bits already; say which one with --version")
    return spec.preprocessing


def _split(photos: Samples, how: Preprocessing) -> _Photos:
    """Every second photo by name calibrates, the others judge; each of them mirrored, too."""
    count = len(photos.rows)
    if count < _FEWEST_PHOTOS:
        raise ExportError(f"photos: found {photos.description}, expected at least {_FEWEST_PHOTOS}; 100 are better")
    halves = []
    for word, first in (("calibration", 0), ("held-out", 1)):
        rows = photos.rows[first::2]
        description = f"{len(rows)} {word} photos of {photos.description}, mirrored too"
        halves.append(Samples(rows=mirrored(rows, how), description=description))
    return _Photos(*halves)


def _compared(
    request: QuantizeRequest, spec: ModelSpec, variant: ModelSpec, photos: _Photos, reference: Scores
) -> ParityReport:
    rows, batch_sizes = photos.held_out.rows, compared_sizes(variant)
    sizes = served(_on_cpu(variant), lambda compute: measure(compute, rows, reference, batch_sizes))
    return ParityReport(
        model=variant.name,
        version=variant.version,
        format="onnx",
        precision=Precision.INT8,
        reference=f"{spec.name} version {spec.version}, ONNX Runtime on the CPU",
        samples=f"{photos.held_out.description}; calibrated on {photos.calibration.description}",
        largest_logit=float(np.abs(reference).max()),
        bounds=request.wishes.bounds(Precision.INT8, reference),
        sizes=sizes,
    )


def _on_cpu(spec: ModelSpec) -> ModelSpec:
    return replace(spec, backend="onnxruntime", execution=ExecutionSpec())
