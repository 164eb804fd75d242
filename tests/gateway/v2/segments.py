"""POSIX shared memory as a client makes it: files in `/dev/shm`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

DIRECTORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux
needs_shared_memory = pytest.mark.skipif(not os.access(DIRECTORY, os.W_OK), reason="there is no writable /dev/shm")


def new_key() -> str:
    return f"shoal-test-{uuid4().hex}"


@contextmanager
def segment(content: bytes) -> Iterator[Path]:
    """Shared memory with this content; its key is the path's name."""
    path = DIRECTORY / new_key()
    path.write_bytes(content)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def open_files() -> list[str]:
    """What this process has open in the directory."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [str(link) for link in links if link.parent == DIRECTORY]


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def cut_off(path: Path, size_bytes: int) -> None:
    """As a client may at any time."""
    with path.open("r+b") as file:
        file.truncate(size_bytes)
