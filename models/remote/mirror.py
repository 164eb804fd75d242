"""A local copy of a remote repository, in which every entry is complete at any time.

::

    <directory>/<digest of the URL>/models/<entry>       a link to the entry's newest generation; this is the repository
    <directory>/<digest of the URL>/generations/<entry>/<token>/files/<entry>...
    <directory>/<digest of the URL>/generations/<entry>/<token>/manifest.json
    <directory>/<digest of the URL>/blobs/               objects of the running download

An entry is what stands at the top of a repository: a model's directory or an archive. A generation never changes:
it is filled under another name, with hard links to what is still the same, and appears by a rename; then the link is
replaced, which is atomic too. So whoever reads sees the old files or the new ones, and a crash leaves only litter,
which the next synchronisation removes. The generation before stays until the next change, for whoever still reads it.
"""

import contextlib
import fcntl
import logging
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from models.errors import RepositoryError
from models.remote.generations import Entry, Generation, prune_blobs
from models.remote.listing import Listing, MirrorLimits, group
from models.remote.stores import BucketStore, Store
from models.remote.urls import RemoteUrl, parse_url
from models.remote.web_store import WebStore

_log = logging.getLogger(__name__)
_TIMEOUT = httpx.Timeout(60, connect=10)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one synchronisation did.

    Attributes:
        changed: Entries that are new or have another content.
        removed: Entries that the store no longer has.
        problems: Why the others are as they were before; all are in the log already.
    """

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[RepositoryError, ...] = ()


class Mirror:
    """Mirrors one URL. Nothing is read or written before `sync`.

    Args:
        url: ``s3://bucket/prefix`` and the like, see `models.remote.urls`.
        directory: Where mirrors are kept, one directory a URL; several processes may share it.
        limits: What is taken.

    Attributes:
        url: The address, fit to be shown.
        path: The mirror: an ordinary repository. It exists after the first `sync` that did not raise.

    Raises:
        RepositoryError: The URL is none that is served.
    """

    def __init__(self, url: str, directory: Path, limits: MirrorLimits | None = None) -> None:
        self._url = parse_url(url)
        self._limits = limits or MirrorLimits()
        self._home = directory / self._url.digest
        self._told: frozenset[str] = frozenset()
        self._turn = threading.Lock()
        self._begun = 0  # synchronisations
        self.url = self._url.shown
        self.path = self._home / "models"

    def sync(self) -> SyncReport:
        """Fetch what has changed since the last call. Blocks, maybe for minutes; call it in a thread.

        Calls from several threads wait for each other; those that waited share what one of them finds.

        A store that cannot be reached, and an entry that cannot be fetched, leave what was fetched before.

        Raises:
            RepositoryError: Nothing was ever fetched, and nothing can be now; or the directory cannot be written.
        """
        begun = self._begun
        with self._turn:
            if self._begun > begun:
                return SyncReport()  # one that began after this call has looked already
            self._begun += 1
            return self._sync_alone()

    def _sync_alone(self) -> SyncReport:
        try:
            with self._locked():
                report = self._sync()
        except OSError as error:
            raise RepositoryError(
                f"model repository {self.url}: its local copy cannot be written: {error.strerror or error}"
            ) from error
        self._tell(report)
        return report

    def _sync(self) -> SyncReport:
        kept = self._entries()
        try:
            with _connect(self._url, self._limits) as store:
                return self._fetch(store, kept)
        except RepositoryError as error:
            if not kept:
                raise
            return SyncReport(problems=(error,))  # the last good copy goes on

    def _fetch(self, store: Store, kept: Mapping[str, Entry]) -> SyncReport:
        listing = self._list(store)
        problems = {name: RepositoryError(f"{self.url}: {error}") for name, error in listing.problems.items()}
        staged: dict[str, Generation] = {}
        try:
            self._stage(listing, store, staged, problems)
            changed = self._show(listing, store, staged, problems)
        finally:
            for generation in staged.values():
                generation.discard()
        gone = kept.keys() - listing.models.keys() - listing.problems.keys()
        for name in gone:
            kept[name].hide()
        prune_blobs(self._home, listing)
        if problems and not self._entries():
            raise next(iter(problems.values()))  # at the first time something must have come
        return SyncReport(tuple(changed), tuple(sorted(gone)), tuple(problems.values()))

    def _stage(
        self, listing: Listing, store: Store, staged: dict[str, Generation], problems: dict[str, RepositoryError]
    ) -> None:
        """Fetch what has changed. One entry that fails does not stop the others."""
        for name, objects in listing.models.items():
            try:
                generation = self._entry(name).stage(objects, store)
            except (RepositoryError, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                problems[name] = RepositoryError(f"{self.url}: {reason}")
            else:
                staged |= {name: generation} if generation else {}

    def _show(
        self, listing: Listing, store: Store, staged: dict[str, Generation], problems: dict[str, RepositoryError]
    ) -> list[str]:
        """Take out of `staged` what did not change while it was fetched, and show it; an upload may be running."""
        steady = self._list(store).models if staged else {}
        changed = [name for name in sorted(staged) if steady.get(name) == listing.models[name]]
        for name in changed:
            self._entry(name).show(staged.pop(name))
        for name in staged:
            problems[name] = RepositoryError(f"{self.url}: {name}: changed while it was fetched; it is tried again")
        return changed

    def _list(self, store: Store) -> Listing:
        """What the store holds; nothing at all counts as a mistake, lest a wrong prefix unload every model."""
        try:
            listing = group(store.objects(), self._limits)
        except RepositoryError as error:
            text = str(error)
            raise RepositoryError(text if self.url in text else f"model repository {self.url}: {text}") from error
        if not listing.models and not listing.problems:
            raise RepositoryError(
                f"model repository {self.url}: found nothing, expected one directory a model, e.g. <model>/1/model.onnx"
            )
        return listing

    def _entry(self, name: str) -> Entry:
        return Entry(name, self._home)

    def _entries(self) -> dict[str, Entry]:
        return {link.name: self._entry(link.name) for link in self.path.iterdir() if not link.name.startswith(".")}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone in the directory, without what a crash has left."""
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.mkdir(exist_ok=True)
        with (self._home / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the file
            for litter in (
                *self.path.glob(".*"),
                *self._home.glob("generations/*/.*"),
                *self._home.glob("blobs/*.part"),
            ):
                _remove(litter)
            for generations in self._home.glob("generations/*"):
                if not (self.path / generations.name).is_symlink():
                    _remove(generations)
            yield

    def _tell(self, report: SyncReport) -> None:
        """Say a lasting problem once, not at each poll."""
        told = frozenset(str(problem) for problem in report.problems)
        for text in sorted(told - self._told):
            _log.warning("%s%s", text, "; what was fetched before goes on" if any(self.path.iterdir()) else "")
        self._told = told
        if report.changed or report.removed:
            fields = {"repository": self.url, "changed": list(report.changed), "removed": list(report.removed)}
            _log.info("fetched", extra={"fields": fields})


def _remove(litter: Path) -> None:
    if litter.is_dir() and not litter.is_symlink():
        shutil.rmtree(litter)
    else:
        litter.unlink(missing_ok=True)


@contextlib.contextmanager
def _connect(url: RemoteUrl, limits: MirrorLimits) -> Iterator[Store]:
    """The store of a URL, for one synchronisation."""
    if url.scheme not in {"http", "https"}:
        yield BucketStore(url)
        return
    headers = {"accept-encoding": "identity"}  # sizes are those of what is stored
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=False, headers=headers) as client:
        yield WebStore(url, client, limits)
