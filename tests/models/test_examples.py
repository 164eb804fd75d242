"""The example repositories: complete, sound, and written only where nothing is in the way."""

from pathlib import Path

import pytest

from models.ensembles import check_ensemble
from models.errors import RepositoryError
from models.examples.writing import write_ensemble
from models.model_directory import read_model
from models.spec import ModelSpec

MODELS = ["decode", "efficientnet-lite0", "photo-labels", "topk"]


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def specs_in(directory: Path) -> dict[str, ModelSpec]:
    entries = [read_model(directory / name) for name in MODELS]
    assert [entry.problems for entry in entries] == [()] * len(entries)
    return {entry.name: entry.versions[0] for entry in entries}


def test_the_ensemble_is_written_with_all_models_that_it_needs(tmp_path: Path) -> None:
    written = write_ensemble(tmp_path / "repository")

    specs = specs_in(tmp_path / "repository")
    assert written == tmp_path / "repository" / "photo-labels"
    assert names_in(tmp_path / "repository") == MODELS
    assert [step.model for step in specs["photo-labels"].steps] == ["decode", "efficientnet-lite0", "topk"]
    assert check_ensemble(specs["photo-labels"], lambda name, _version: specs[name]) == []


def test_there_is_a_label_for_every_score(tmp_path: Path) -> None:
    write_ensemble(tmp_path)

    labels = (tmp_path / "topk/1/labels.txt").read_text(encoding="utf-8").splitlines()
    assert (len(labels),) == specs_in(tmp_path)["topk"].inputs[0].dims


def test_nothing_is_written_if_one_of_the_names_is_taken(tmp_path: Path) -> None:
    (tmp_path / "topk").mkdir()
    (tmp_path / "topk/mine").touch()

    with pytest.raises(RepositoryError, match=r"^topk: found files in the repository already, expected none"):
        write_ensemble(tmp_path)

    assert names_in(tmp_path) == ["topk"]


def test_a_repository_that_cannot_be_written_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RepositoryError, match="cannot be written to the repository: Not a directory"):
        write_ensemble(tmp_path / "file")
