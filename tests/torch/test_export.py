"""torchvision's classifiers become models that serve."""

import importlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from backends.errors import ExportError  # noqa: E402 - needs torch
from backends.export.exporting import ExportRequest, export  # noqa: E402
from backends.export.kinds import Format, Precision  # noqa: E402
from backends.export.parity import MissedError, ParityReport, Wishes  # noqa: E402
from backends.export.torchvision_networks import TorchvisionClassifier  # noqa: E402
from gateway.cli import app  # noqa: E402
from models.model_directory import read_model  # noqa: E402
from models.preprocessing import Preprocessing  # noqa: E402
from models.spec import ModelSpec, NonFinite  # noqa: E402
from tests.backends.export.builders import files_below  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(240)]  # PyTorch is slow on cores that are shared

NETWORK = "squeezenet1_1"  # the smallest, 1.2 million parameters
MODEL_FILES = {"config.pbtxt", "shoal.toml", "labels.txt", "1/parity.json"}


def exported(
    repository: Path, file_format: Format = Format.ONNX, precision: Precision = Precision.FP32, **more: object
) -> ParityReport:
    arguments = {"network": NETWORK, "repository": repository, "weights": None, **more}
    return export(ExportRequest(format=file_format, precision=precision, **arguments))  # type: ignore[arg-type]


def served(repository: Path, name: str = NETWORK) -> ModelSpec:
    entry = read_model(repository / name)
    assert entry.problems == ()
    return entry.versions[-1]


def save_photographs(directory: Path) -> Path:
    """A few pictures with the smoothness of photographs, one of them stored lying on its side."""
    directory.mkdir()
    random = np.random.default_rng(0)
    for number in range(3):
        coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6 if number == 2 else 1
        coarse.resize((400, 300), Image.Resampling.BICUBIC).save(directory / f"{number}.jpg", exif=exif)
    return directory


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_photographs(tmp_path_factory.mktemp("photos") / "few")


