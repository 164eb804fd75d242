"""One model directory in Triton's layout, read and checked.

::

    <model>/config.pbtxt      may be missing when the model file says everything
    <model>/shoal.toml        may be missing
    <model>/<version>/model.onnx
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from models.config import absent_versions, check_for_all_versions, served_versions, version_spec
from models.config_code import Completer
from models.config_notes import notes as notes_of_config
from models.drafts import Drafts, draft_versions
from models.errors import ModelsError, RepositoryError
from models.file_traces import FileTrace, traces, unfinished
from models.model_entry import ModelEntry
from models.model_names import NAME_RULE, is_model_name, printable
from models.pbtxt import ConfigText, parse, parse_json
from models.problems import Problems, problems_of
from models.side_file import SideFile, parse_side_file
from models.side_file_parts import Parts, good_parts
from models.spec import ModelSpec
from models.text_files import read_text

_VERSION_NAME = re.compile(r"0|[1-9][0-9]*")
_LARGEST_VERSION = 2**63 - 1
_OTHER_DIRECTORIES = frozenset({"warmup", "initial_state", "configs", "golden", "__pycache__"})
_CONFIG_FILES = frozenset({"config.pbtxt", "shoal.toml"})  # what they say is in the specifications


class DirectoryPlace:
    """A `Place`: one directory of a repository.

    Args:
        directory: Its name is the model's.
        completer: For models whose code completes their configuration.
    """

    def __init__(self, directory: Path, completer: Completer | None = None) -> None:
        self.directory = directory
        self._completer = completer

    @property
    def name(self) -> str:
        """The model's name; of a directory that cannot be one, a text that can be told."""
        return printable(self.directory.name)

    def fingerprint(self) -> Hashable:
        """See `Place`."""
        return traces(self.directory)

    def unfinished(self) -> str:
        """See `Place`."""
        return unfinished(traces(self.directory))

    def read(self, override: str | None = None) -> ModelEntry:
        """See `Place`."""
        return read_model(self.directory, override=override, completer=self._completer)

    def drafts(self, versions: Sequence[int]) -> Drafts:
        """What of versions with mistakes can be checked nevertheless; nothing if the files cannot be read at all."""
        try:
            return draft_versions(
                _config_text(self.directory, None), _good_parts(self.directory), self.directory, versions
            )
        except (ModelsError, OSError):
            return Drafts()


def read_model(directory: Path, *, override: str | None = None, completer: Completer | None = None) -> ModelEntry:
    """Read one model directory; whatever is wrong with it is in the entry's problems. Arguments as of `Place.read`."""
    try:
        return _read(directory, override, completer)
    except ModelsError as error:
        return ModelEntry(name=printable(directory.name), problems=problems_of(error))
    except OSError as error:
        return ModelEntry(name=printable(directory.name), problems=(_unreadable(printable(directory.name), error),))


def _read(directory: Path, override: str | None, completer: Completer | None) -> ModelEntry:
    name = directory.name
    if not is_model_name(name):
        rule = f"expected {NAME_RULE}; rename the directory"
        raise RepositoryError(f"{name!a}: found a directory that cannot be a model's name, {rule}")
    problems = Problems()  # all there are are told: whatever can be read is checked
    whole_side = problems.attempt(_side_file, directory)
    side = whole_side or _good_parts(directory).side
    text = problems.attempt(_config_text, directory, override)
    if text is None:
        return ModelEntry(name=name, problems=problems.found())
    problems.attempt(check_for_all_versions, text, name)
    present, notes = _version_directories(directory)
    served = served_versions(text, present)
    if not served and not (present and problems):  # a wrong version policy is told already
        problems.add(_nothing_to_serve(directory, present))
    notes += [f"{name}/{version}: named by version_policy, not found" for version in absent_versions(text, present)]
    notes += _labels_of_nothing(side, served)
    entry = _read_versions(text, side, directory, served, completer)
    if problems:
        problems.add(*entry.problems)
        entry = replace(entry, versions=(), broken=tuple(served), problems=problems.found())
    return replace(
        entry,
        notes=(*notes, *entry.notes),
        required=side.tables.required,
        version_labels=side.tables.version_labels,
        is_described=whole_side is not None,
        files=_files_by_version(directory, served),
    )


