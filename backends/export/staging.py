"""A version that appears in a repository in one step, complete, or not at all.

It is written into a hidden directory of the same repository, where servers that watch it do not look, and renamed.
"""

import json
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from backends.errors import ExportError
from models.model_directory import read_model
from models.spec import ModelSpec

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_VERSION = re.compile(r"0|[1-9][0-9]*")
REPORT_FILE = "parity.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A model directory under construction.

    Attributes:
        model: The directory, which has the model's name; with a copy of the configuration, if there is one already.
        version: The directory of the new version in it, empty.
        has_config: The model has files already, which stay as they are.
    """

    model: Path
    version: Path
    has_config: bool

    def write_report(self, report: dict[str, object]) -> None:
        """Put what was measured beside the model file; infinite numbers are texts."""
        (self.version / REPORT_FILE).write_text(json.dumps(_plain(report), indent=2) + "\n")

    def spec(self) -> ModelSpec:
        """The new version as a server would read it. Raises ExportError."""
        return only_version(self.model, int(self.version.name))


@contextmanager
def appearing(
    repository: Path, name: str, version: int, *, like: Path | None = None, force: bool = False
) -> Iterator[Staging]:
    """A version to fill, which becomes ``<repository>/<name>/<version>`` at the end, or vanishes on any error.

    Args:
        repository: Made if missing.
        name: Of the model.
        version: Its number.
        like: A model directory whose configuration is copied if the repository has no such model.
        force: Replace the version if it is there.

    Raises:
        ExportError: The version is there, the name is none, or the file system refuses.
    """
    if not _NAME.fullmatch(name) or version < 0:
        raise ExportError(
            f"found name '{name}' and version {version}, expected letters, digits, '.', '_', '-', and a number"
        )
    target = repository / name
    if (target / str(version)).exists() and not force:
        raise ExportError(
            f"{name}/{version}: found in the repository already; choose another version, or --force to replace it"
        )
    is_new_repository = not repository.exists()
    hidden = repository / f".shoal-export.{secrets.token_hex(4)}"
    try:
        staging = _staged(hidden, target, version, like)
        yield staging
        _place(staging, target, hidden)
    except OSError as error:
        raise ExportError(f"{name}/{version}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        if is_new_repository:
            with suppress(OSError):  # it has become a repository
                repository.rmdir()


def only_version(directory: Path, version: int) -> ModelSpec:
    """The specification of the only version of a model directory.

    Raises:
        ExportError: The configuration does not fit it; says why.
    """
    entry = read_model(directory)
    if entry.problems:
        raise ExportError("; ".join(map(str, entry.problems)))
    for spec in entry.versions:
        if spec.version == version:
            return spec
    raise ExportError(f"{directory.name}: version_policy in config.pbtxt does not serve version {version}")


def present_versions(directory: Path) -> tuple[int, ...]:
    """Numbers of the version directories, ascending. Raises ExportError where there is no such model directory."""
    try:
        names = [path.name for path in directory.iterdir() if path.is_dir()]
    except OSError as error:
        raise ExportError(f"{directory.name}: found no model directory, expected REPOSITORY/MODEL") from error
    versions = tuple(sorted(int(name) for name in names if _VERSION.fullmatch(name)))
    if not versions:
        raise ExportError(f"{directory.name}: found no version directory, expected e.g. {directory.name}/1/")
    return versions


def copy_configuration(source: Path, target: Path) -> None:
    """Copy a model directory without its versions."""
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, target / path.name)
        elif not _VERSION.fullmatch(path.name):
            shutil.copytree(path, target / path.name)


def _staged(hidden: Path, target: Path, version: int, like: Path | None) -> Staging:
    model = hidden / target.name
    model.mkdir(parents=True)
    source = target if target.is_dir() else like
    if source is not None:
        copy_configuration(source, model)
    directory = model / str(version)
    directory.mkdir()
    return Staging(model=model, version=directory, has_config=source is not None)


def _place(staging: Staging, target: Path, hidden: Path) -> None:
    if not target.exists():
        staging.model.rename(target)
        return
    place = target / staging.version.name
    if place.exists():
        place.rename(hidden / "replaced")
    staging.version.rename(place)


def _plain(value: object) -> object:
    """The value for strict JSON, which has no infinity."""
    match value:
        case dict():
            return {str(key): _plain(member) for key, member in value.items()}
        case list() | tuple():
            return [_plain(member) for member in value]
        case float():
            return value if abs(value) < float("inf") else str(value)
        case _:
            return value
