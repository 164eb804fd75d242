"""The members of a zip file, a compressed tar file or a directory, one after the other, as plain files to copy.

Nothing is written here, and nothing but names and plain content passes: what is special in any way is refused.
"""

import errno
import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from typing_extensions import Buffer, override

from models.archives.limits import Gate
from models.archives.shown import shown
from models.errors import ArchiveError

_ENCRYPTED = 0x1 | 0x40 | 0x2000  # also the strong kind, and hidden headers
_UTF8_NAME = 0x800
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS_BYTES = 1 << 20  # of one tar member: long names, extended headers; also what may follow the last one
_MAGICS = {b"PK": "zip", b"\x1f\x8b": "gzip"}


@dataclass(frozen=True, slots=True)
class Member:
    """One file or directory of an archive.

    Attributes:
        name: As it is stored, without a leading ``./``.
        content: To be read to its end before the next member is asked for; None for a directory.
        declared_bytes: Its size, as the archive has it.
    """

    name: str
    content: IO[bytes] | None
    declared_bytes: int = 0


class Container(Protocol):
    """Where members come from."""

    def members(self, gate: Gate) -> Iterator[Member]:
        """All members, in the archive's order; the caller lets the gate admit each.

        Raises:
            ArchiveError: The archive is damaged, or a member is neither a plain file nor a directory.
            OSError: It cannot be read.
        """
        ...


@contextmanager
def damage_is_told(archive: str) -> Iterator[None]:
    """Turn what the libraries raise for damaged archives into ArchiveError."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        # ValueError: names and numbers that the libraries cannot decode
        raise _damaged(archive, str(error) or "it ends too early") from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise _damaged(archive, "it points to before its beginning") from error
    except NotImplementedError as error:
        raise ArchiveError(
            f"{archive}: found a feature of zip that is not read here ({shown(str(error))}), expected a plain zip file"
        ) from error


def _damaged(archive: str, what: str) -> ArchiveError:
    message = f"{archive}: found a damaged archive ({shown(what)}), expected a complete zip or tar.gz file"
    return ArchiveError(f"{message}; pack or copy it again")


def open_container(file: IO[bytes], archive: str) -> Container:
    """The container in an open file, told by its first bytes. Raises ArchiveError for anything else."""
    file.seek(0)
    kind = _MAGICS.get(file.read(2))
    file.seek(0)
    if kind is None:
        raise ArchiveError(f"{archive}: found neither a zip nor a tar.gz file, expected one of them; pack it again")
    return ZipContainer(file) if kind == "zip" else TarContainer(file)


class ZipContainer:
    """A zip file, which is what torch-model-archiver makes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def members(self, gate: Gate) -> Iterator[Member]:
        """See `Container`."""
        with zipfile.ZipFile(self._file) as archive:
            infos = archive.infolist()
            rehearsal = gate.fresh()
            for info in infos:  # all of them before the first one is written
                _check_zip_member(info, rehearsal)
            for info in infos:
                if _is_directory(info):
                    yield Member(info.orig_filename, None)
                    continue
                with archive.open(info) as content:
                    yield Member(info.orig_filename, content, info.file_size)

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """At most so many bytes of one member; None if there is none of this name."""
        with zipfile.ZipFile(self._file) as archive:
            found = [info for info in archive.infolist() if info.orig_filename == name]
            if len(found) != 1 or found[0].flag_bits & _ENCRYPTED:
                return None
            with archive.open(found[0]) as content:
                return content.read(limit_bytes)


def _check_zip_member(info: zipfile.ZipInfo, gate: Gate) -> None:
    # orig_filename, because zipfile cuts names at a NUL, and newer versions take others from an extra field.
    name, where = info.orig_filename, shown(info.orig_filename)
    if not name.isascii() and not info.flag_bits & _UTF8_NAME:
        raise gate.error(f"the member {where} whose name is not UTF-8", "names in UTF-8; pack it again")
    if info.flag_bits & _ENCRYPTED:
        raise gate.error(f"the encrypted member {where}", "an archive without a password")
    if info.compress_type not in _METHODS:
        raise gate.error(f"the member {where} in compression {info.compress_type}", "members stored or deflated")
    kind = stat.S_IFMT(info.external_attr >> 16)
    is_directory = _is_directory(info)
    if kind not in (0, stat.S_IFDIR if is_directory else stat.S_IFREG):
        raise gate.error(f"the member {where}, which is {_KINDS.get(kind, 'something special')}", _PLAIN)
    gate.admit(name, is_directory=is_directory, declared_bytes=0 if is_directory else info.file_size)


def _is_directory(info: zipfile.ZipInfo) -> bool:
    return info.orig_filename.endswith("/")


_PLAIN = "plain files and directories"
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory without a slash",
    stat.S_IFREG: "a file with a slash",
}
_TAR_KINDS = {
    tarfile.SYMTYPE: "a link",
    tarfile.LNKTYPE: "a link",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
}


class TarContainer:
    """A tar file in gzip, read as a stream: its members are known only as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def members(self, gate: Gate) -> Iterator[Member]:
        """See `Container`."""
        with gzip.GzipFile(fileobj=self._file) as plain:
            source = _Rationed(plain, gate)
            with tarfile.open(fileobj=source, mode="r|", errorlevel=2) as archive:
                while (info := archive.next()) is not None:
                    source.allow(info.size + _HEADERS_BYTES)
                    member = _tar_member(archive, info, gate)
                    if member is not None:
                        yield member
                    source.allow(_HEADERS_BYTES)
            while source.read(1 << 16):  # to the end, where gzip has its check sum
                pass


def _tar_member(archive: tarfile.TarFile, info: tarfile.TarInfo, gate: Gate) -> Member | None:
    name = info.name.removeprefix("./")
    if info.isdir():
        if name in (".", ""):
            gate.count_entry()
            return None
        return Member(name, None)
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
        kind = "a sparse file" if info.issparse() else _TAR_KINDS.get(info.type, "something special")
        raise gate.error(f"the member {shown(info.name)}, which is {kind}", _PLAIN)
    return Member(name, archive.extractfile(info), info.size)


class _Rationed(io.RawIOBase):
    """A stream that ends in an error when more is read than expected: a tar header may claim any length."""

    def __init__(self, source: gzip.GzipFile, gate: Gate) -> None:
        self._source = source
        self._gate = gate
        self._left_bytes = _HEADERS_BYTES

    def allow(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        size_bytes = self._source.readinto(buffer)
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise self._gate.error("headers of more than 1 MiB", "a tar file with ordinary headers")
        return size_bytes


class DirectoryContainer:
    """A directory that was never packed, or was unpacked by hand."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def members(self, gate: Gate) -> Iterator[Member]:
        """See `Container`; directories come before what is in them, and everything in the order of names."""
        yield from self._below(self._directory, "", gate)

    def _below(self, directory: Path, prefix: str, gate: Gate) -> Iterator[Member]:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield Member(name, None)
                    yield from self._below(Path(entry.path), f"{name}/", gate)
            elif entry.is_file(follow_symlinks=False):
                with Path(entry.path).open("rb") as content:
                    yield Member(name, content, os.fstat(content.fileno()).st_size)
            else:
                kind = "a link" if entry.is_symlink() else "something special"
                expected = f"{_PLAIN}; copy it with `cp -rL` if the link is meant"
                raise gate.error(f"{shown(name)}, which is {kind}", expected)
