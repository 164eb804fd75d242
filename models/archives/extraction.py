"""Archives -> private folders that are named after their content, complete or not there at all.

::

    <work>/<sha256>/MAR-INF/MANIFEST.json     directories 0700, files 0600
    <work>/<sha256>/model.pt
    <work>/.in-use-<random>                   one a process, see models.archives.folders

Everything is checked while it is copied into a folder of another name, which is renamed at the end: what a folder of
this name holds has passed all checks, and code that runs from it does not change when the archive does.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from models.archives.containers import Container, DirectoryContainer, damage_is_told, open_container
from models.archives.folders import PrivateFolders
from models.archives.limits import ExtractionLimits, Gate
from models.errors import ArchiveError

_CHUNK_BYTES = 1 << 20


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def extract(archive: Path, folders: PrivateFolders, limits: ExtractionLimits) -> Path:
    """The private folder with the content of an archive, made now or found; kept as long as this process. Blocks.

    Args:
        archive: A zip or tar.gz file, or a directory.
        folders: Where private folders are; when one is made, forgotten ones are removed.
        limits: What is refused.

    Raises:
        ArchiveError: It is damaged, unsafe or too large, or it changes while it is read.
        OSError: A file cannot be read or written.
    """
    folders.work.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _copy(archive, folders, limits) if archive.is_dir() else _unpack(archive, folders, limits)


def _unpack(archive: Path, folders: PrivateFolders, limits: ExtractionLimits) -> Path:
    with archive.open("rb") as file:
        before = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if folders.keep(digest):
            return folders.work / digest
        with _staging(folders.work) as staging:
            with damage_is_told(archive.name):
                container = open_container(file, archive.name)
                _Copy(staging, Gate(archive.name, before.st_size, limits)).run(container)
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise ArchiveError(f"{archive.name}: found a file that changes while it is read, expected a whole one")
            return _settled(staging, folders, digest)


def _copy(directory: Path, folders: PrivateFolders, limits: ExtractionLimits) -> Path:
    """As for a file, but the digest is known only when everything is copied."""
    content = hashlib.sha256()
    with _staging(folders.work) as staging:
        _Copy(staging, Gate(directory.name, 0, limits), content).run(DirectoryContainer(directory))
        return _settled(staging, folders, content.hexdigest())


@contextmanager
def _staging(work: Path) -> Iterator[Path]:
    """A new private folder beside the final ones; what is left of it at the end is removed."""
    staging = work / f".{secrets.token_hex(8)}"
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _settled(staging: Path, folders: PrivateFolders, digest: str) -> Path:
    folder = folders.adopt(staging, digest)
    _sync(folders.work)
    folders.prune()
    return folder


class _Copy:
    """Writes members below a new folder.

    Args:
        staging: The folder.
        gate: Admits members.
        content: Gets names and content, if any.
    """

    def __init__(self, staging: Path, gate: Gate, content: _Hash | None = None) -> None:
        self._staging = staging
        self._gate = gate
        self._content = content
        self._directories = {staging}

    def run(self, container: Container) -> None:
        """Copy everything and wait until it is on the disk. Raises as `extract`."""
        for member in container.members(self._gate):
            is_directory = member.content is None
            size_bytes = member.declared_bytes
            steps = self._gate.admit(member.name, is_directory=is_directory, declared_bytes=size_bytes)
            self._digest(f"{'d' if is_directory else size_bytes}:{member.name}\0".encode())
            self._make_directories(steps if is_directory else steps[:-1])
            if member.content is not None:
                self._write(self._staging.joinpath(*steps), member.content, size_bytes)
        for directory in self._directories:
            _sync(directory)

    def _make_directories(self, steps: Sequence[str]) -> None:
        directory = self._staging
        for step in steps:
            directory /= step
            if directory not in self._directories:
                directory.mkdir(mode=0o700)
                self._directories.add(directory)

    def _write(self, target: Path, content: IO[bytes], declared_bytes: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        written_bytes = 0
        with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
            while chunk := content.read(_CHUNK_BYTES):
                self._gate.count(len(chunk))
                written_bytes += file.write(chunk)
                self._digest(chunk)
            file.flush()
            os.fsync(file.fileno())
        if written_bytes != declared_bytes:
            found = f"{written_bytes} bytes of {target.name}"
            raise self._gate.error(found, f"{declared_bytes}, the size that is given for it; pack or copy it again")

    def _digest(self, data: bytes) -> None:
        if self._content is not None:
            self._content.update(data)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
