"""The repository's layout: which models, which versions, and that one broken model hides no other."""

import os
from pathlib import Path

import pytest

from models.errors import ConfigError, RepositoryError
from models.model_directory import read_model
from models.repository import scan
from tests.models.builders import FAKE, identity_model, write_model


def test_models_are_sorted_and_a_broken_one_hides_no_other(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE, name="zebra")
    write_model(tmp_path, "max_batch_size: x", name="broken")
    write_model(tmp_path, name="ant", model=identity_model())
    (tmp_path / "README.md").write_text("not a model")
    models = scan([tmp_path]).models
    assert [(model.name, [spec.version for spec in model.versions]) for model in models] == [
        ("ant", [1]),
        ("broken", []),
        ("zebra", [1]),
    ]
    assert [len(model.problems) for model in models] == [0, 1, 0]


def test_a_name_in_two_roots_is_unusable_and_others_are_not(tmp_path: Path) -> None:
    for root, name in (("a", "both"), ("b", "both"), ("b", "one")):
        write_model(tmp_path / root, FAKE, name=name)
    both, one = scan([tmp_path / "a", tmp_path / "b"]).models
    assert (both.versions, [type(problem) for problem in both.problems]) == ((), [RepositoryError])
    assert "found in 2 repositories" in str(both.problems[0])
    assert len(one.versions) == 1


def test_a_root_given_twice_counts_once(tmp_path: Path) -> None:
    write_model(tmp_path, FAKE)
    (model,) = scan([tmp_path, tmp_path / "." / "m" / ".."]).models
    assert len(model.versions) == 1


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"none: found No such file or directory, expected a directory"):
        scan([tmp_path / "none"])


@pytest.mark.parametrize("name", ["white space", "slash\\", "ünï", "new\nline"])
def test_a_directory_whose_name_is_unsafe_is_a_problem(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, FAKE, name=name)
    (model,) = scan([tmp_path]).models
    assert model.versions == ()
    assert "cannot be a model's name" in str(model.problems[0])


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", [10]),
        ("version_policy { latest { num_versions: 2 } }", [2, 10]),
        ("version_policy { latest { num_versions: 9 } }", [0, 2, 10]),
        ("version_policy { all { } }", [0, 2, 10]),
        ("version_policy { specific { versions: [ 10, 2, 10 ] } }", [2, 10]),
    ],
)
def test_the_version_policy_selects(tmp_path: Path, policy: str, served: list[int]) -> None:
    model = read_model(write_model(tmp_path, FAKE + policy, versions=("10", "2", "0")))
    assert [spec.version for spec in model.versions] == served
    assert [spec.file.name for spec in model.versions] == [str(version) for version in served]


def test_skipped_directories_are_noted_unless_they_belong_there(tmp_path: Path) -> None:
    names = ("1", "01", "x", "-2", "9223372036854775808", "warmup", "initial_state", "configs", "__pycache__")
    model = read_model(write_model(tmp_path, FAKE, versions=names))
    assert [spec.version for spec in model.versions] == [1]
    assert [note.partition(":")[0] for note in model.notes] == ["m/-2", "m/01", "m/9223372036854775808", "m/x"]


def test_named_versions_that_are_absent_are_noted(tmp_path: Path) -> None:
    model = read_model(write_model(tmp_path, FAKE + "version_policy { specific { versions: [ 1, 3 ] } }"))
    assert [spec.version for spec in model.versions] == [1]
    assert model.notes == ("m/3: named by version_policy, not found",)


@pytest.mark.parametrize(
    ("config", "versions", "text"),
    [
        (FAKE, ("warmup",), "m: found no version directory, expected at least one, e.g. m/1/"),
        (FAKE + "version_policy { specific { versions: 3 } }", ("2", "1"), "m: found only the versions 1, 2, expected"),
    ],
)
def test_a_model_without_a_version_to_serve_is_a_problem(
    tmp_path: Path, config: str, versions: tuple[str, ...], text: str
) -> None:
    (problem,) = read_model(write_model(tmp_path, config, versions=versions)).problems
    assert str(problem).startswith(text)


def test_a_broken_version_is_a_problem_and_leaves_the_good_ones(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "version_policy { all { } }", versions=("1", "2", "3"), model=identity_model())
    (directory / "1" / "model.onnx").write_bytes(b"junk")
    (directory / "3" / "model.onnx").unlink()
    model = read_model(directory)
    assert ([spec.version for spec in model.versions], model.broken) == ([2], (1, 3))
    assert [type(problem) for problem in model.problems] == [RepositoryError, ConfigError]


def test_a_problem_of_every_version_is_told_once(tmp_path: Path) -> None:
    config = FAKE + "version_policy { all { } } instance_group { count: -1 }"
    assert len(read_model(write_model(tmp_path, config, versions=("1", "2"))).problems) == 1


def test_a_directory_in_place_of_the_config_is_a_problem(tmp_path: Path) -> None:
    (write_model(tmp_path) / "config.pbtxt").mkdir()
    (problem,) = scan([tmp_path]).models[0].problems
    assert str(problem) == "m/config.pbtxt: file: found a directory, expected a plain file"


def test_a_directory_whose_name_is_not_text_has_a_name_that_can_be_told(tmp_path: Path) -> None:
    write_model(tmp_path, name=os.fsdecode(b"m\xff\n"))
    (model,) = scan([tmp_path]).models
    assert model.name == r"m\udcff\n"
    assert str(model.problems[0]).startswith(r"'m\udcff\n': found a directory that cannot be a model's name")


@pytest.mark.parametrize("name", ["config.pbtxt", "shoal.toml"])
def test_a_pipe_in_place_of_a_file_is_a_problem_and_nobody_waits_for_a_writer(tmp_path: Path, name: str) -> None:
    file = write_model(tmp_path, FAKE) / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    (problem,) = read_model(tmp_path / "m").problems
    assert str(problem) == f"m/{name}: file: found a pipe, expected a plain file"


def test_a_config_without_end_is_refused(tmp_path: Path) -> None:
    os.truncate(write_model(tmp_path, FAKE) / "config.pbtxt", 3 << 30)
    (problem,) = read_model(tmp_path / "m").problems
    assert str(problem) == "m/config.pbtxt: size: found more than 67108864 bytes, expected at most 67108864"


def test_a_config_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (write_model(tmp_path) / "config.pbtxt").write_bytes(b'name: "m"\n# \xe9t\xe9\n')
    (problem,) = read_model(tmp_path / "m").problems
    assert str(problem) == "m/config.pbtxt:2: encoding: found the byte 0xe9, expected UTF-8 text"


def test_every_version_is_completed_from_its_own_file(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "version_policy { all { } }", model=identity_model(("N", 16)))
    write_model(tmp_path, name="m", versions=("2",), model=identity_model(("N", 32)))
    versions = read_model(directory).versions
    assert [spec.inputs[0].dims for spec in versions] == [(16,), (32,)]
