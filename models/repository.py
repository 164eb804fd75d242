"""A model repository in Triton's layout: which models and versions are on disk, and what is wrong with them.

::

    <root>/<model>/config.pbtxt      may be missing when the model file says everything
    <root>/<model>/shoal.toml        may be missing
    <root>/<model>/<version>/model.onnx
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.config import absent_versions, check_for_all_versions, served_versions, version_spec
from models.config_notes import notes as notes_of_config
from models.errors import ModelsError, RepositoryError
from models.pbtxt import ConfigText, parse
from models.side_file import SideFile, parse_side_file
from models.spec import ModelSpec
from models.text_files import read_text

_MODEL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_VERSION_NAME = re.compile(r"0|[1-9][0-9]*")
_LARGEST_VERSION = 2**63 - 1
_OTHER_DIRECTORIES = frozenset({"warmup", "initial_state", "configs", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model name of a repository: either it can be served or it has problems.

    Attributes:
        name: The directory's name.
        versions: The versions to serve, ascending; empty if there are problems.
        problems: Why the model cannot be served; empty if it can.
        notes: What was skipped or has no effect, in sentences for the log.
        required: Whether the server is ready without it; None: only while it is meant to be loaded.
        version_labels: Version numbers by label (``stable``, ``canary``), as shoal.toml gives them.
    """

    name: str
    versions: tuple[ModelSpec, ...] = ()
    problems: tuple[ModelsError, ...] = ()
    notes: tuple[str, ...] = ()
    required: bool | None = None
    version_labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Everything found under the given roots; the models are sorted by name."""

    models: tuple[ModelEntry, ...]


def scan(roots: Sequence[Path]) -> Repository:
    """Read all models under `roots`. Blocks on file reads. One broken model does not hide the others.

    Raises:
        RepositoryError: A root is no readable directory.
    """
    places: defaultdict[str, list[Path]] = defaultdict(list)
    for root in {root.resolve(): root for root in roots}.values():  # a root given twice counts once
        for directory in _model_directories(root):
            places[directory.name].append(directory)
    return Repository(models=tuple(_entry(name, found) for name, found in sorted(places.items())))


def read_model(directory: Path) -> ModelEntry:
    """Read one model directory; whatever is wrong with it is in the entry's problems."""
    try:
        return _read(directory)
    except ModelsError as error:
        return ModelEntry(name=directory.name, problems=(error,))
    except OSError as error:
        return ModelEntry(name=directory.name, problems=(_unreadable(directory.name, error),))


def _model_directories(root: Path) -> list[Path]:
    try:
        # Hidden ones (.git, a Kubernetes volume's ..data) are not models.
        return [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError as error:
        expected = "expected a directory with one subdirectory a model"
        raise RepositoryError(f"model repository {root}: found {error.strerror or error}, {expected}") from error


def _entry(name: str, found: list[Path]) -> ModelEntry:
    if len(found) == 1:
        return read_model(found[0])
    problem = f"{name}: found in {len(found)} repositories, expected in one; rename or remove all but one"
    return ModelEntry(name=name, problems=(RepositoryError(problem),))


def _read(directory: Path) -> ModelEntry:
    name = directory.name
    if not _MODEL_NAME.fullmatch(name):
        rule = "expected letters, digits, '.', '_' and '-', no leading '.'; rename the directory"
        raise RepositoryError(f"{name!r}: found a directory that cannot be a model's name, {rule}")
    text = parse(_optional_text(directory, "config.pbtxt"), f"{name}/config.pbtxt")
    side = parse_side_file(_optional_text(directory, "shoal.toml"), f"{name}/shoal.toml")
    check_for_all_versions(text, name)
    present, notes = _version_directories(directory)
    served = served_versions(text, present)
    if not served:
        raise _nothing_to_serve(name, present)
    notes += [f"{name}/{version}: named by version_policy, not found" for version in absent_versions(text, present)]
    return _read_versions(text, side, directory, served, notes)


def _read_versions(
    text: ConfigText, side: SideFile, directory: Path, served: Sequence[int], notes: Sequence[str]
) -> ModelEntry:
    specs: list[ModelSpec] = []
    problems: dict[str, ModelsError] = {}  # by text: what is wrong with the config is wrong with every version
    for version in served:
        try:
            specs.append(version_spec(text, side, directory, version))
        except ModelsError as error:
            problems.setdefault(str(error), error)
        except OSError as error:
            unreadable = _unreadable(f"{directory.name}/{version}", error)
            problems.setdefault(str(unreadable), unreadable)
    if problems:
        return ModelEntry(name=directory.name, problems=tuple(problems.values()), notes=tuple(notes))
    without_effect = dict.fromkeys(note for spec in specs for note in notes_of_config(text, spec.backend))
    return ModelEntry(name=directory.name, versions=tuple(specs), notes=(*notes, *without_effect))


def _version_directories(directory: Path) -> tuple[list[int], list[str]]:
    present: list[int] = []
    notes: list[str] = []
    for name in sorted(path.name for path in directory.iterdir() if path.is_dir()):
        if _VERSION_NAME.fullmatch(name) and int(name) <= _LARGEST_VERSION:
            present.append(int(name))
        elif name not in _OTHER_DIRECTORIES:
            reason = "expected a version number without leading zeros"
            notes.append(f"{directory.name}/{name}: skipped, {reason}")
    return present, notes


def _nothing_to_serve(name: str, present: Sequence[int]) -> RepositoryError:
    if not present:
        return RepositoryError(f"{name}: found no version directory, expected at least one, e.g. {name}/1/")
    versions = ", ".join(map(str, sorted(present)))
    return RepositoryError(f"{name}: found only the versions {versions}, expected one that version_policy names")


def _optional_text(directory: Path, file_name: str) -> str:
    file = directory / file_name
    return read_text(file, f"{directory.name}/{file_name}") if file.exists() else ""


def _unreadable(where: str, error: OSError) -> RepositoryError:
    return RepositoryError(f"{where}: cannot be read: {error.strerror or type(error).__name__}")
