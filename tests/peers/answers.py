"""Answers as data that two servers can be compared by."""

import json
import socket
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

from tests.peers.http_cases import Request

PATIENCE_S = 20
HEADERS = ("Inference-Header-Content-Length", "Content-Encoding", "Accept-Encoding", "Allow", "Retry-After")
"""The headers that clients of this protocol look at, beside the type of what is no error."""
TIMES = {"ns", "last_inference"}


class Answer(NamedTuple):
    """What a client sees of an answer."""

    status: int
    headers: dict[str, str]
    content: object


NONE = Answer(0, {}, "the connection was closed")


def ask(port: int, request: Request) -> Answer:
    """Send one request on a connection of its own."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            connection.sendall(bytes(request))
            with HTTPResponse(connection, method=request.method) as response:
                response.begin()
                return _answer(response, response.read())
    except (ConnectionError, HTTPException):
        return NONE


def _answer(response: HTTPResponse, body: bytes) -> Answer:
    headers = {name: value for name in HEADERS if (value := response.headers.get(name)) is not None}
    if response.status == 200 and body:
        headers["Content-Type"] = response.headers.get("Content-Type", "")
    if "Content-Encoding" in headers:
        headers.pop("Inference-Header-Content-Length", None)
        return Answer(response.status, headers, f"{len(body) > 0}")
    return Answer(response.status, headers, masked(_content(body, headers)))


def _content(body: bytes, headers: dict[str, str]) -> object:
    length = headers.get("Inference-Header-Content-Length")
    if length is not None:
        # The texts of both servers may differ where their JSON says the same.
        del headers["Inference-Header-Content-Length"]
        return json.loads(body[: int(length)]), body[int(length) :]
    try:
        return json.loads(body)
    except ValueError:
        return body


def masked(content: object) -> object:
    """The same without what time and chance decide."""
    if isinstance(content, dict):
        if content.get("state") == "UNLOADING":  # Triton lets go of a model while it answers others
            return masked({**content, "state": "UNAVAILABLE", "reason": "unloaded"})
        return {key: type(value).__name__ if key in TIMES else masked(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [masked(part) for part in content]
    return repr(content) if isinstance(content, float) else content


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """The places at which two answers differ, with both contents."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            yield from differences(ours.get(key, "nothing"), theirs.get(key, "nothing"), f"{where}.{key}")
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif ours != theirs:
        yield f"{where}: Triton {theirs!r}, Shoal {ours!r}"
