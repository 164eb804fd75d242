"""One archive, unpacked and read as a whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from models.archives.extraction import extract
from models.archives.folders import PrivateFolders
from models.archives.handler_names import check_handler
from models.archives.known_names import SUFFIXES
from models.archives.limits import ExtractionLimits, problem_of_name
from models.archives.manifest import MANIFEST, Manifest, file_in_archive, located, read_manifest
from models.archives.model_yaml import read_model_yaml
from models.archives.requirements import read_requirements
from models.archives.settings import Checked, Settings
from models.archives.shown import shown
from models.archives.specification import model_spec
from models.errors import ArchiveError
from models.problems import Problems
from models.spec import DeviceKind, ModelSpec

_YAML = "model-config.yaml"
_NOTHING = Checked(Settings({}), (), (), ())


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose manifest is fine, unpacked.

    Attributes:
        file_name: Its name in the store.
        directory: Where its files are, MAR-INF among them.
        manifest: Its manifest.
    """

    file_name: str
    directory: Path
    manifest: Manifest


def is_packed(path: Path) -> bool:
    """Whether a file is an archive, by its name."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def is_unpacked(directory: Path) -> bool:
    """Whether a directory is an archive that was never packed (torch-model-archiver's ``no-archive``).

    One that has lost its manifest is a broken archive, not something else.
    """
    return (directory / MANIFEST).parent.is_dir()


def unpack(archive: Path, folders: PrivateFolders, limits: ExtractionLimits) -> Archive:
    """Unpack an archive, or find it unpacked, and read its manifest. Blocks.

    Raises:
        ArchiveError: It is damaged or unsafe, or has no manifest.
        ConfigError: The manifest is wrong.
        OSError: A file cannot be read or written.
    """
    if problem := problem_of_name(archive.name):
        raise ArchiveError(f"{shown(archive.name)}: found a file {problem}, expected a plain name; rename it")
    if (archive / MANIFEST).exists():  # an unpacked one, of which everything would be copied first
        read_manifest(archive, archive.name)
    directory = _model_directory(extract(archive, folders, limits), archive.name)
    return Archive(archive.name, directory, read_manifest(directory, archive.name))


def _model_directory(folder: Path, archive: str) -> Path:
    """Tar files of torch-model-archiver have everything in a directory of the model's name."""
    inside = [path for path in folder.iterdir() if path.is_dir()]
    candidates = [folder, *(inside if len(inside) == 1 else [])]
    found = next((path for path in candidates if (path / MANIFEST).is_file()), None)
    if found is None:
        expected = "a file of torch-model-archiver; other files do not belong into a model store"
        raise ArchiveError(f"{archive}: found no {MANIFEST} in it, expected {expected}")
    return found


def specify(
    archive: Archive, name: str, given: Settings, flags: Mapping[str, bool]
) -> tuple[ModelSpec, tuple[str, ...]]:
    """The specification of an unpacked archive, and notes for the log.

    Args:
        archive: The archive.
        name: The model's name.
        given: What config.properties says; model-config.yaml goes before it.
        flags: What it says to the handler's process.

    Raises:
        ModelsError: Whatever is wrong, all at once.
        OSError: A file cannot be read.
    """
    problems = Problems()
    manifest = problems.attempt(located, archive.manifest, archive.directory) or archive.manifest
    problems.attempt(check_handler, archive.manifest, archive.directory)
    archive = replace(archive, manifest=manifest)
    checked = problems.attempt(_model_config, archive) or _NOTHING
    problems.add_all(checked.problems)
    problems.raise_any()
    settings = checked.settings.over(given)
    spec = model_spec(name, archive.manifest, archive.directory, settings, flags)
    notes = (*archive.manifest.notes, *checked.notes, *_remarks(archive, settings, spec))
    return spec, notes


def _model_config(archive: Archive) -> Checked:
    given = archive.manifest.files.get("configFile")
    name = given and file_in_archive(archive.directory, given)
    if not name:
        return _NOTHING
    return read_model_yaml(archive.directory / name, f"{archive.file_name}/{name}")


def _remarks(archive: Archive, settings: Settings, spec: ModelSpec) -> Iterator[str]:
    if "configFile" not in archive.manifest.files and (archive.directory / _YAML).is_file():
        reason = 'the manifest has no "configFile"; pack it again with --config-file'
        yield f"{archive.file_name}/{_YAML}: has no effect: {reason}"
    if settings.value("minWorkers", 1) == 0:
        yield f"{settings.place('minWorkers')}: minWorkers: 0 workers could not answer, one runs"
    count, kind = settings.number("minWorkers", 1), spec.instance_groups[0].kind
    if count > 1 and kind is not DeviceKind.CPU and not spec.instance_groups[0].gpus:
        yield f"{settings.place('minWorkers')}: minWorkers: where there are several GPUs, {count} run on each"
    if settings.value("maxBatchDelay", 1) == 0:
        yield f"{settings.place('maxBatchDelay')}: maxBatchDelay: 0 means no delay here, 100 ms in TorchServe"
    requirements = read_requirements(spec)
    if requirements:
        where = f"{archive.file_name}/{archive.manifest.files['requirementsFile']}"
        yield f"{where}: {', '.join(requirements)}: installed only with --install-py-dep-per-model"
