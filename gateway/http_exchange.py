"""Plain requests: their application is called when they are complete, and they are answered with one write.

Clients send the same head again and again, to the byte. So a head that httptools has parsed once is kept with what it
meant; the next request with it needs a look-up and a length instead of a parser. And the application may say once for
a head how such requests are answered without a task. Requests that ask for anything special go the way of uvicorn.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from gateway.asgi import App, Begin, Exchange, Message, Receive, Reply, Scope, Send, send_reply

MAX_KNOWN_HEADS = 512
MAX_KNOWN_HEAD_BYTES = 2 << 10
MAX_BODY_BYTES = 16 << 20
"""Bodies up to here are collected before the application is called; it sees larger ones come, and may refuse them."""

_HEAD_END = b"\r\n\r\n"
_SPECIAL = frozenset((b"transfer-encoding", b"expect", b"upgrade"))
_MAX_DIGITS = len(str(MAX_BODY_BYTES))
_ONE_WRITE_BYTES = 16 << 10  # copying more costs more than a second piece


class Head(NamedTuple):
    """What a head means: the scope without what belongs to the connection, and the length of the body.

    And how a request with it is begun, if it can be without a task.
    """

    scope: dict[str, Any]
    body_bytes: int
    begin: Begin | None = None


class KnownHeads:
    """The plain heads of late, by their bytes. One for all connections of a server.

    Args:
        max_body_bytes: Heads that announce more are not plain: the application refuses them before the body comes.
        plan: Says for the scope of a head how requests with it are begun without a task, or None.
    """

    def __init__(
        self, max_body_bytes: int = MAX_BODY_BYTES, plan: Callable[[Scope], Begin | None] | None = None
    ) -> None:
        self._max_body_bytes = min(max_body_bytes, MAX_BODY_BYTES)
        self._plan = plan
        self._heads: dict[bytes, Head] = {}

    def find(self, data: bytes) -> tuple[Head, int] | None:
        """What the head at the beginning of the data means, and where it ends; None if it is not known."""
        end = data.find(_HEAD_END, 0, MAX_KNOWN_HEAD_BYTES) + len(_HEAD_END)
        head = self._heads.get(data[:end])
        return None if head is None else (head, end)

    def learn(self, data: bytes, head: Head) -> None:
        """Keep what a parser made of the head at the beginning of the data.

        Args:
            data: What was read, from the first byte of a request on.
            head: What the parser made of it.
        """
        end = data.find(_HEAD_END, 0, MAX_KNOWN_HEAD_BYTES) + len(_HEAD_END)
        text = data[:end]
        if not text.startswith(b"%b " % head.scope["method"].encode()):
            return  # empty lines before a request, which the parser passes over
        # Where a parser with another idea of the ends of lines would see another head, it is none of ours.
        if not text.count(b"\n") == text.count(b"\r\n") == len(head.scope["headers"]) + 2:
            return
        if len(self._heads) >= MAX_KNOWN_HEADS:
            self._heads.clear()  # whoever sends ever new heads pays with parsing, not we with memory
        self._heads[text] = head if self._plan is None else head._replace(begin=self._plan(head.scope))

    def plain_body_bytes(self, headers: Iterable[tuple[bytes, bytes]]) -> int | None:
        """The length of the body as the headers tell it; None if they ask for anything special."""
        body_bytes: int | None = None
        for name, value in headers:
            if name == b"content-length":
                if body_bytes is not None or not value.isdigit() or len(value) > _MAX_DIGITS:
                    return None
                body_bytes = int(value)
            elif name in _SPECIAL or (name == b"connection" and value.lower() != b"keep-alive"):
                return None
        body_bytes = body_bytes or 0
        return body_bytes if body_bytes <= self._max_body_bytes else None


class HttpExchange(RequestResponseCycle, Exchange):
    """One plain request and its answer. To uvicorn it is a cycle like others, but much cheaper to make."""

    # What uvicorn sets for each request and what hardly ever changes stands here once.
    access_log = False
    waiting_for_100_continue = False
    more_body = False  # the application is called when all of it is there
    response_started = False
    response_complete = False
    chunked_encoding = None
    expected_content_length = 0
    _received = False

    _told: asyncio.Event | None = None

    def __init__(self, connection: Any, head: Head, on_response: Callable[[], None]) -> None:
        self.transport = connection.transport
        self.flow = connection.flow
        self.default_headers = connection.server_state.default_headers
        self.on_response = on_response
        self.keep_alive = True
        self.pieces = []
        self._head = head
        self._connection = connection

    @override
    def hand_over(self, app: App) -> None:
        connection = self._connection
        if connection is None:
            return  # the client has left while its answer was on the way
        self.withdraw = None
        self.scope = connection.scope_of(self._head)
        self.logger = connection.logger
        self.task = connection.loop.create_task(self._run(app))
        connection.tasks.add(self.task)

    @override
    def finish(self, reply: Reply) -> None:
        if self._connection is None:
            return
        try:
            if self.reply(reply):
                self._close()
            else:
                self.hand_over(partial(_send, reply))
        except Exception as error:  # noqa: BLE001 - logged and answered as that of an application
            self.hand_over(partial(_fail, error))

    def client_left(self) -> None:
        """The connection is lost."""
        self.disconnected = True
        self.message_event.set()
        withdraw = self.withdraw
        if withdraw is not None:
            self._close()
            withdraw()
        elif self.is_abandonable:
            self.task.cancel()

    @property
    @override
    def message_event(self) -> asyncio.Event:  # type: ignore[override]  # made when somebody waits, which is rare
        """Set when there is no more to wait for: the client has left, or has its answer."""
        if self._told is None:
            self._told = asyncio.Event()
        return self._told

    async def _run(self, app: Any) -> None:
        try:
            await app(self.scope, self.receive, self.send)
            if not self.response_complete and not self.disconnected:
                await self.run_asgi(_no_answer)
        except BaseException as error:  # noqa: BLE001 - logged and answered as uvicorn does
            await self.run_asgi(partial(_fail, error))
        finally:
            self._connection.tasks.discard(self.task)
            self._close()

    def _close(self) -> None:
        """Keep nothing, as a connection keeps its last exchange: cycles would only end by the collector."""
        self.pieces = []
        self.on_response = _ignore
        self.withdraw = self._connection = None

    @override
    async def receive(self) -> Message:  # type: ignore[override]
        """ASGI's: the body, and then nothing until the client leaves."""
        if self.is_whole and not self._received:
            self._received = True
            body, self.pieces = b"".join(self.pieces), []
            return {"type": "http.request", "body": body, "more_body": False}
        if self.is_whole and not self.disconnected and not self.response_complete:
            await self.message_event.wait()
        return {"type": "http.disconnect"}

    @override
    def reply(self, reply: Reply) -> bool:
        if self.flow.write_paused or self.response_started:
            return False
        if self.disconnected:
            return True
        self._write(reply)
        self.response_started = self.response_complete = True
        if self._told is not None:
            self._told.set()
        self.on_response()
        return True

    def _write(self, reply: Reply) -> None:
        lines = _lines(reply.status, reply.headers, *self.default_headers)
        close = b"" if self.keep_alive else b"connection: close\r\n"
        head = b"%b%bcontent-length: %d\r\n\r\n" % (lines, close, len(reply.body))
        if len(reply.body) <= _ONE_WRITE_BYTES:
            self.transport.write(head + reply.body)
        else:
            self.transport.write(head)
            self.transport.write(reply.body)
        if not self.keep_alive:
            self.transport.close()


def _ignore() -> None:
    """The response is complete, and nobody cares any more."""


async def _fail(error: BaseException, *_: object) -> None:
    raise error


async def _send(reply: Reply, _scope: Scope, _receive: Receive, send: Send) -> None:
    await send_reply(send, reply)


async def _no_answer(*_: object) -> None:
    """What an application did that came back without an answer."""


@lru_cache(256)  # answers differ in their length, and once a second in their date
def _lines(status: int, headers: tuple[tuple[bytes, bytes], ...], *more: tuple[bytes, bytes]) -> bytes:
    """Status line and headers. Raises RuntimeError, as uvicorn does, for what would not stay one header."""
    if any(HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) for name, value in headers):
        raise RuntimeError("a header of the answer is not valid")
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % header for header in (*more, *headers))
