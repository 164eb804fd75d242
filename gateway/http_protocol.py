"""uvicorn's HTTP protocol with the limits that it does not have, and a short way for plain requests."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.asgi import BODY_PAUSE_S, Begin
from gateway.http_exchange import Head, HttpExchange, KnownHeads

SWEEP_S = 1
"""How often the server calls `LimitedProtocol.sweep`; times are counted in sweeps, as a timer a request is dear."""

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together; more is answered 431. Up to one read beyond that is held."""

MAX_HEAD_SWEEPS = 20 // SWEEP_S
"""A connection whose head is incomplete at so many sweeps in a row is closed."""

MAX_IDLE_SWEEPS = 75 // SWEEP_S
"""A connection without a request is closed. Longer than proxies and clients keep theirs, so that they close first."""

MAX_BODY_SWEEPS = int(BODY_PAUSE_S) // SWEEP_S

MAX_UNREAD_SWEEPS = 60 // SWEEP_S
"""A client that takes nothing of its answer for so long is given up, as the answer takes memory."""

REFUSAL_S = 1.0
"""Time for a client to read that it was refused."""

MAX_REFUSALS = 256
"""Connections beyond the limit that are told so; the others are dropped."""

_METHODS = frozenset((b"GET", b"POST"))
_UPGRADE = frozenset((b"connection", b"upgrade", b"http2-settings"))  # what offers another protocol
_MAX_PIECES = 1024  # of a body; small ones are joined now and then, as each takes more memory than its bytes

