"""Bodies that do not come, and heads that do not end."""

import asyncio
import json
import subprocess
import sys

import pytest

from gateway.asgi import read_body
from gateway.errors import SlowBodyError
from gateway.http_protocol import MAX_HEAD_BYTES, MAX_HEAD_SWEEPS, LimitedProtocol
from gateway.http_server import HttpServer, bind
from tests.batching.live import in_virtual_time


def test_a_body_that_stops_coming_is_given_up():
    async def scenario(loop):
        messages = [{"type": "http.request", "body": b"abc", "more_body": True}]

        async def receive():
            return messages.pop() if messages else await asyncio.Event().wait()

        with pytest.raises(SlowBodyError, match="found 3 bytes, then nothing for 30 s"):
            await read_body(receive, {}, 100)
        return loop.time()

    assert in_virtual_time(scenario) == pytest.approx(30)


async def answer_ok(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def server():
    server = HttpServer(answer_ok, bind("127.0.0.1", 0, "--http-port"))
    serving = asyncio.ensure_future(server.run_until_stopped())
    await server.listening.wait()
    yield server
    server.stop()
    await serving


async def connect(server):
    return await asyncio.open_connection("127.0.0.1", server.port)


@pytest.mark.parametrize("head", [b"x-one: " + b"a" * 2 * MAX_HEAD_BYTES, b"x: y\r\n" * MAX_HEAD_BYTES])
async def test_a_head_that_is_too_large_is_refused_before_it_ends(server, head):
    reader, writer = await connect(server)

    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n" + head)
    answer = await reader.readuntil(b"}")

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert "headers are too large" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    writer.close()


async def test_a_large_body_behind_a_small_head_is_fine(server):
    reader, writer = await connect(server)

    body = bytes(4 * MAX_HEAD_BYTES)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_connection_whose_head_does_not_end_is_closed_and_an_idle_one_is_not(server):
    idle_reader, idle = await connect(server)
    idle.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await idle_reader.readuntil(b"ok")
    slow_reader, slow = await connect(server)
    slow.write(b"GET / HTT")
    await _connections(server, 2)

    for _ in range(MAX_HEAD_SWEEPS):
        for connection in list(server.server_state.connections):
            assert isinstance(connection, LimitedProtocol)
            connection.sweep()

    assert await _rest(slow_reader) == b""
    idle.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert await idle_reader.readuntil(b"ok")
    idle.close()
    slow.close()


async def _rest(reader):
    """What still comes; a reset connection has ended, too."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def _connections(server, count):
    async with asyncio.timeout(5):
        while len(server.server_state.connections) < count:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0)


async def test_websockets_are_no_defect(server):
    reader, writer = await connect(server)

    writer.write(
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n"
    )

    assert not (await reader.readline()).startswith(b"HTTP/1.1 5")
    writer.close()


def test_the_server_may_open_as_many_connections_as_the_system_allows():
    program = """
import resource
from gateway.http_server import raise_file_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
"""

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "True"
