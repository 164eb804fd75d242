"""The tree is what pyproject.toml says, and belongs to no machine."""

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
OWN = ("backends", "batching", "gateway", "loadtest", "models")
TREES = (*OWN, "deploy", "docs", "tests", ".ci")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".pbtxt", ".json", ""}
# Homes and work places of people and machines. A path of a container's inside is none.
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(?:home|root|Users|work|mnt|workspace)/[\w.]")


def text_files() -> Iterator[Path]:
    trees = (path for tree in TREES for path in (ROOT / tree).rglob("*"))
    for path in (*ROOT.iterdir(), *trees):
        if path.is_file() and path.suffix in TEXT and path.name != ".coverage":
            yield path


@pytest.mark.parametrize("name", OWN)
def test_a_package_is_the_one_of_this_tree(name: str) -> None:
    module = importlib.import_module(name)

    assert module.__file__ is not None
    assert Path(module.__file__).parent == ROOT / name


def test_every_package_of_the_tree_is_installed_and_every_installed_one_is_there() -> None:
    found = {
        init.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for name in OWN
        for init in (ROOT / name).rglob("__init__.py")
    }

    assert set(PACKAGES) == found


@pytest.mark.parametrize("name", OWN)
def test_a_package_is_typed(name: str) -> None:
    assert (ROOT / name / "py.typed").is_file()


def test_no_file_names_a_path_of_a_machine() -> None:
    named = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in text_files()
        if (found := MACHINE_PATH.search(file.read_text(encoding="utf-8")))
    ]

    assert named == []


def test_no_file_names_the_directory_that_this_tree_lies_in() -> None:
    named = [str(file.relative_to(ROOT)) for file in text_files() if f"{ROOT}/" in file.read_text(encoding="utf-8")]

    assert named == []