@pytest.mark.parametrize(
    ("file_format", "precision", "backend", "file"),
    [
        (Format.ONNX, Precision.FP32, "onnxruntime", "model.onnx"),
        (Format.ONNX, Precision.FP16, "onnxruntime", "model.onnx"),
        (Format.TORCHSCRIPT, Precision.FP32, "pytorch", "model.pt"),
        (Format.TORCHSCRIPT, Precision.BF16, "pytorch", "model.pt"),
        (Format.TENSORRT, Precision.FP16, "tensorrt", "model.onnx"),
    ],
)
def test_every_format_is_a_model_that_can_be_served(
    tmp_path: Path, photos: Path, file_format: Format, precision: Precision, backend: str, file: str
) -> None:
    # One bit of a random network's flat scores may decide which class is the best.
    report = exported(tmp_path, file_format, precision, photos=photos, wishes=Wishes(min_top1_agreement=0.5))

    spec = served(tmp_path)
    assert files_below(tmp_path / NETWORK) == MODEL_FILES | {f"1/{file}"}
    assert (spec.backend, spec.file.name, spec.max_batch_rows) == (backend, file, 8)
    assert (len(spec.scores_output.labels), spec.scores_output.labels[541]) == (1000, "drum")
    assert spec.preprocessing == Preprocessing(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    assert [size.batch_rows for size in report.sizes] == [1, 8]
    assert [position.rows for position in report.sizes[1].positions] == [1] * 8


def test_the_report_is_kept_and_says_what_was_compared(tmp_path: Path) -> None:
    report = exported(tmp_path, Format.TENSORRT)

    kept = json.loads((tmp_path / NETWORK / "1/parity.json").read_text())
    assert kept["reference"] == f"torchvision {NETWORK}, weights random (seed 0), PyTorch in fp32 on the CPU"
    assert kept["samples"].startswith("16 random inputs")
    assert kept["sizes"][0]["overall"]["max_logit_difference"] == report.sizes[0].overall.max_logit_difference < 1e-5
    assert kept["notes"] == [
        "the weights are random: labels mean nothing",
        "compared with ONNX Runtime on the CPU; TensorRT builds its engine from this file when it is loaded",
    ]


def test_photos_are_prepared_as_torchvision_prepares_them(tmp_path: Path, photos: Path) -> None:
    report = exported(tmp_path, photos=photos)

    assert report.samples == "3 photos"
    assert report.preprocessing is not None
    assert (report.preprocessing.rows, report.preprocessing.top1_agreement) == (3, 1.0)
    assert report.preprocessing.max_logit_difference < 0.02 * report.largest_logit


def test_half_precision_has_single_precision_outside_and_beside_it_if_asked_for(tmp_path: Path, photos: Path) -> None:
    exported(tmp_path, Format.ONNX, Precision.FP16, photos=photos, keep_fp32=True)

    version = tmp_path / NETWORK / "1"
    graph = onnx.load(version / "model.onnx").graph
    assert {tensor.data_type for tensor in graph.initializer} >= {onnx.TensorProto.FLOAT16}
    assert graph.input[0].type.tensor_type.elem_type == graph.output[0].type.tensor_type.elem_type == 1
    assert (version / "model.fp32.onnx").stat().st_size > 1.9 * (version / "model.onnx").stat().st_size
    assert served(tmp_path).execution.non_finite is NonFinite.RETRY_FP32


def test_random_weights_are_those_of_the_seed(tmp_path: Path) -> None:
    first, again, other = (TorchvisionClassifier(NETWORK, None, seed) for seed in (1, 1, 2))
    rows = np.ones((1, 3, 224, 224), np.float32)

    assert np.array_equal(first.scores(rows), again.scores(rows))
    assert not np.array_equal(first.scores(rows), other.scores(rows))


def test_a_variant_that_misses_a_bound_leaves_nothing_behind(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(MissedError, match="expected at most 1e-12"):
        exported(tmp_path / "repository", photos=photos, wishes=Wishes(max_logit_difference=1e-12))

    assert list(tmp_path.iterdir()) == []


def test_a_version_joins_a_model_of_the_same_network(tmp_path: Path, photos: Path) -> None:
    exported(tmp_path, photos=photos)
    config = (tmp_path / NETWORK / "config.pbtxt").read_text() + "# mine\n"
    (tmp_path / NETWORK / "config.pbtxt").write_text(config)

    report = exported(tmp_path, Format.ONNX, Precision.FP16, photos=photos, version=2)

    assert served(tmp_path).version == 2
    assert (tmp_path / NETWORK / "config.pbtxt").read_text() == config
    assert "config.pbtxt, shoal.toml and labels were there already and stay as they are" in report.notes


def test_a_version_does_not_join_a_model_that_is_run_in_another_way(tmp_path: Path, photos: Path) -> None:
    exported(tmp_path, photos=photos)

    with pytest.raises(ExportError, match=r'found no such file, expected a file "model\.onnx"'):
        exported(tmp_path, Format.TORCHSCRIPT, photos=photos, version=2)
    side = tmp_path / NETWORK / "shoal.toml"
    side.write_text(side.read_text().replace("resize = 256", "resize = 232"))
    with pytest.raises(ExportError, match=r"the repository's model has \[preprocessing\] .*choose another --name"):
        exported(tmp_path, photos=photos, version=2)

    assert not (tmp_path / NETWORK / "2").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"network": "squeezenet1_2"},
            "'squeezenet1_2' is no classifier of torchvision .*, expected e.g. squeezenet1_1",
        ),
        ({"network": "fasterrcnn_resnet50_fpn"}, "is no classifier"),
        ({"weights": "IMAGENET1K_V9"}, "found weights 'IMAGENET1K_V9', expected one of IMAGENET1K_V1"),
        ({"precision": Precision.BF16}, "onnx in bf16 is not written, expected fp32, fp16"),
        ({"precision": Precision.INT8}, "int8 is not written, .*`shoal quantize` makes int8"),
        ({"keep_fp32": True}, "--keep-fp32 is for onnx in fp16, found onnx in fp32"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(tmp_path: Path, arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ExportError, match=sentence):
        exported(tmp_path, **{"precision": Precision.FP32, **arguments})  # type: ignore[arg-type]

    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = importlib.import_module("torch.hub")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody listens there
    assert hub.get_dir() == str(tmp_path / "cache/hub")

    with pytest.raises(
        ExportError, match=r"cannot be downloaded \(.*\); use --random-weights, or put the file squeezenet"
    ):
        exported(tmp_path / "repository", weights="DEFAULT")

    assert not (tmp_path / "repository").exists()


def test_the_command_prints_the_report_and_how_to_serve(tmp_path: Path, photos: Path) -> None:
    arguments = [
        "export",
        NETWORK,
        "--photos",
        str(photos),
        "--random-weights",
        "--into",
        str(tmp_path),
        "--name",
        "small",
        "--max-batch-size",
        "4",
    ]

    ended = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1"})

    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[-2:] == [f"wrote {tmp_path}/small/1", f"serve it: shoal serve --model-repository {tmp_path}"]
    assert [line.split("│")[2].strip() for line in lines if line.startswith("│")] == [
        "all",
        "all",
        *"0123",
        "own transforms",
    ]
    assert served(tmp_path, "small").max_batch_rows == 4
