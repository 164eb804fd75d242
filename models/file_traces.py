"""How a directory looks from outside: enough to see that something in it has changed, without reading any file."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_UNFINISHED_SUFFIXES = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".download", ".filepart", ".incomplete")
_HIDDEN_COPY = re.compile(r"\..+\.\w{6}")  # of rsync


class FileTrace(NamedTuple):
    """One file.

    Attributes:
        name: Relative to the directory, with slashes.
        size_bytes: Of its content.
        modified_ns: Time of its last change.
    """

    name: str
    size_bytes: int
    modified_ns: int


Traces = tuple[FileTrace, ...]


def traces(directory: Path) -> Traces:
    """All files below a directory, sorted by name; links are followed, bytecode and hidden directories are left out.

    A file that vanishes meanwhile is left out.

    Raises:
        OSError: The directory itself cannot be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(20, "not a directory")
    return tuple(sorted(_walk(directory)))


def unfinished(found: Sequence[FileTrace]) -> str:
    """The name of a file that is being copied, going by what copying programs call such files; empty if none is."""
    return next((trace.name for trace in found if _is_unfinished(trace.name.rpartition("/")[2])), "")


def _is_unfinished(name: str) -> bool:
    return name.lower().endswith(_UNFINISHED_SUFFIXES) or _HIDDEN_COPY.fullmatch(name) is not None


def _walk(directory: Path) -> Iterator[FileTrace]:
    seen: set[tuple[int, int]] = set()  # against links that lead in a circle
    for place, directories, names in os.walk(directory, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            directories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        directories[:] = [name for name in directories if name != "__pycache__" and not name.startswith(".")]
        prefix = Path(place).relative_to(directory).as_posix()
        for name in names:
            try:
                found = (Path(place) / name).stat()
            except FileNotFoundError:
                continue
            yield FileTrace(name if prefix == "." else f"{prefix}/{name}", found.st_size, found.st_mtime_ns)
        if not directories and not names:
            yield FileTrace(f"{prefix}/", 0, 0)  # an empty version directory counts
