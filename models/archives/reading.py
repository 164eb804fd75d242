"""One archive: looked into for its manifest, or unpacked and read as a whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.archives.containers import Container, ZipContainer, damage_is_told, open_container
from models.archives.extraction import extract
from models.archives.limits import ExtractionLimits, Gate
from models.archives.manifest import MANIFEST, MANIFEST_BYTES, Manifest, check_files, parse_manifest
from models.archives.model_yaml import read_model_yaml
from models.archives.requirements import read_requirements
from models.archives.settings import Checked, Settings
from models.archives.specification import model_spec
from models.errors import ArchiveError, ModelsError
from models.problems import Problems
from models.spec import DeviceKind, ModelSpec

SUFFIXES = (".mar", ".tar.gz", ".tgz")
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


_last_names: dict[Path, str] = {}


def model_name(archive: Path, limits: ExtractionLimits) -> str:
    """The model's name, from the manifest. Blocks.

    A broken archive has the name that it had before it broke, so that a model does not vanish while its archive is
    copied over; one that was never read has the file's.
    """
    try:
        _last_names[archive] = parse_manifest(_manifest_of(archive, limits), archive.name).model_name
    except (ModelsError, OSError):  # which reading it as a whole will tell
        return _last_names.get(archive) or stem(archive)
    return _last_names[archive]


def _manifest_of(archive: Path, limits: ExtractionLimits) -> bytes:
    if archive.is_dir():
        return (archive / MANIFEST).read_bytes()
    found = archive.stat()
    return _peek(archive, limits, (found.st_ino, found.st_size, found.st_mtime_ns))


def stem(archive: Path) -> str:
    """The file's name without what says that it is an archive."""
    return next((archive.name.removesuffix(end) for end in SUFFIXES if archive.name.endswith(end)), archive.name)


@lru_cache(maxsize=1024)  # a tar file is read up to the manifest, which torch-model-archiver puts at its end
def _peek(archive: Path, limits: ExtractionLimits, _stamp: tuple[int, int, int]) -> bytes:
    """The manifest of a file; empty if it has none or is broken. Raises OSError."""
    try:
        with archive.open("rb") as file, damage_is_told(archive.name):
            return _find_manifest(open_container(file, archive.name), Gate(archive.name, _stamp[1], limits))
    except ArchiveError:
        return b""


def _find_manifest(container: Container, gate: Gate) -> bytes:
    if isinstance(container, ZipContainer):
        return container.read(MANIFEST, MANIFEST_BYTES + 1) or b""
    for member in container.members(gate):
        gate.admit(member.name, is_directory=member.content is None, declared_bytes=member.declared_bytes)
        if member.content is not None and MANIFEST in (member.name, member.name.partition("/")[2]):
            return member.content.read(MANIFEST_BYTES + 1)
    return b""


def unpack(archive: Path, work: Path, limits: ExtractionLimits) -> Archive:
    """Unpack an archive, or find it unpacked, and read its manifest. Blocks.

    Raises:
        ArchiveError: It is damaged or unsafe, or has no manifest.
        ConfigError: The manifest is wrong.
        OSError: A file cannot be read or written.
    """
    directory = _model_directory(extract(archive, work, limits), archive.name)
    manifest = parse_manifest((directory / MANIFEST).read_bytes(), f"{archive.name}/{MANIFEST}")
    return Archive(archive.name, directory, manifest)


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
    problems.attempt(check_files, archive.manifest, archive.directory)
    checked = problems.attempt(_model_config, archive) or _NOTHING
    problems.add_all(checked.problems)
    problems.raise_any()
    settings = checked.settings.over(given)
    spec = model_spec(name, archive.manifest, archive.directory, settings, flags)
    notes = (*archive.manifest.notes, *checked.notes, *_remarks(archive, settings, spec))
    return spec, notes


def _model_config(archive: Archive) -> Checked:
    name = archive.manifest.files.get("configFile")
    if name is None or not (archive.directory / name).is_file():
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