def _labels_of_nothing(side: SideFile, served: Sequence[int]) -> Iterator[str]:
    for label, version in side.tables.version_labels.items():
        if version not in served:
            where, path = side.lines.source, f"version_labels.{label}"
            line = side.lines.line_of(path)
            where = where if line is None else f"{where}:{line}"
            yield f"{where}: {path}: has no effect: version {version} is not among those that are served"


def _config_text(directory: Path, override: str | None) -> ConfigText:
    if override is not None:
        return parse_json(override, f"{directory.name}: the configuration of the load request")
    return parse(_optional_text(directory, "config.pbtxt"), f"{directory.name}/config.pbtxt")


def _side_file(directory: Path) -> SideFile:
    return parse_side_file(_optional_text(directory, "shoal.toml"), f"{directory.name}/shoal.toml")


def _good_parts(directory: Path) -> Parts:
    try:
        text = _optional_text(directory, "shoal.toml")
    except ModelsError:  # no text at all
        text = ""
    return good_parts(text, f"{directory.name}/shoal.toml")


def _read_versions(
    text: ConfigText, side: SideFile, directory: Path, served: Sequence[int], completer: Completer | None
) -> ModelEntry:
    specs: list[ModelSpec] = []
    problems = Problems()  # what is wrong with the config is wrong with every version, and told once
    for version in served:
        try:
            specs.append(version_spec(text, side, directory, version, completer=completer))
        except ModelsError as error:
            problems.add(error)
        except OSError as error:
            problems.add(_unreadable(f"{directory.name}/{version}", error))
    without_effect = dict.fromkeys(note for spec in specs for note in notes_of_config(text, spec.backend))
    good = {spec.version for spec in specs}
    return ModelEntry(
        name=directory.name,
        versions=tuple(specs),
        broken=tuple(version for version in served if version not in good),
        problems=problems.found(),
        notes=tuple(without_effect),
    )


def _files_by_version(directory: Path, served: Sequence[int]) -> Mapping[int, Hashable]:
    """The files of each version and those of the model, but for the configuration."""
    own: dict[str, list[FileTrace]] = {str(version): [] for version in served}
    common: list[FileTrace] = []
    for trace in traces(directory):
        head, _, _ = trace.name.partition("/")
        if trace.name.rpartition("/")[2].startswith("."):
            continue
        if head in own:
            own[head].append(trace)
        elif trace.name not in _CONFIG_FILES and not _VERSION_NAME.fullmatch(head):
            common.append(trace)
    return {version: (*own[str(version)], *common) for version in served}


def _version_directories(directory: Path) -> tuple[list[int], list[str]]:
    present: list[int] = []
    notes: list[str] = []
    for name in sorted(path.name for path in directory.iterdir() if path.is_dir()):
        if _VERSION_NAME.fullmatch(name) and int(name) <= _LARGEST_VERSION:
            present.append(int(name))
        elif name not in _OTHER_DIRECTORIES and not name.startswith("."):
            reason = "expected a version number without leading zeros"
            notes.append(f"{directory.name}/{printable(name)}: skipped, {reason}")
    return present, notes


def _nothing_to_serve(directory: Path, present: Sequence[int]) -> RepositoryError:
    name = directory.name
    if not present and _VERSION_NAME.fullmatch(name) and (directory.parent / "config.pbtxt").is_file():
        found = f"a version of the model '{directory.parent.name}'"
        return RepositoryError(f"{name}: found {found}, expected a model; name the repository above that model")
    if not present:
        return RepositoryError(f"{name}: found no version directory, expected at least one, e.g. {name}/1/")
    versions = ", ".join(map(str, sorted(present)))
    return RepositoryError(f"{name}: found only the versions {versions}, expected one that version_policy names")


def _optional_text(directory: Path, file_name: str) -> str:
    file = directory / file_name
    return read_text(file, f"{directory.name}/{file_name}") if file.exists() else ""


def _unreadable(where: str, error: OSError) -> RepositoryError:
    return RepositoryError(f"{where}: cannot be read: {error.strerror or type(error).__name__}")