_REFUSAL = (
    b'HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n{"error":"%b"}'
)


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        known: The heads that need no parser, shared by all connections of a server.
        max_connections: Open ones; what comes beyond is answered 503.
    """

    def __init__(self, *arguments: Any, known: KnownHeads, max_connections: int, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._known = known
        self._max_connections = max_connections
        self._in_head = True  # a fresh connection owes its first request
        self._head_bytes = 0
        self._sweeps = 0  # since something happened; in a head, since it began
        self._refused = False  # nothing more is read
        self._refusal = b""  # to be told when what is owed before it is answered
        self._between = True  # the parser has seen the end of a request and nothing of the next
        self._fresh: bytes | None = None  # what begins with a head that may be worth knowing
        self._exchange: HttpExchange | None = None  # the last plain request
        self._missing_bytes = 0  # of its body, if its head was known
        self._plan: Begin | None = None  # likewise
        self._collects = False  # the parser gives its body
        self._declines = False  # an upgrade, for which the parser has ended
        self._unread_bytes = 0  # of answers, at the last sweep

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        excess = len(self.connections) - self._max_connections
        if excess > MAX_REFUSALS:
            transport.abort()
        elif excess > 0:
            self._refuse(b"503 Service Unavailable", b"too many connections: at most %d" % self._max_connections)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        exchange = self._exchange
        if exchange is not None and not exchange.response_complete:
            exchange.client_left()

    @override
    def data_received(self, data: bytes) -> None:
        if self._missing_bytes:
            self._take(data)
        elif self._refused:
            return  # read and forgotten: closing at once would reset the connection before the answer is read
        elif not self._between or not self._is_known(data):
            self._parse(data)

    # Requests with a known head

    def _is_known(self, data: bytes) -> bool:
        """Whether the data begins with a head that needs no parser; if so, it is dealt with."""
        if self._is_answering():
            return False  # uvicorn keeps the order of requests that do not wait for answers
        found = self._known.find(data)
        if found is None or self.transport.is_closing():
            return False
        head, end = found
        self._in_head = False
        self._begin(head)
        self._plan = head.begin
        self._missing_bytes = head.body_bytes
        self._take(data[end:])
        return True

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn starts with None
        return cycle is not None and not cycle.response_complete

    def _begin(self, head: Head) -> None:
        self._sweeps = 0
        self.cycle = self._exchange = HttpExchange(self, head, self.on_response_complete)

    def scope_of(self, head: Head) -> dict[str, Any]:
        """ASGI's, as uvicorn makes it."""
        scope = head.scope.copy()
        scope["client"], scope["server"], scope["scheme"] = self.client, self.server, self.scheme
        scope["state"] = self.app_state.copy()
        return scope

    def _take(self, data: bytes) -> None:
        """What was read behind a known head, or is missing there."""
        rest = b""
        if len(data) > self._missing_bytes:
            data, rest = data[: self._missing_bytes], data[self._missing_bytes :]
        self._missing_bytes -= len(data)
        if data:
            self._add(data)
        if not self._missing_bytes:
            # With a next request: a task, as that of one which ends at once would be a recursion.
            self._start(None if rest else self._plan)
        if rest:
            self.data_received(rest)

    def _add(self, piece: bytes) -> None:
        self._sweeps = 0
        assert self._exchange is not None  # noqa: S101 - it misses the piece
        pieces = self._exchange.pieces
        pieces.append(piece)
        if len(pieces) > _MAX_PIECES:
            pieces[:] = [b"".join(pieces)]

    def _start(self, begin: Begin | None = None) -> None:
        exchange = self._exchange
        assert exchange is not None  # noqa: S101 - it is complete
        if begin is None or not begin(exchange):
            exchange.hand_over(self.app)

    # Requests whose head is parsed

    def _parse(self, data: bytes) -> None:
        self._fresh = data if self._between else None
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._go_on(data[upgrade.args[0] :])
        except HttpParserError:
            self._refuse(b"400 Bad Request", b"Invalid HTTP request received.")
        self._fresh = None
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(
                    b"431 Request Header Fields Too Large",
                    b"request headers are too large: expected at most %d bytes" % MAX_HEAD_BYTES,
                )

    def _go_on(self, data: bytes) -> None:
        """What follows a head that offers another protocol is HTTP/1.1 as before."""
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
        self._fresh = None
        if self._declines:
            self._declines = False
            self._take(data)

    @override
    def on_message_begin(self) -> None:
        self._in_head = True
        self._between = False
        self._head_bytes = self._sweeps = 0
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            self._decline()
            return
        head = None if self._is_answering() else self._plain_head(self.headers)
        if head is None:
            super().on_headers_complete()
        else:
            if self._fresh is not None:
                self._known.learn(self._fresh, head)
            self._begin(head)
            self._collects = True
        self._fresh = None

    def _decline(self) -> None:
        """The client offers another protocol (curl and Java do, HTTP/2), and is answered in this one.

        The parser takes no body behind such a head, so only what needs none of it is served.
        """
        offered = [(name, value) for name, value in self.headers if name not in _UPGRADE]
        head = None if self._is_answering() else self._plain_head(offered)
        if head is None:
            self._refuse(b"400 Bad Request", b"this request cannot be answered: send it without Upgrade")
            return
        self._begin(head)
        self._plan, self._missing_bytes, self._declines = None, head.body_bytes, True

    def _plain_head(self, telling: Iterable[tuple[bytes, bytes]]) -> Head | None:
        """What the parser has read, if these of its headers ask for nothing special."""
        parser, method = self.parser, self.parser.get_method()
        if method not in _METHODS or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        body_bytes = self._known.plain_body_bytes(telling)
        if body_bytes is None:
            return None
        url = parse_url(self.url)  # from here on as uvicorn
        path = url.path.decode("ascii")
        target = {
            "method": method.decode("ascii"),
            "path": self.root_path + (unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + url.path,
            "query_string": url.query or b"",
        }
        return Head({**self.scope, **target, "headers": tuple(self.headers)}, body_bytes)

    @override
    def on_body(self, body: bytes) -> None:
        if self._collects:
            self._add(body)
        else:
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._between = True
        if self._declines or self._refused:
            return
        if self._collects:
            self._collects = False
            self._start()
        else:
            super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        self._sweeps = 0
        if self.pipeline:
            super().on_response_complete()
        elif self._refusal:
            self._tell_refusal()
        elif not self.transport.is_closing():  # as there, but for a timer that closes what is idle: `sweep` does
            self.flow.resume_reading()

    def sweep(self) -> None:
        """Called every `SWEEP_S`: end what the client does not go on with."""
        self._sweeps += 1
        if self._in_head:
            if self._sweeps >= MAX_HEAD_SWEEPS:
                self.transport.close()
        elif self._missing_bytes or self._collects:
            if self._sweeps >= MAX_BODY_SWEEPS:
                self._give_up_body()
        elif self.flow.write_paused:
            self._look_at_unread()
        elif self._sweeps >= MAX_IDLE_SWEEPS and not self._is_answering():
            self.transport.close()

    def _look_at_unread(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes != self._unread_bytes:
            self._unread_bytes, self._sweeps = unread_bytes, 0
        elif self._sweeps >= MAX_UNREAD_SWEEPS:
            self.transport.abort()

    def _give_up_body(self) -> None:
        assert self._exchange is not None  # noqa: S101 - it misses bytes
        self._missing_bytes, self._collects = 0, False
        self._refused = True
        self._exchange.is_whole = self._exchange.keep_alive = False
        self._start()

    def _refuse(self, status: bytes, text: bytes) -> None:
        self._refusal = _REFUSAL % (status, len(text) + len(b'{"error":""}'), text)
        self._refused, self._in_head = True, False
        if not self._owes_before():
            self._tell_refusal()

    def _owes_before(self) -> bool:
        """Whether requests before the one that is refused are still being answered."""
        if not self._is_answering():
            return False
        if not self.cycle.more_body:
            return True  # the last request is complete, so it is a later one that is refused
        if not self.pipeline:
            return False
        self.pipeline.popleft()  # it is the last one, which waits there with half a body
        return True

    def _tell_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._refusal = b""
        self.loop.call_later(REFUSAL_S, self.transport.close)
