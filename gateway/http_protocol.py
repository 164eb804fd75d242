"""uvicorn's HTTP protocol with limits on the head of a request, which uvicorn does not have."""

from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together; more is answered 431. Up to one read beyond that is held."""

MAX_HEAD_SWEEPS = 2
"""A connection whose head is incomplete at so many sweeps in a row is closed."""

REFUSAL_S = 1.0
"""Time for a client to read that it was refused."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._in_head = True  # a fresh connection owes its first request
        self._head_bytes = 0
        self._sweeps = 0
        self._refused = False

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # read and forgotten: closing at once would reset the connection before the answer is read
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse()

    @override
    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = self._sweeps = 0
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def sweep(self) -> None:
        """Called now and then: close the connection if its head does not come to an end."""
        if self._in_head:
            self._sweeps += 1
            if self._sweeps >= MAX_HEAD_SWEEPS:
                self.transport.close()

    def _refuse(self) -> None:
        body = b'{"error":"request headers are too large: expected at most %d bytes"}' % MAX_HEAD_BYTES
        self.transport.write(_TOO_LARGE % (len(body), body))
        self._refused = True
        self.loop.call_later(REFUSAL_S, self.transport.close)
