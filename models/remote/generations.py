"""The local copies of one entry of a remote repository; see `models.remote.mirror` for the directories."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from models.errors import RepositoryError
from models.remote.listing import Listing, RemoteObject
from models.remote.stores import Store

_DOWNLOADS = 8
_Trace = tuple[int, str, int]  # size and tag of an object, modification time of its copy in ns


@dataclass(frozen=True, slots=True)
class Generation:
    """A complete copy of an entry; `files` holds its objects by their names."""

    directory: Path

    @property
    def files(self) -> Path:
        """The parent of the entry."""
        return self.directory / "files"

    def manifest(self) -> dict[str, _Trace]:
        """What its objects were when they were fetched; nothing if that cannot be read."""
        try:
            written = json.loads((self.directory / "manifest.json").read_text())
            return {str(name): (int(size), str(tag), int(time_ns)) for name, (size, tag, time_ns) in written.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def discard(self) -> None:
        """Delete it; nobody has seen it."""
        shutil.rmtree(self.directory)


class Entry:
    """One entry of the mirror.

    Args:
        name: What stands at the top of the repository.
        home: The directory of the mirror.
    """

    def __init__(self, name: str, home: Path) -> None:
        self._name = name
        self._link = home / "models" / name
        self._generations = home / "generations" / name
        self._blobs = home / "blobs"

    def stage(self, objects: Sequence[RemoteObject], store: Store) -> Generation | None:
        """Fetch what has changed into a generation that nobody sees yet; None if nothing has.

        Raises:
            RepositoryError: An object cannot be fetched, or is not what the store says.
            OSError: The directory cannot be written.
        """
        current = self._current()
        manifest = current.manifest() if current else {}
        same = {found.name for found in objects if current and _is_same(found, manifest.get(found.name), current)}
        if same == {found.name for found in objects} == manifest.keys():
            return None
        files = [found for found in objects if not found.is_directory]
        self._fetch([found for found in files if found.name not in same], store)
        here = current.files if current else self._blobs
        sources = {
            found.name: here / found.name if found.name in same else self._blobs / _blob_name(found) for found in files
        }
        return self._assemble(objects, sources)

    def show(self, generation: Generation) -> None:
        """Let the entry be this generation, in one step. Keeps the one before it, and no older ones."""
        before = self._current()
        target = os.path.relpath(generation.files / self._name, self._link.parent)
        temporary = self._link.with_name(f".{secrets.token_hex(8)}")
        temporary.symlink_to(target)
        temporary.replace(self._link)
        _flush(self._link.parent)
        kept = {generation.directory.name, before.directory.name if before else ""}
        for old in self._generations.iterdir():
            if old.name not in kept:
                shutil.rmtree(old)

    def hide(self) -> None:
        """Take the entry out of the mirror; its last generation stays for those who still read it."""
        self._link.unlink()

    def _current(self) -> Generation | None:
        with suppress(OSError):
            token = self._link.readlink().parts[-3]
            return Generation(self._generations / token)
        return None

    def _fetch(self, objects: Sequence[RemoteObject], store: Store) -> None:
        """Into files of their own, which a failure of another object leaves for the next try."""
        self._blobs.mkdir(exist_ok=True, mode=0o700)
        with ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="fetch") as pool:
            downloads = [pool.submit(_download, found, self._blobs / _blob_name(found), store) for found in objects]
            try:
                for download in downloads:
                    download.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _assemble(self, objects: Sequence[RemoteObject], sources: Mapping[str, Path]) -> Generation:
        token = secrets.token_hex(8)
        hidden, generation = Generation(self._generations / f".{token}"), Generation(self._generations / token)
        hidden.files.mkdir(parents=True, mode=0o700)
        traces: dict[str, _Trace] = {}
        for found in objects:
            target = hidden.files / found.name
            (target if found.is_directory else target.parent).mkdir(parents=True, exist_ok=True)
            if not found.is_directory:
                target.hardlink_to(sources[found.name])
            traces[found.name] = (found.size_bytes, found.tag, target.stat().st_mtime_ns)
        manifest = hidden.directory / "manifest.json"
        manifest.write_text(json.dumps(traces))
        _flush(manifest)
        for directory, _, _ in os.walk(hidden.directory):
            _flush(Path(directory))
        hidden.directory.rename(generation.directory)
        _flush(self._generations)
        return generation


def prune_blobs(home: Path, listing: Listing) -> None:
    """Keep of the fetched objects only those that a next try may need: listed, and in no generation yet."""
    wanted = {_blob_name(found) for objects in listing.models.values() for found in objects}
    for blob in home.glob("blobs/*"):
        if blob.name not in wanted or blob.stat().st_nlink > 1:
            blob.unlink()


def _blob_name(found: RemoteObject) -> str:
    text = json.dumps([found.name, found.size_bytes, found.tag])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_same(found: RemoteObject, trace: _Trace | None, generation: Generation) -> bool:
    """Whether an object is as it was when it was fetched, and so is the copy."""
    if trace is None or trace[:2] != (found.size_bytes, found.tag):
        return False
    try:
        status = (generation.files / found.name).stat()
    except OSError:
        return False
    return found.is_directory or (status.st_size, status.st_mtime_ns) == (trace[0], trace[2])


def _download(found: RemoteObject, blob: Path, store: Store) -> None:
    """Write one object, checked against what the store says of it. Raises RepositoryError and OSError."""
    if blob.exists():
        return  # of a try before, which failed at another object
    part = blob.with_name(f"{blob.name}.part")
    digest, size_bytes = hashlib.md5(usedforsecurity=False), 0
    with part.open("wb") as file:
        for piece in store.content(found):
            size_bytes += len(piece)
            if size_bytes > found.size_bytes:
                break
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if size_bytes != found.size_bytes:
        raise RepositoryError(f"{found.name}: found {size_bytes} bytes, expected {found.size_bytes} as listed")
    if found.md5 not in (None, digest.hexdigest()) and store.is_plain(found):
        raise RepositoryError(
            f"{found.name}: found a content with the MD5 {digest.hexdigest()}, expected {found.md5} as listed; "
            "it was damaged on its way or in the store"
        )
    part.rename(blob)


def _flush(path: Path) -> None:
    """Make what is written there outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
