"""The few things that the surfaces need of HTTP, on bare ASGI messages."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson

from gateway.errors import RequestTooLargeError

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]
"""Request headers by lower-case name; of a repeated header the last value."""


class Offload(Protocol):
    """Runs a blocking function in a thread, such as ``asyncio.to_thread`` with a pool behind it."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """The function's answer or error."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete answer; Content-Length is added when it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


JSON_TYPE = (b"content-type", b"application/json")


def json_reply(value: object, status: int = 200) -> Reply:
    """A JSON answer; mappings that are not plain dicts are taken as well."""
    return Reply(status, orjson.dumps(value, default=dict), (JSON_TYPE,))


def error_reply(status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Reply:
    """The only form of an error on this surface: ``{"error": text}``."""
    # Lone surrogates, which no UTF-8 text can hold, become question marks: an error must always be answerable.
    body = orjson.dumps({"error": text.encode("utf-8", "replace").decode()})
    return Reply(status, body, (JSON_TYPE, *headers))


async def read_body(receive: Receive, headers: Headers, limit_bytes: int) -> list[bytes] | None:
    """The request body in the pieces in which it came, or None when the client left before it was complete.

    Raises:
        RequestTooLargeError: Announced or counted while reading; the rest is left unread.
    """
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > limit_bytes):
        raise RequestTooLargeError(found=f"a Content-Length of {announced[:32].decode()}", limit_bytes=limit_bytes)
    chunks: list[bytes] = []
    total_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        total_bytes += len(chunk)
        if total_bytes > limit_bytes:
            raise RequestTooLargeError(found=f"at least {total_bytes} bytes", limit_bytes=limit_bytes)
        if chunk:
            chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks


async def send_reply(send: Send, reply: Reply) -> None:
    """Send the answer. A client that has left is no error: nobody is there to be told."""
    headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
    with contextlib.suppress(OSError):  # servers raise one of its kinds when the connection is gone
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


async def unless_disconnected(call: Awaitable[T], receive: Receive) -> T | None:
    """The call's answer, or None when the client left meanwhile, in which case the call was cancelled.

    Only for requests whose body is complete: whatever `receive` says then means that the client left. The call runs in
    the caller's task, so that it costs one task (about 7 us on uvloop), not two.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine always runs in a task
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        caller.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        return await call
    except asyncio.CancelledError:
        if not left or caller.cancelling() > 1:  # not ours, or not ours alone
            raise
        return None
    finally:
        if left:
            caller.uncancel()
        watcher.cancel()
        try:
            await watcher
        except asyncio.CancelledError:
            if caller.cancelling():
                raise
