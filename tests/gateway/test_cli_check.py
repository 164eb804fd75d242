"""`shoal check`: what it prints, and how it ends."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app
from models.examples.writing import write_ensemble
from tests.models.archives.builders import files, manifest, write_zip
from tests.models.builders import FAKE, write_model


def shoal_check(*arguments: object) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["check", *(str(argument) for argument in arguments)], env=environment)


def test_a_good_repository_ends_with_0(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE)

    ended = shoal_check(tmp_path)

    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == ["m  versions 1", "1 model, 0 errors, 0 warnings"]


def test_a_mistake_is_printed_with_the_line_to_write_and_ends_with_1(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE + "dynamic_batch [x] {}")
    write_model(tmp_path, FAKE + "dynamic_batch {}", name="n")

    ended = shoal_check(tmp_path, "--model", "n")

    assert ended.exit_code == 1
    assert [line.strip() for line in ended.stdout.splitlines()] == [
        "n  no version can be served",
        "error n/config.pbtxt:5  dynamic_batch",
        'found    unknown field "dynamic_batch"',
        'expected a field of ModelConfig; did you mean "dynamic_batching"?',
        "fix      dynamic_batching {}",
        "warning n/config.pbtxt",
        "found    values that were not checked, because the file does not parse",
        "fix      correct the file and check it again",
        "1 model, 1 error, 1 warning",
    ]


def test_warnings_alone_end_with_0(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE + "optimization { eager_batching: true }")

    ended = shoal_check(tmp_path)

    assert ended.exit_code == 0
    assert "1 model, 0 errors, 1 warning" in ended.stdout


def test_json_is_one_object_with_a_list_of_problems(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE.replace("size: 8", "size: -8"))
    write_model(tmp_path, FAKE, name="good")

    ended = shoal_check(tmp_path, "--json")

    assert ended.exit_code == 1
    assert json.loads(ended.stdout) == {
        "models": {"good": [1], "m": []},
        "errors": 1,
        "warnings": 0,
        "problems": [
            {
                "severity": "error",
                "model": "m",
                "version": None,
                "file": "m/config.pbtxt",
                "line": 2,
                "field": "max_batch_size",
                "found": "-8",
                "expected": "0 (no batch dimension) or the largest number of rows in a batch",
                "fix": "max_batch_size: 0",
            }
        ],
    }


def test_what_is_told_is_no_markup(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE + 'name: "[red]x[/red]"')

    assert '"[red]x[/red]"' in shoal_check(tmp_path).stdout


@pytest.mark.parametrize("arguments", [["{root}/none"], ["{root}", "--model", "other"], [], ["{root}", "--nonsense"]])
def test_what_cannot_be_looked_at_ends_with_2(tmp_path: Path, arguments: list[str]) -> None:
    write_model(tmp_path, FAKE)

    ended = shoal_check(*(argument.format(root=tmp_path) for argument in arguments))

    assert ended.exit_code == 2
    assert ended.stderr


def test_an_absent_model_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE)

    assert "found no model 'other', expected one of m" in shoal_check(tmp_path, "--model", "other").stderr


def test_archives_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    with zipfile.ZipFile(tmp_path / "store" / "broken.mar", "w") as archive:
        archive.writestr("handler.py", "")

    ended = shoal_check(tmp_path / "store")

    assert ended.exit_code == 1
    assert "error broken.mar" in ended.stdout
    assert "no MAR-INF/MANIFEST.json" in ended.stdout


def test_an_ensemble_whose_model_is_missing_is_told_with_the_step(tmp_path: Path) -> None:
    write_ensemble(tmp_path)
    shutil.rmtree(tmp_path / "topk")

    ended = shoal_check(tmp_path, "--model", "photo-labels")

    assert ended.exit_code == 1
    assert "error photo-labels/config.pbtxt:" in ended.stdout
    assert "topk" in ended.stdout


def test_a_model_in_place_of_a_repository_is_told_the_command_to_write(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE)

    ended = shoal_check(tmp_path / "m")

    assert ended.exit_code == 2
    assert f"found a model, expected a repository; name the directory above: shoal check {tmp_path} --model m" in (
        ended.stderr
    )


def test_an_empty_repository_is_told(tmp_path: Path) -> None:
    ended = shoal_check(tmp_path)

    assert ended.exit_code == 0
    assert "found    no model" in ended.stdout
    assert "0 models, 0 errors, 1 warning" in ended.stdout


def test_what_has_no_effect_in_a_store_is_of_no_single_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "store").mkdir()
    for name in ("a", "b"):
        write_zip(tmp_path / "store" / f"{name}.mar", files(manifest(name=name)))
    (tmp_path / "store" / "config.properties").write_text("max_request_size=1")

    ended = shoal_check(tmp_path / "store")

    assert [line.strip() for line in ended.stdout.splitlines()] == [
        "a  versions 1",
        "b  versions 1",
        "of no single model",
        "warning config.properties:1  max_request_size",
        "found    no effect: start the server with --http-max-input-size instead",
        "fix      it may stay, or be removed",
        "2 models, 0 errors, 1 warning",
    ]
    assert "warning" not in shoal_check(tmp_path / "store", "--model", "a").stdout.replace("0 warnings", "")
