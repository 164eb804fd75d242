"""Engines that were built here, on disk: ``<cache>/tensorrt/<key>.engine``, written whole or not at all.

Knows nothing of TensorRT. Several processes may use one directory at once.
"""

import enum
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backends.tensorrt_engine.keys import Machine, short_digest

logger = logging.getLogger(__name__)

_DIGEST_BYTES = 32


class EngineState(enum.Enum):
    """Whether the cache has an engine under a key."""

    MISSING = "was never built"
    STALE = "is damaged, or belongs under another key"
    READY = "can be used"


class EngineStore:
    """The engines of one machine.

    An entry is the SHA-256 of its key and content, then the content: one that was cut, altered or renamed is none.

    Args:
        cache_dir: May not exist yet.
        machine: Whose timings and refusals are remembered.
    """

    def __init__(self, cache_dir: Path, machine: Machine) -> None:
        self._directory = cache_dir / "tensorrt"
        self._machine_key = short_digest(repr(machine))

    def state(self, key: str) -> EngineState:
        """Reads the whole entry."""
        if not self._engine(key).exists():
            return EngineState.MISSING
        return EngineState.STALE if self.load(key) is None else EngineState.READY

    def load(self, key: str) -> bytes | None:
        """The engine's plan, or None if there is none or it is damaged."""
        return self._read(self._engine(key), key)

    def save(self, key: str, plan: bytes) -> None:
        """Keep an engine. Raises OSError."""
        self._write(self._engine(key), key, plan)

    def discard(self, key: str) -> None:
        """Forget an engine that TensorRT does not take."""
        self._engine(key).unlink(missing_ok=True)

    def load_timings(self) -> bytes:
        """TensorRT's timing cache of this machine; empty if there is none."""
        return self._read(self._timings, self._machine_key) or b""

    def save_timings(self, timings: bytes) -> None:
        """Keep the timing cache. Raises OSError."""
        self._write(self._timings, self._machine_key, timings)

    def is_refused(self, plan_digest: str) -> bool:
        """Whether TensorRT refused this plan file on this machine before."""
        return self._refusal(plan_digest).exists()

    def note_refused(self, plan_digest: str, reason: str) -> None:
        """Remember it, for this process and others, such as the one that decides what to build."""
        try:
            _write_whole(self._refusal(plan_digest), reason.encode())
        except OSError as error:  # it will be tried, and refused, again
            logger.warning("cannot write to the engine cache: %s", error.strerror)

    @contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Inside, nobody else builds the same engine; waits for another process that does."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f"{key}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # let go by closing, also when the process dies
            yield

    @property
    def _timings(self) -> Path:
        return self._directory / f"{self._machine_key}.timings"

    def _engine(self, key: str) -> Path:
        return self._directory / f"{key}.engine"

    def _refusal(self, plan_digest: str) -> Path:
        return self._directory / f"{short_digest(plan_digest + self._machine_key)}.refused"

    def _read(self, file: Path, key: str) -> bytes | None:
        try:
            entry = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("cannot read the engine cache's '%s': %s; it is built again", file.name, error.strerror)
            return None
        content = entry[_DIGEST_BYTES:]
        if entry[:_DIGEST_BYTES] != _seal(key, content):
            logger.warning("the engine cache's '%s' is damaged or not its own; it is built again", file.name)
            return None
        return content

    def _write(self, file: Path, key: str, content: bytes) -> None:
        _write_whole(file, _seal(key, content) + content)


def _seal(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(content)
    return digest.digest()


def _write_whole(file: Path, content: bytes) -> None:
    """All or nothing, also when several processes write the same file, or the disk is full."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
