"""`shoal export`: a classifier of torchvision becomes a version of a model that serves at once."""

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backends.errors import ExportError
from backends.export.kinds import Format, Precision
from backends.export.parity import NO_WISHES, Deviation, MissedError, ParityReport, Wishes, measure
from backends.export.samples import Samples, random_rows, read_photos
from backends.export.served import compared_sizes, one_by_one, served
from backends.export.staging import Staging, appearing
from backends.export.texts import LABELS_FILE, config_text, parameter_text, side_text
from models.spec import ExecutionSpec, ModelSpec

if TYPE_CHECKING:
    from backends.export.torchvision_networks import TorchvisionClassifier

_ON_GPUS = "\ninstance_group [ { kind: KIND_GPU } ]\n"


class _Way(NamedTuple):
    platform: str
    file: str
    tensors: tuple[str, str]  # names of input and output; for TorchScript Triton demands such ones
    precisions: tuple[Precision, ...]


_WAYS = {
    Format.ONNX: _Way("onnxruntime_onnx", "model.onnx", ("image", "logits"), (Precision.FP32, Precision.FP16)),
    Format.TENSORRT: _Way("tensorrt_plan", "model.onnx", ("image", "logits"), (Precision.FP32, Precision.FP16)),
    Format.TORCHSCRIPT: _Way(
        "pytorch_libtorch", "model.pt", ("INPUT__0", "OUTPUT__0"), (Precision.FP32, Precision.FP16, Precision.BF16)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is to be written, and where.

    Attributes:
        network: As torchvision calls it.
        repository: Made if missing.
        name: Of the model; empty for the network's.
        version: Its number.
        format: Of the file.
        precision: In which the variant computes.
        weights: Name of the weights, or None for random ones.
        seed: Of random weights.
        photos: A folder on which the variant is compared; else random inputs.
        wishes: What it must keep.
        max_batch_rows: Largest batch that the model accepts.
        keep_fp32: Write model.fp32.onnx beside an ONNX file in fp16.
        force: Replace the version if it is there.
    """

    network: str
    repository: Path
    name: str = ""
    version: int = 1
    format: Format = Format.ONNX
    precision: Precision = Precision.FP32
    weights: str | None = "DEFAULT"
    seed: int = 0
    photos: Path | None = None
    wishes: Wishes = NO_WISHES
    max_batch_rows: int = 8
    keep_fp32: bool = False
    force: bool = False


def export(request: ExportRequest) -> ParityReport:
    """Write the version, unless it misses a bound. Blocks for seconds to minutes.

    Returns:
        How the variant compares with PyTorch in single precision.

    Raises:
        MissedError: The variant misses a bound; has the report. Nothing was written.
        ExportError: It cannot be done; says why. Nothing was written.
    """
    _check(request)
    name = request.name or request.network
    with appearing(request.repository, name, request.version, force=request.force) as staging:
        network = _network(request)
        _write(request, network, staging)
        report = _compared(request, network, staging)
        if report.misses():
            raise MissedError(report)
        staging.write_report(report.as_json())
    return report


def _check(request: ExportRequest) -> None:
    possible = _WAYS[request.format].precisions
    if request.precision not in possible:
        hint = "; `shoal quantize` makes int8 of an ONNX model" if request.precision is Precision.INT8 else ""
        raise ExportError(
            f"{request.format} in {request.precision} is not written, expected {', '.join(possible)}{hint}"
        )
    if request.keep_fp32 and (request.format, request.precision) != (Format.ONNX, Precision.FP16):
        found = f"{request.format} in {request.precision}"
        raise ExportError(
            f"--keep-fp32 is for onnx in fp16, found {found} (TorchScript has its weights in fp32 anyway, and TensorRT "
            "does not compute again)"
        )


def _network(request: ExportRequest) -> "TorchvisionClassifier":
    try:
        module = importlib.import_module("backends.export.torchvision_networks")
    except ImportError as error:
        raise ExportError(f"export needs PyTorch and torchvision ({error}): pip install 'shoal[torch]'") from error
    network: TorchvisionClassifier = module.TorchvisionClassifier(request.network, request.weights, request.seed)
    return network


def _write(request: ExportRequest, network: "TorchvisionClassifier", staging: Staging) -> None:
    if not staging.has_config:
        _write_configuration(request, network, staging)
    way = _WAYS[request.format]
    file = staging.version / way.file
    if request.format is Format.TORCHSCRIPT:
        network.save_torchscript(file)  # in fp32: the executor computes in the precision that config.pbtxt says
        return
    network.save_onnx(file, *way.tensors)
    if request.precision is Precision.FP16:
        _halve(file, keep_fp32=request.keep_fp32)


def _halve(file: Path, *, keep_fp32: bool) -> None:
    from backends.export.onnx_tools import write_half  # noqa: PLC0415 - takes 0.3 s to import

    precise = file.rename(file.with_suffix(f".fp32{file.suffix}"))
    write_half(precise, file)
    if not keep_fp32:
        precise.unlink()


def _write_configuration(request: ExportRequest, network: "TorchvisionClassifier", staging: Staging) -> None:
    way = _WAYS[request.format]
    more = _ON_GPUS if request.format is Format.TENSORRT else ""
    if request.format is Format.TORCHSCRIPT:
        more += parameter_text("precision", request.precision)
    text = config_text(
        name=staging.model.name,
        platform=way.platform,
        max_batch_rows=request.max_batch_rows,
        tensors=way.tensors,
        shapes=(network.preprocessing.row_shape, len(network.labels)),
        more=more,
    )
    (staging.model / "config.pbtxt").write_text(text)
    (staging.model / "shoal.toml").write_text(side_text(network.preprocessing, retries=request.keep_fp32))
    (staging.model / LABELS_FILE).write_text("".join(f"{label}\n" for label in network.labels))


def _compared(request: ExportRequest, network: "TorchvisionClassifier", staging: Staging) -> ParityReport:
    spec = staging.spec()
    _check_fits(request, network, spec)
    samples = _samples(request, network)
    reference = network.scores(samples.rows)
    sizes, alone = served(
        _on_this_machine(spec),
        lambda compute: (
            measure(compute, samples.rows, reference, compared_sizes(spec)),
            one_by_one(compute, samples.rows) if samples.files else None,
        ),
    )
    preprocessing = None if alone is None else Deviation.of(alone, network.scores_of_files(samples.files))
    return ParityReport(
        model=spec.name,
        version=spec.version,
        format=request.format,
        precision=request.precision,
        reference=f"torchvision {network.name}, weights {network.weights}, PyTorch in fp32 on the CPU",
        samples=samples.description,
        largest_logit=float(np.abs(reference).max()),
        bounds=request.wishes.bounds(request.precision, reference),
        sizes=sizes,
        preprocessing=preprocessing,
        notes=_notes(request, staging),
    )


def _samples(request: ExportRequest, network: "TorchvisionClassifier") -> Samples:
    if request.photos is None:
        return random_rows(network.preprocessing)
    return read_photos(request.photos, network.preprocessing)


def _check_fits(request: ExportRequest, network: "TorchvisionClassifier", spec: ModelSpec) -> None:
    """A model that was there before must be one of these networks, prepared and run in the same way."""
    way = _WAYS[request.format]
    prepared = spec.preprocessing.model_dump() if spec.preprocessing is not None else None
    pairs = {
        "platform": (spec.platform, way.platform),
        "tensors": ((*(tensor.name for tensor in spec.inputs), spec.scores_output.name), way.tensors),
        "classes": (spec.scores_output.dims, (len(network.labels),)),
        "[preprocessing]": (prepared, network.preprocessing.model_dump()),
    }
    if request.format is Format.TORCHSCRIPT:
        pairs["parameter precision"] = (spec.parameters.get("precision", Precision.FP32), request.precision)
    for what, (found, expected) in pairs.items():
        if found != expected:
            raise ExportError(
                f"{spec.name}: the repository's model has {what} {found}, {network.name} as {request.format} in "
                f"{request.precision} needs {expected}; choose another --name"
            )


def _on_this_machine(spec: ModelSpec) -> ModelSpec:
    """The version on the CPU: a TensorRT engine is built from its ONNX file where it is served, so that file is run."""
    on_cpu = replace(spec, execution=ExecutionSpec())
    return replace(on_cpu, backend="onnxruntime") if spec.backend == "tensorrt" else on_cpu


def _notes(request: ExportRequest, staging: Staging) -> tuple[str, ...]:
    notes = []
    if request.weights is None:
        notes.append("the weights are random: labels mean nothing")
    if request.format is Format.TENSORRT:
        notes.append(
            "compared with ONNX Runtime on the CPU; TensorRT builds its engine from this file when it is loaded"
        )
    elif request.precision is Precision.FP16:
        notes.append("compared on the CPU, which computes some operators in fp32; a GPU rounds more often")
    if staging.has_config:
        notes.append("config.pbtxt, shoal.toml and labels were there already and stay as they are")
    if request.keep_fp32 and staging.has_config:
        notes.append('model.fp32.onnx is used where shoal.toml says [execution] non_finite = "retry_fp32"')
    return tuple(notes)
