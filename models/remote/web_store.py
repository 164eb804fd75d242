"""Repositories on plain web servers: one archive, or a tree of directory listings.

httpx instead of fsspec's file system for HTTP: it is there anyway, redirects can be refused, and a listing's links are
followed only downwards and on the same server.
"""

from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

import httpx
from typing_extensions import override

from models.errors import RepositoryError
from models.remote.listing import MirrorLimits, RemoteObject
from models.remote.stores import CHUNK_BYTES, explained
from models.remote.urls import RemoteUrl

_ARCHIVES = (".mar", ".tar.gz", ".tgz")
_MAX_PAGE_BYTES = 8 << 20
_NO_HEAD = (403, 405, 501)  # the first is what a URL answers that is signed for GET only
_LISTING_NEEDED = (
    "expected a directory listing in HTML, as nginx (autoindex), Apache and `python -m http.server` make it, "
    "or the URL of one .mar, .tar.gz or .tgz"
)


class WebStore:
    """See `models.remote.stores.Store`.

    Args:
        url: Of a directory listing, or of one archive.
        client: The connections; it must not follow redirects.
        limits: How deep and how far listings are followed.
    """

    def __init__(self, url: RemoteUrl, client: httpx.Client, limits: MirrorLimits) -> None:
        self._url = url
        self._client = client
        self._limits = limits

    def objects(self) -> Iterable[RemoteObject]:
        """See `Store`."""
        path = urlsplit(self._url.place).path
        if path.endswith(_ARCHIVES):
            return [self._head(self._url.place, unquote(path.rpartition("/")[2]))]
        return self._walk(_as_directory(self._url.place), "")

    def content(self, found: RemoteObject) -> Iterator[bytes]:
        """See `Store`. An answer that ends early is an error."""
        with explained(self._url), self._client.stream("GET", found.key) as answer:
            self._check(answer, found.name)
            yield from answer.iter_raw(CHUNK_BYTES)

    def is_plain(self, found: RemoteObject) -> bool:
        """See `Store`. No digests here."""
        del found
        return True

    def _walk(self, page: str, above: str) -> Iterator[RemoteObject]:
        """Everything below a listing."""
        if above.count("/") > self._limits.max_levels:
            raise RepositoryError(f"model repository {self._url.shown}: listings go deeper than the limit")
        for name, link in self._links(page):
            if name.endswith("/"):
                yield RemoteObject(key=link, name=above + name, size_bytes=0, tag="")
                yield from self._walk(link, above + name)
            else:
                yield self._head(link, above + name)

    def _links(self, page: str) -> list[tuple[str, str]]:
        """Names (those of directories with a slash) and URLs of a listing's entries."""
        with explained(self._url), self._client.stream("GET", page) as answer:
            self._check(answer, urlsplit(page).path, _LISTING_NEEDED)
            if "html" not in answer.headers.get("content-type", ""):
                raise RepositoryError(f"model repository {self._url.shown}: found no HTML, {_LISTING_NEEDED}")
            text = _limited(answer)
        parser = _Links()
        parser.feed(text)
        found = dict.fromkeys(link for target in parser.targets if (link := _below(page, target)))
        if len(found) > self._limits.max_objects:
            raise RepositoryError(f"model repository {self._url.shown}: a listing has more entries than the limit")
        return [(unquote(urlsplit(link).path[len(urlsplit(page).path) :]), link) for link in found]

    def _head(self, link: str, name: str) -> RemoteObject:
        with explained(self._url):
            answer = self._client.head(link)
            if answer.status_code in _NO_HEAD:
                with self._client.stream("GET", link) as answer:
                    pass  # only its headers
        self._check(answer, name)
        size = answer.headers.get("content-length", "")
        if not size.isdigit():
            raise RepositoryError(f"model repository {self._url.shown}: {name}: found no Content-Length, expected one")
        tag = answer.headers.get("etag") or f"{answer.headers.get('last-modified', '')} {size}"
        return RemoteObject(key=link, name=name, size_bytes=int(size), tag=tag)

    def _check(self, answer: httpx.Response, name: str, expected: str = "expected 200") -> None:
        """Only 200 is an answer: a redirect could lead anywhere, also to servers that trust this one."""
        if answer.status_code != 200:
            hint = "; redirects are not followed, give the URL that it leads to" if answer.is_redirect else ""
            raise RepositoryError(
                f"model repository {self._url.shown}: {name}: found status {answer.status_code}, {expected}{hint}"
            )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.targets.extend(value for name, value in attrs if name == "href" and value)


def _limited(answer: httpx.Response) -> str:
    page = b""
    for piece in answer.iter_bytes():
        page += piece
        if len(page) > _MAX_PAGE_BYTES:
            raise RepositoryError(f"found a listing of more than {_MAX_PAGE_BYTES} bytes")
    return page.decode("utf-8", "replace")


def _as_directory(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/"))


def _below(page: str, target: str) -> str | None:
    """The URL of an entry of a listing: exactly one level below the page, on the same server; else None."""
    base = urlsplit(page)
    try:
        parts = urlsplit(urljoin(urlunsplit(base._replace(query="")), target))
    except ValueError:
        return None
    rest = parts.path[len(base.path) :] if parts.path.startswith(base.path) else ""
    is_entry = rest.strip("/") and "/" not in rest.removesuffix("/")
    if parts.query or (parts.scheme, parts.netloc) != (base.scheme, base.netloc) or not is_entry:
        return None
    return urlunsplit(parts._replace(query=base.query, fragment=""))
