"""Stores on loopback ports: moto's S3, and a web server with listings; both can be made to fail."""

import functools
import http.server
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from moto.server import DomainDispatcherApplication, create_backend_app
from typing_extensions import override
from werkzeug.serving import WSGIRequestHandler, make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class S3:
    """An S3 server without any check of credentials.

    Attributes:
        url: Of the server.
        damaged: Keys whose content is another one than its entity tag says.
        reads: Keys of which content was read.
        before_read: Called with the key before content is sent.
        broken: Refuse everything.
    """

    def __init__(self) -> None:
        self.url = ""
        self.damaged: set[str] = set()
        self.reads: list[str] = []
        self.before_read: Callable[[str], object] = lambda _key: None
        self.broken = False
        self._moto: Application = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """The server as a WSGI application."""
        key = environ["PATH_INFO"].lstrip("/")
        if self.broken:
            start_response("403 Forbidden", [("Content-Length", "0")])  # what is not tried again
            return [b""]
        is_read = environ["REQUEST_METHOD"] == "GET" and "/" in key
        if is_read:
            self.before_read(key)
            self.reads.append(key)
        answer = self._moto(environ, start_response)
        return [bytes(len(b"".join(answer)))] if is_read and key in self.damaged else answer

    def put(self, key: str, content: bytes = b"", **headers: str) -> None:
        """Store an object; the bucket is made if need be."""
        bucket = key.partition("/")[0]
        httpx.put(f"{self.url}/{bucket}", headers=_SIGNED)
        httpx.put(f"{self.url}/{key}", content=content, headers={**_SIGNED, **headers}).raise_for_status()

    def delete(self, key: str) -> None:
        """Remove an object."""
        httpx.delete(f"{self.url}/{key}", headers=_SIGNED).raise_for_status()


# moto tells services apart by the signature's scope.
_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=, Signature="
}


class _Quiet(WSGIRequestHandler):
    @override
    def log(self, *_: object, **__: object) -> None:
        """Say nothing."""


@contextmanager
def s3_server() -> Iterator[S3]:
    """Serve S3 from a thread."""
    s3 = S3()
    server = make_server("127.0.0.1", 0, s3, threaded=True, request_handler=_Quiet)
    s3.url = f"http://127.0.0.1:{server.server_port}"
    with _running(server):
        yield s3


class Web:
    """A directory behind a web server.

    Attributes:
        url: Of the server, with a slash at the end.
        root: What it serves.
        cut: Paths whose answer ends in the middle.
        redirects: Where a path is redirected to.
        reads: Paths that were asked for.
    """

    def __init__(self, root: Path) -> None:
        self.url = ""
        self.root = root
        self.cut: set[str] = set()
        self.redirects: dict[str, str] = {}
        self.reads: list[str] = []

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


class _Pages(http.server.SimpleHTTPRequestHandler):
    def __init__(self, web: Web, *arguments: Any, **more: Any) -> None:
        self._web = web
        super().__init__(*arguments, directory=str(web.root), **more)

    @override
    def do_GET(self) -> None:
        self._web.reads.append(self.path)
        if self.path in self._web.redirects:
            self.send_response(302)
            self.send_header("Location", self._web.redirects[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path in self._web.cut:
            content = (self._web.root / self.path.lstrip("/")).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
        else:
            super().do_GET()

    @override
    def do_HEAD(self) -> None:
        if "signature=" in self.path:  # it is one for GET
            self.send_error(403)
        else:
            super().do_HEAD()

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def web_server(root: Path) -> Iterator[Web]:
    """Serve a directory from a thread."""
    web = Web(root)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Pages, web))
    web.url = f"http://127.0.0.1:{server.server_port}/"
    with _running(server):
        yield web


@contextmanager
def _running(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
