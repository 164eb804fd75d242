"""The few things that the surfaces need of HTTP, on bare ASGI messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from gateway import compression
from gateway.errors import RequestTooLargeError, SlowBodyError

T = TypeVar("T")

_log = logging.getLogger(__name__)

BODY_PAUSE_S = 30.0
"""Longest time between two pieces of a body."""

GRACE_S = 0.01
"""A call that is over by then is not watched for its client's leaving."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]
"""Request headers by lower-case name; of a repeated header the last value."""


class Offload(Protocol):
    """Runs a blocking function in a thread, such as ``asyncio.to_thread`` with a pool behind it."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """The function's answer or error."""
        ...


class Reply(NamedTuple):
    """One complete answer; Content-Length is added when it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


JSON_TYPE = (b"content-type", b"application/json")


class Exchange:
    """A request of which everything is here, from a server that takes the whole answer at once.

    To the application it is ASGI as always: the `receive` and `send` that it gets are this object's. The functions
    below recognise them and pass by the messages, which cost more than a small call itself.
    """

    pieces: list[bytes]
    """The body as it came."""
    is_whole = True
    """False: the rest of the body did not come in time."""
    disconnected = False
    """The client has left."""
    is_abandonable = False
    """The server shall cancel the task when the client leaves."""
    withdraw: Callable[[], None] | None = None
    """Called when the client leaves, while there is no task."""
    task: "asyncio.Task[None]"
    """Runs the application."""

    def reply(self, reply: Reply) -> bool:
        """Answer. False when it cannot be done at once: then `send` waits until it can."""
        raise NotImplementedError

    def finish(self, reply: Reply) -> None:
        """Answer a request that no task runs for, as soon as it can be done."""
        raise NotImplementedError

    def hand_over(self, app: "App") -> None:
        """Let an application go on with it, in a task."""
        raise NotImplementedError


Begin = Callable[[Exchange], bool]
"""Takes a complete request and sees to its answer without a task; or does nothing with it, and says False."""


def _exchange_of(channel: Receive | Send) -> Exchange | None:
    owner = getattr(channel, "__self__", None)
    return owner if isinstance(owner, Exchange) else None


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
        SlowBodyError: Nothing came for `BODY_PAUSE_S` seconds.
    """
    _check_announced(headers, limit_bytes)
    if (exchange := _exchange_of(receive)) is not None:
        return _body_of(exchange, limit_bytes)
    chunks: list[bytes] = []
    total_bytes = 0
    message = await receive()
    while True:
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        total_bytes += len(chunk)
        if total_bytes > limit_bytes:
            raise RequestTooLargeError(found=f"size of at least {total_bytes} bytes", limit_bytes=limit_bytes)
        if chunk:
            chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks
        try:
            async with asyncio.timeout(BODY_PAUSE_S):
                message = await receive()
        except TimeoutError:
            raise SlowBodyError(received_bytes=total_bytes, pause_s=BODY_PAUSE_S) from None


def _check_announced(headers: Headers, limit_bytes: int) -> None:
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > limit_bytes):
        raise RequestTooLargeError(found=f"size of {announced[:32].decode()} bytes", limit_bytes=limit_bytes)


def _body_of(exchange: Exchange, limit_bytes: int) -> list[bytes]:
    size_bytes = sum(map(len, exchange.pieces))
    if size_bytes > limit_bytes:
        raise RequestTooLargeError(found=f"size of {size_bytes} bytes", limit_bytes=limit_bytes)
    if not exchange.is_whole:
        raise SlowBodyError(received_bytes=size_bytes, pause_s=BODY_PAUSE_S)
    pieces, exchange.pieces = exchange.pieces, []  # the exchange lives on while its connection is idle
    return pieces


async def receive_body(receive: Receive, headers: Headers, limit_bytes: int, offload: Offload) -> list[bytes] | None:
    """The request body, unpacked if it is compressed; None when the client left.

    Raises:
        RequestTooLargeError: It is over the limit, as sent or unpacked.
        UnsupportedEncodingError: An unknown Content-Encoding.
        MalformedRequestError: It cannot be unpacked.
        SlowBodyError: It stopped coming.
    """
    if b"content-encoding" not in headers and (exchange := _exchange_of(receive)) is not None:
        return _body_of(exchange, limit_bytes)
    coding = headers.get(b"content-encoding", compression.IDENTITY)
    is_compressed = compression.is_compressed(coding)
    chunks = await read_body(receive, headers, limit_bytes)
    if chunks is None or not is_compressed:
        return chunks
    return await offload(partial(compression.inflate, chunks, limit_bytes, coding))  # a few bytes can unpack to much


async def send_reply(send: Send, reply: Reply) -> None:
    """Send the answer. A client that has left is no error: nobody is there to be told."""
    if (exchange := _exchange_of(send)) is not None and exchange.reply(reply):
        return
    headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
    try:
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})
    except OSError as error:  # servers raise one of its kinds when the connection is gone
        _log.debug("the client left before its answer: %s", error)


class _Watch:
    """Cancels a task when its client leaves, from the moment at which `begin` is called."""

    __slots__ = ("_caller", "_receive", "_task", "client_left")

    def __init__(self, caller: "asyncio.Task[object]", receive: Receive) -> None:
        self.client_left = False
        self._caller = caller
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait())

    async def end(self) -> None:
        """Stop watching; returns when the watching task is over."""
        if self._task is None:
            return
        if self.client_left:
            self._caller.uncancel()
        cancelled_before = self._caller.cancelling()
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            if self._caller.cancelling() > cancelled_before:  # not only the task: somebody cancels the caller
                raise

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_left = True
        self._caller.cancel()


def unless_disconnected(call: Awaitable[T], receive: Receive) -> Awaitable[T | None]:
    """The call's answer, or None when the client left meanwhile, in which case the call was cancelled.

    Only for requests whose body is complete: whatever `receive` says then means that the client left.
    """
    exchange = _exchange_of(receive)
    return _unless_watched(call, receive) if exchange is None else _unless_abandoned(call, exchange)


async def _unless_watched(call: Awaitable[T], receive: Receive) -> T | None:
    # Watching a connection costs a task, more than a small call itself; so short calls are not watched.
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine always runs in a task
    watch = _Watch(caller, receive)
    timer = asyncio.get_running_loop().call_later(GRACE_S, watch.begin)
    try:
        return await call
    except asyncio.CancelledError:
        if not watch.client_left or caller.cancelling() > 1:  # not ours, or not ours alone
            raise
        return None
    finally:
        timer.cancel()
        if watch.begun:
            await watch.end()


async def _unless_abandoned(call: Awaitable[T], exchange: Exchange) -> T | None:
    exchange.is_abandonable = True
    try:
        return await call
    except asyncio.CancelledError:
        if not exchange.disconnected or exchange.task.uncancel() > 0:  # not the server's, or not the server's alone
            raise
        return None
    finally:
        exchange.is_abandonable = False
