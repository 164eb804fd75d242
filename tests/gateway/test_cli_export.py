"""`shoal quantize` and `shoal export`, as far as they need no PyTorch."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app
from tests.backends.export.builders import files_below, save_colours, save_photos

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_colours(tmp_path / "repository")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos")


def shoal(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"NO_COLOR": "1"})


def test_a_quantised_version_is_reported_and_written(model: Path, photos: Path) -> None:
    ended = shoal("quantize", model, "--photos", photos)

    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert [line.split("│")[2].strip() for line in lines if line.startswith("│")] == ["all", "all", *"01234567"]
    assert "samples: 6 held-out photos of 12 photos, mirrored too; calibrated on 6 calibration photos" in ended.stdout
    assert lines[-2].startswith("expected: differences up to ")
    assert lines[-1] == f"wrote {model}/2: 0.0 MB, was 0.0 MB"


def test_a_missed_bound_is_reported_and_nothing_is_written(model: Path, photos: Path) -> None:
    ended = shoal("quantize", model, "--photos", photos, "--max-logit-difference", 0, "--new-version", 9)

    assert ended.exit_code == 1
    assert "top-1 agreement" in ended.stdout
    told = ended.stderr.splitlines()[-1]  # below what workers say
    assert told.startswith("shoal: colours/9: the int8 variant is not written: batch size 1, row 0: a score")
    assert files_below(model) == {"config.pbtxt", "shoal.toml", "1/model.onnx"}


def test_what_cannot_be_quantised_is_a_sentence(model: Path, photos: Path) -> None:
    ended = shoal("quantize", model, "--photos", photos, "--version", 3)

    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == "shoal: colours: found no version 3, expected one of 1\n"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed here")
def test_export_without_pytorch_says_what_to_install(tmp_path: Path) -> None:
    ended = shoal("export", "resnet18", "--into", tmp_path / "repository")

    assert ended.exit_code == 1
    assert ended.stderr.startswith("shoal: export needs PyTorch and torchvision (No module named 'torch')")
    assert list(tmp_path.iterdir()) == []
