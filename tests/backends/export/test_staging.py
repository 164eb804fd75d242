"""A version appears complete or not at all."""

import json
from pathlib import Path

import pytest

from backends.errors import ExportError
from backends.export.staging import appearing, present_versions
from tests.backends.export.builders import files_below, save_colours


def test_a_new_model_appears_with_its_configuration(tmp_path: Path) -> None:
    with appearing(tmp_path / "new", "m", 3) as staging:
        (staging.model / "config.pbtxt").write_text("x")
        (staging.version / "model.onnx").write_text("y")

    assert files_below(tmp_path) == {"new/m/config.pbtxt", "new/m/3/model.onnx"}


def test_nothing_is_seen_before_it_is_complete(tmp_path: Path) -> None:
    with appearing(tmp_path, "m", 1) as staging:
        (staging.version / "model.onnx").write_text("y")
        seen = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]

    assert seen == []


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with (
        pytest.raises(ExportError, match="m/1: cannot be written: File exists"),
        appearing(tmp_path / "new", "m", 1) as staging,
    ):
        staging.version.mkdir()

    assert list(tmp_path.iterdir()) == []


def test_a_version_joins_a_model_whose_configuration_it_sees(tmp_path: Path) -> None:
    model = save_colours(tmp_path)
    before = files_below(tmp_path)

    with appearing(tmp_path, "colours", 2) as staging:
        (staging.version / "model.onnx").write_bytes((model / "1/model.onnx").read_bytes())
        assert (staging.has_config, staging.spec().version) == (True, 2)

    assert files_below(tmp_path) - before == {"colours/2/model.onnx"}


def test_a_version_that_is_there_is_refused(tmp_path: Path) -> None:
    save_colours(tmp_path)

    refusal = r"colours/1: found in the repository already; .*--force"
    with pytest.raises(ExportError, match=refusal), appearing(tmp_path, "colours", 1):
        pass


def test_a_version_that_is_there_is_replaced_by_force(tmp_path: Path) -> None:
    save_colours(tmp_path)

    with appearing(tmp_path, "colours", 1, force=True) as staging:
        (staging.version / "other.onnx").write_text("y")

    assert files_below(tmp_path / "colours") == {"config.pbtxt", "shoal.toml", "1/other.onnx"}


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b"])
def test_a_name_that_is_no_models_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected letters"), appearing(tmp_path, name, 1):
        pass


def test_a_repository_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refusal = "m/1: cannot be written: Not a directory"
    with pytest.raises(ExportError, match=refusal), appearing(tmp_path / "file" / "below", "m", 1):
        pass


def test_the_report_is_strict_json(tmp_path: Path) -> None:
    with appearing(tmp_path, "m", 1) as staging:
        staging.write_report({"largest": float("inf"), "sizes": ({"rows": 1},)})

    assert json.loads((tmp_path / "m/1/parity.json").read_text()) == {"largest": "inf", "sizes": [{"rows": 1}]}


def test_a_model_without_versions_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()

    with pytest.raises(ExportError, match=r"m: found no version directory"):
        present_versions(tmp_path / "m")
    with pytest.raises(ExportError, match=r"nowhere: found no model directory, expected REPOSITORY/MODEL"):
        present_versions(tmp_path / "nowhere")
