"""The names of the models in a store's archives, remembered between looks at the store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from models.archives.containers import Container, ZipContainer, damage_is_told, open_container
from models.archives.limits import ExtractionLimits, Gate, problem_of_name
from models.archives.manifest import MANIFEST, MANIFEST_BYTES, parse_manifest, read_manifest
from models.errors import ModelsError
from models.model_names import nearest_name

SUFFIXES = (".mar", ".tar.gz", ".tgz")

_Stamp = tuple[int, int, int]


class _Known(NamedTuple):
    stamp: _Stamp | None
    name: str


class KnownNames:
    """Model names by archive; only what has changed since the last look is read again.

    Whoever looks at stores again and again owns one. It remembers the archives that were there at the last look, no
    others. Several threads may share it: at worst they read an archive twice.
    """

    def __init__(self) -> None:
        self._by_store: dict[Path, Mapping[Path, _Known]] = {}

    def look(self, store: Path, archives: Sequence[Path], limits: ExtractionLimits) -> Mapping[Path, str]:
        """The model's name of each archive of a store, from its manifest. Blocks.

        A broken archive has the name that it had before it broke, so that a model does not vanish while its archive is
        copied over; one that was never read has the file's.
        """
        before = self._by_store.get(store, {})
        now = {archive: _look(archive, before.get(archive), limits) for archive in archives}
        self._by_store[store] = now
        return {archive: known.name for archive, known in now.items()}


def stem(archive: Path) -> str:
    """A model's name like the file's, without what says that it is an archive."""
    name = archive.name
    return nearest_name(next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name))


def _look(archive: Path, before: _Known | None, limits: ExtractionLimits) -> _Known:
    stamp = None
    try:
        stamp = _stamp(archive)
        if before is not None and before.stamp == stamp:
            return before
        return _Known(stamp, _model_name(archive, limits))
    except (ModelsError, OSError):  # which reading it as a whole will tell
        return _Known(stamp, before.name if before else stem(archive))


def _stamp(archive: Path) -> _Stamp:
    found = (archive / MANIFEST if archive.is_dir() else archive).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _model_name(archive: Path, limits: ExtractionLimits) -> str:
    if problem_of_name(archive.name):
        return stem(archive)
    if archive.is_dir():
        return read_manifest(archive, archive.name).model_name
    with archive.open("rb") as file, damage_is_told(archive.name):
        gate = Gate(archive.name, archive.stat().st_size, limits)
        return parse_manifest(_manifest_of(open_container(file, archive.name), gate), archive.name).model_name


def _manifest_of(container: Container, gate: Gate) -> bytes:
    """The manifest, empty if there is none. A tar file is read up to it; torch-model-archiver puts it at the end."""
    if isinstance(container, ZipContainer):
        return container.read(MANIFEST, MANIFEST_BYTES + 1) or b""
    for member in container.members(gate):
        gate.admit(member.name, is_directory=member.content is None, declared_bytes=member.declared_bytes)
        if member.content is not None and MANIFEST in (member.name, member.name.partition("/")[2]):
            return member.content.read(MANIFEST_BYTES + 1)
    return b""
