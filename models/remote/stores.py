"""Where the objects are: one port, with fsspec behind it for object stores and httpx for web servers."""

import base64
import importlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from models.errors import RepositoryError
from models.remote.listing import RemoteObject
from models.remote.urls import EXTRA_BY_SCHEME, RemoteUrl, redact

CHUNK_BYTES = 8 << 20
_MD5 = re.compile(r"[0-9a-f]{32}")
_TAGS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "last_modified", "updated", "created")
_PATIENCE = {"connect_timeout": 5, "read_timeout": 60, "retries": {"total_max_attempts": 1}}  # s3fs tries again itself


class Store(Protocol):
    """A place that holds a repository. All of it blocks, and raises RepositoryError with nothing secret in it."""

    def objects(self) -> Iterable[RemoteObject]:
        """Everything in the repository, now."""
        ...

    def content(self, found: RemoteObject) -> Iterator[bytes]:
        """An object's content, in pieces. Called from several threads."""
        ...

    def is_plain(self, found: RemoteObject) -> bool:
        """Whether the object's digest is one of what `content` gives; asked when they differ."""
        ...


@contextmanager
def explained(url: RemoteUrl) -> Iterator[None]:
    """Turn whatever a store's library raises into one sentence."""
    try:
        yield
    except RepositoryError:
        raise
    except Exception as error:  # the libraries have no common base, and documented ones leak others
        reason = redact(str(error)) or type(error).__name__
        raise RepositoryError(f"model repository {url.shown}: {reason[:512]}") from error


class BucketStore:
    """Object stores that fsspec knows. Credentials come from the environment, as the store's own tools find them.

    Args:
        url: Where the repository is.

    Raises:
        RepositoryError: What the scheme needs is not installed.
    """

    def __init__(self, url: RemoteUrl) -> None:
        self._url = url
        fsspec = importlib.import_module("fsspec")  # 0.1 s that only remote repositories need
        options: dict[str, Any] = {"use_listings_cache": False}
        if url.scheme == "s3":
            options |= {"endpoint_url": url.endpoint, "config_kwargs": _PATIENCE}
        try:
            with explained(url):
                self._files = fsspec.filesystem(url.scheme, **options)
        except RepositoryError as error:
            if isinstance(error.__cause__, ImportError):
                raise _not_installed(url) from error
            raise
        self._root = str(self._files._strip_protocol(url.place))  # noqa: SLF001 - fsspec's way to a canonical name

    def objects(self) -> Iterable[RemoteObject]:
        """See `Store`."""
        with explained(self._url):
            self._files.invalidate_cache()
            listed = self._files.find(self._root, detail=True)
            found = [self._object(key, details) for key, details in listed.items()]
        return [entry for entry in found if entry.name]  # consoles mark the prefix itself too

    def content(self, found: RemoteObject) -> Iterator[bytes]:
        """See `Store`. If the object changes meanwhile, the store refuses the next piece (If-Match)."""
        with explained(self._url), self._files.open(found.key, "rb", cache_type="none") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def is_plain(self, found: RemoteObject) -> bool:
        """See `Store`. Entity tags of objects that S3 encrypts with its customers' keys look like digests."""
        if self._url.scheme != "s3":
            return True
        bucket, _, key = found.key.partition("/")
        with explained(self._url):
            head = self._files.call_s3("head_object", Bucket=bucket, Key=key)
        return not head.get("SSECustomerAlgorithm") and head.get("ServerSideEncryption") in (None, "AES256")

    def _object(self, key: str, details: dict[str, Any]) -> RemoteObject:
        tag = next((str(details[name]) for name in _TAGS if details.get(name)), "")
        is_archive = key == self._root  # the URL of one object, not of a prefix
        return RemoteObject(
            key=key,
            name=key.rpartition("/")[2] if is_archive else key.removeprefix(self._root).removeprefix("/"),
            size_bytes=int(details["size"]),
            tag=tag.strip('"'),
            md5=_digest(details),
        )


def _digest(details: dict[str, Any]) -> str | None:
    """The MD5 that S3, Google and Azure tell, each in its own way; objects that came in parts have none."""
    tag = str(details.get("ETag", "")).strip('"').lower()
    if _MD5.fullmatch(tag):
        return tag
    settings = details.get("content_settings") or {}
    packed = details.get("md5Hash") or settings.get("content_md5")
    if not packed:
        return None
    return base64.b64decode(packed).hex() if isinstance(packed, str) else bytes(packed).hex()


def _not_installed(url: RemoteUrl) -> RepositoryError:
    extra = EXTRA_BY_SCHEME[url.scheme]
    return RepositoryError(
        f"model repository {url.shown}: {url.scheme}:// needs a package that is not installed; "
        f"install it with: pip install 'shoal[{extra}]'"
    )
