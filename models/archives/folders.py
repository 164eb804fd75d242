"""Which private folders are in use, by all processes that share them, and the removal of those that nobody uses.

A process has one file beside the folders, which it holds locked as long as it lives and in which it lists the folders
that it uses: its workers read them whenever they start again. All of that happens under one more lock, so that no
folder is removed between being found and being listed.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNUSED_NS = 24 * 3600 * 1_000_000_000  # since the last use, before a folder is removed
_LOCK = ".lock"
_IN_USE = ".in-use-"
_OURS = re.compile(r"([0-9a-f]{64})(-[\w.-]+)?|\.[0-9a-f]{16}")  # folders, requirements of one, what was begun
_CANNOT_WRITE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})


class PrivateFolders:
    """The folders of one directory, each named after its content.

    Args:
        work: The directory; private to this server, or shared by servers of one user.
    """

    def __init__(self, work: Path) -> None:
        self.work = work.absolute()
        self._list: int | None = None  # descriptor of this process's file
        self._listed: set[str] = set()

    def keep(self, digest: str) -> bool:
        """Whether there is such a folder; from now on it stays as long as this process. Raises OSError."""
        if not (self.work / digest).is_dir():
            return False
        try:
            with self._lock():
                return self._use(digest)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            return True  # in a cache that nobody can write to, nobody removes anything

    def adopt(self, staging: Path, digest: str) -> Path:
        """Give a complete folder its name and keep it; one of this name that is there is as good. Raises OSError."""
        folder = self.work / digest
        with self._lock():
            try:
                staging.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
            self._use(digest)
        return folder

    def prune(self) -> None:
        """Remove what no living process has listed and nobody has used for a day. Raises OSError."""
        with self._lock() as now_ns:
            used = self._in_use()
            forgotten = [path for path in self.work.iterdir() if _is_forgotten(path, used, now_ns)]
            doomed = [path.rename(self.work / f".{secrets.token_hex(8)}") for path in forgotten]
        for path in doomed:  # which takes its time, and is finished by another one if this process ends
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[int]:
        """Alone among all processes; gives the time by the clock that stamps the folders."""
        descriptor = os.open(self.work / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.utime(descriptor)
            yield os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)

    def _use(self, digest: str) -> bool:
        try:
            os.utime(self.work / digest)
        except FileNotFoundError:
            return False
        if digest not in self._listed:
            os.write(self._own_list(), f"{digest}\n".encode())
            self._listed.add(digest)
        return True

    def _own_list(self) -> int:
        if self._list is None:
            self._in_use()  # which removes the files of servers that have ended, also where nothing new is extracted
            file = self.work / f"{_IN_USE}{secrets.token_hex(8)}"
            self._list = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            weakref.finalize(self, os.close, self._list)
            fcntl.flock(self._list, fcntl.LOCK_EX)
        return self._list

    def _in_use(self) -> frozenset[str]:
        """What living processes have listed; the files of the others are removed."""
        used: set[str] = set()
        for file in self.work.glob(f"{_IN_USE}*"):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                file.unlink()
            except BlockingIOError:
                used.update(file.read_text(encoding="ascii").split())
            finally:
                os.close(descriptor)
        return frozenset(used)


def _is_forgotten(path: Path, used: frozenset[str], now_ns: int) -> bool:
    ours = _OURS.fullmatch(path.name)
    if ours is None or ours[1] in used or not path.is_dir():
        return False
    main = path.with_name(ours[1]) if ours[1] else path
    last_use_ns = (main if main.exists() else path).stat().st_mtime_ns
    return now_ns - last_use_ns > _UNUSED_NS
