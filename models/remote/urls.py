"""Addresses of remote repositories, and the same without what must not be shown."""

import hashlib
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from models.errors import RepositoryError

EXTRA_BY_SCHEME = {"s3": "s3", "gs": "gcs", "az": "azure", "http": "", "https": "", "memory": ""}
"""The schemes that are served, and which extra of this package installs what they need."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CREDENTIALS = re.compile(r"(://)[^/\s'\"@]*@")
_QUERY = re.compile(r"(://[^\s'\"?]*)\?[^\s'\"]*")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]|::")
# Triton's form for other servers than Amazon's: s3://host:port/bucket or s3://https://host:port/bucket.
_ENDPOINT = re.compile(r"s3://((?:https?://)?[A-Za-z0-9.\-\[\]:]+:\d{1,5}|https?://[A-Za-z0-9.-]+)/(.+)")
_BELONGS_TO_URL = re.compile(r"//|\d{1,5}(?:/|$)|[^/]*@")
_EXPECTED = (
    "expected s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, http://host/path or https://host/path"
)


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """Where a remote repository is.

    Attributes:
        scheme: One of `EXTRA_BY_SCHEME`.
        place: What the store is asked for: bucket and prefix; for HTTP the whole URL, maybe with credentials.
        shown: For logs and errors: without credentials and query.
        endpoint: Base URL of an S3 server that is not Amazon's.
    """

    scheme: str
    place: str = field(repr=False)
    shown: str
    endpoint: str | None = None

    @property
    def digest(self) -> str:
        """A file name for it that tells nothing; credentials that change do not change it."""
        return hashlib.sha256(self.shown.encode()).hexdigest()[:24]


def is_remote(text: str) -> bool:
    """Whether this names a remote repository, with any scheme, rather than a directory."""
    return _SCHEME.match(text) is not None


def split_places(text: str, separator: str) -> list[str]:
    """Cut a list like that of PATH; the colons of URLs cut nothing."""
    places: list[str] = []
    for piece in text.split(separator):
        previous = places[-1] if places else ""
        is_rest = piece.startswith("//") if "://" not in previous else _BELONGS_TO_URL.match(piece)
        if previous and is_rest:
            places[-1] = f"{previous}{separator}{piece}"
        elif piece:
            places.append(piece)
    return places


def redact(text: str) -> str:
    """A text without the credentials and queries of the URLs in it."""
    return _QUERY.sub(r"\1", _CREDENTIALS.sub(r"\1", text))


def parse_url(text: str) -> RemoteUrl:
    """Read an address. Raises RepositoryError if it is none that is served, without showing its secrets."""
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme not in EXTRA_BY_SCHEME:
        hint = "; give the directory without file://" if scheme in {"file", "local"} else ""
        raise _refusal(text, f"a scheme that is not served, {_EXPECTED}{hint}")
    if _UNSAFE.search(text):
        raise _refusal(text, "a blank, a control character, a backslash or '::', expected a plain URL")
    return _parse_http(text) if scheme in {"http", "https"} else _parse_bucket(scheme, text)


def _parse_http(text: str) -> RemoteUrl:
    parts = urlsplit(text)
    if not parts.hostname:
        raise _refusal(text, f"no host, {_EXPECTED}")
    place = urlunsplit(parts._replace(fragment="", path=parts.path or "/"))
    return RemoteUrl(scheme=parts.scheme, place=place, shown=redact(place))


def _parse_bucket(scheme: str, text: str) -> RemoteUrl:
    if redact(text) != text:
        raise _refusal(text, "credentials or a query in the URL, expected them in the environment of the server")
    endpoint, place = None, text.partition("://")[2]
    custom = _ENDPOINT.fullmatch(text)
    if custom is not None:
        endpoint = custom[1] if "://" in custom[1] else f"http://{custom[1]}"  # as Triton does
        place = custom[2]
    place = place.rstrip("/")
    if not {"", ".", ".."}.isdisjoint(place.split("/")):
        raise _refusal(text, f"no bucket, or a path with empty parts or dots, {_EXPECTED}")
    return RemoteUrl(scheme=scheme, place=place, shown=text.rstrip("/"), endpoint=endpoint)


def _refusal(text: str, found: str) -> RepositoryError:
    return RepositoryError(f"model repository {redact(text)[:256]!r}: found {found}")
