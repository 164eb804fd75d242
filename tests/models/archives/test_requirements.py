"""What an archive requires: listed always, installed into a directory of its own only when that is asked for."""

import zipfile
from pathlib import Path

import pytest

from models.archives.requirements import install_requirements, with_requirements
from models.errors import ArchiveError
from models.spec import ModelSpec
from tests.models.archives.builders import entry_of, files, folders_in, manifest, spec_of, write_zip

WHEEL = "shoal_test_requirement-1.0-py3-none-any.whl"


def write_wheel(directory: Path) -> Path:
    """A package of one module, as small as pip takes it."""
    info = "shoal_test_requirement-1.0.dist-info"
    members = {
        "shoal_test_requirement.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: shoal-test-requirement\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    wheel = directory / WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return wheel


def spec_with(store: Path, requirements: str, **more: bytes) -> ModelSpec:
    content = {**files(manifest(requirementsFile="requirements.txt")), "requirements.txt": requirements}
    write_zip(store / "m.mar", {**content, **more})
    return spec_of(store)


@pytest.fixture(autouse=True)
def without_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_requirements_are_listed_in_a_note_and_nothing_is_installed(store: Path) -> None:
    spec_with(store, "# of the handler\nnumpy>=1 # any\n\n--no-deps\nrich")

    assert entry_of(store).notes == (
        "m.mar/requirements.txt: numpy>=1, --no-deps, rich: installed only with --install-py-dep-per-model",
    )
    assert len(folders_in(store.parent / "work")) == 1


@pytest.mark.slow
def test_requirements_are_installed_once_beside_the_archive(store: Path, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path).read_bytes()
    hostile = b"raise SystemExit('the archive ran in place of pip')"
    spec = spec_with(store, f"./{WHEEL}", **{WHEEL: wheel, "pip.py": hostile, "zipfile.py": hostile})

    installed = with_requirements(spec)

    directory = Path(installed.parameters["requirements_dir"])
    assert (directory / "shoal_test_requirement.py").read_text() == "ANSWER = 42\n"
    assert directory.parent == store.parent / "work"
    assert directory.stat().st_mode & 0o777 == 0o700
    (directory / "mark").touch()
    assert with_requirements(spec) == installed
    assert (directory / "mark").exists()


@pytest.mark.slow
def test_what_pip_cannot_install_is_told_without_paths_and_leaves_nothing(store: Path) -> None:
    spec = spec_with(store, "./missing.whl")

    with pytest.raises(ArchiveError) as refused:
        install_requirements(spec)

    assert str(refused.value).startswith("m/requirements.txt: found pip failing: ")
    assert "missing.whl" in str(refused.value)
    assert str(store.parent) not in str(refused.value)
    assert len(folders_in(store.parent / "work")) == 1


def test_an_archive_without_requirements_stays_as_it_is(store: Path) -> None:
    write_zip(store / "m.mar", files())
    spec = spec_of(store)

    assert with_requirements(spec) is spec
