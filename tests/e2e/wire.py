"""Requests as bytes, and many clients at once, each on a connection of its own."""

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import orjson

from tests.e2e.server import PATIENCE_S, Server

T = TypeVar("T")


def infer_body(*rows: float, **more: object) -> dict[str, Any]:
    """A v2 request for an echo; each number makes one row of it and its negative."""
    data = [[value, -value] for value in rows]
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 2], "data": data}], **more}


def echoed(answer: dict[str, Any]) -> list[float]:
    """The rows of an echo's answer, as `infer_body` takes them."""
    flat = answer["outputs"][0]["data"]
    assert flat[1::2] == [-value for value in flat[::2]]
    return list(flat[::2])


def post_bytes(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """A whole HTTP request."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def infer_bytes(model: str, *rows: float) -> bytes:
    return post_bytes(f"/v2/models/{model}/infer", orjson.dumps(infer_body(*rows)))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One kept-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes) -> Answer:
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(int(head[0].split()[1]), headers, body)

    def send(self, data: bytes) -> None:
        """Part of a request; what follows comes with `ask`, or never."""
        self._writer.write(data)

    async def read_until(self, mark: bytes) -> bytes:
        """What comes up to and including the mark."""
        return await self._reader.readuntil(mark)

    async def read_to_end(self) -> bytes:
        """Everything until the server closes."""
        return await self._reader.read()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connect(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def ask_once(port: int, request: bytes) -> Answer:
    connection = await connect(port)
    try:
        return await connection.ask(request)
    finally:
        await connection.close()


async def ask_at_once(port: int, requests: Sequence[bytes]) -> list[Answer]:
    """All at the same time, each on its own connection."""
    return await all_of(ask_once(port, request) for request in requests)


async def all_of(calls: Any) -> list[Any]:
    async def bounded(call: Awaitable[T]) -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bounded(call)) for call in calls]
    return [task.result() for task in tasks]


def raw_connection(server: Server) -> socket.socket:
    """A bare socket; the caller closes it."""
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)


def classified(response: httpx.Response) -> list[dict[str, Any]]:
    """The predictions of an answer that must be good."""
    assert response.status_code == 200, response.text
    return list(response.json()["predictions"])
