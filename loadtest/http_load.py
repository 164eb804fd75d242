"""A closed-loop HTTP/1.1 load: each connection sends one fixed request as soon as it has the answer to the last.

A bare asyncio protocol, so that the load costs a fraction of what the server does: it reads status and Content-Length
and nothing else.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from typing_extensions import override

from batching.clock import SECOND_NS, Clock, MonotonicClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked again and again."""

    host: str
    port: int
    path: str
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self) -> bytes:
        """The request as bytes."""
        more = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n{more}\r\n"
        )
        return head.encode() + self.body


@dataclass(slots=True)
class LoadResult:
    """Latencies in nanoseconds of the answers, and how many were not 200 or never came."""

    duration_ns: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    failures: int = 0

    @property
    def requests_per_second(self) -> float:
        """Answers with status 200 per second."""
        return (len(self.latencies_ns) - self.failures) * SECOND_NS / self.duration_ns

    def percentile_ms(self, percent: float) -> float:
        """A latency percentile, by nearest rank."""
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1e6


class _Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, request: bytes, result: LoadResult, clock: Clock, end_ns: int) -> None:
        self._request = request
        self._result = result
        self._clock = clock
        self._end_ns = end_ns
        self._answer = b""
        self._missing_bytes: int | None = None  # of the body; None until the head is complete
        self._sent_ns = 0
        self._complete = False
        self._transport: asyncio.Transport
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._send()

    @override
    def data_received(self, data: bytes) -> None:
        if self._missing_bytes is None:
            self._answer += data
            head, end, body = self._answer.partition(b"\r\n\r\n")
            if not end:
                return
            self._result.failures += not head.startswith(b"HTTP/1.1 200")
            self._missing_bytes = _content_length(head) - len(body)
        else:
            self._missing_bytes -= len(data)
        if self._missing_bytes <= 0:
            self._next()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._result.failures += not self._complete  # the server hung up on us
        self.closed.set_result(None)

    def _send(self) -> None:
        self._answer = b""
        self._missing_bytes = None
        self._sent_ns = self._clock.now_ns()
        self._transport.write(self._request)

    def _next(self) -> None:
        now_ns = self._clock.now_ns()
        self._result.latencies_ns.append(now_ns - self._sent_ns)
        if now_ns < self._end_ns:
            self._send()
        else:
            self._complete = True
            self._transport.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError(f"the answer has no Content-Length: {head[:200]!r}")


async def closed_loop(target: Target, connections: int, duration_s: float) -> LoadResult:
    """Keep `connections` requests in flight for `duration_s` seconds."""
    clock = MonotonicClock()
    result = LoadResult()
    started_ns = clock.now_ns()
    end_ns = started_ns + round(duration_s * SECOND_NS)
    loop = asyncio.get_running_loop()
    request = target.request()
    protocols = []
    for _ in range(connections):
        _, protocol = await loop.create_connection(
            lambda: _Connection(request, result, clock, end_ns), target.host, target.port
        )
        protocols.append(protocol)
    await asyncio.gather(*(protocol.closed for protocol in protocols))
    result.duration_ns = clock.now_ns() - started_ns
    return result
