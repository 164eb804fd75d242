"""Plain requests with known and with new heads: answered as others, in the same order, with nothing left behind."""

import asyncio
import json
from itertools import pairwise

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.asgi import Exchange, Reply, read_body, send_reply, unless_disconnected
from gateway.errors import SlowBodyError
from gateway.http_exchange import MAX_BODY_BYTES, MAX_KNOWN_HEAD_BYTES, MAX_KNOWN_HEADS, Head, KnownHeads
from gateway.http_protocol import MAX_BODY_SWEEPS, MAX_IDLE_SWEEPS, MAX_REFUSALS, MAX_UNREAD_SWEEPS
from gateway.http_server import HttpServer, affordable_connections, bind

POST = b"POST /echo?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
HELLO = POST % 5 + b"hello"
BYE = b"GET /end HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def echo(scope, receive, send):
    """Says what was asked; `/end` and everything else through the functions that the surfaces use."""
    headers = dict(scope["headers"])
    try:
        pieces = await read_body(receive, headers, 1 << 20)
    except SlowBodyError:
        pieces = [b"slow"]
    if pieces is None:
        return
    asked = {
        "method": scope["method"], "path": scope["path"], "query": scope["query_string"].decode(),
        "body": b"".join(pieces).decode(), "host": headers[b"host"].decode(), "version": scope["http_version"],
    }  # fmt: skip
    await send_reply(send, Reply(200, json.dumps(asked).encode(), ((b"content-type", b"application/json"),)))


async def run_until_stopped(app, **limits):
    server = HttpServer(app, bind("127.0.0.1", 0, "--http-port"), **limits)
    serving = asyncio.ensure_future(server.run_until_stopped())
    await server.listening.wait()
    return server, serving


@pytest.fixture
async def serve():
    running = []

    async def start(app, **limits):
        running.append(await run_until_stopped(app, **limits))
        return running[-1][0]

    yield start
    for server, serving in running:
        server.stop()
        server.force()
        await serving


async def connect(server):
    return await asyncio.open_connection("127.0.0.1", server.port)


async def answer(reader):
    """Head without its date, and body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    head = [line for line in lines if not line.startswith(b"date:")]
    length = next((int(line.split()[1]) for line in lines if line.startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - uvicorn has no events for it
            await asyncio.sleep(0)


async def connections(server, count):
    await until(lambda: len(server.server_state.connections) == count)


async def no_more_connections(port):
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return
            writer.close()
            await asyncio.sleep(0.01)


def sweep(server, times):
    for _ in range(times):
        for connection in list(server.server_state.connections):
            connection.sweep()


async def test_a_request_is_answered_the_same_when_its_head_is_known(serve):
    reader, writer = await connect(await serve(echo))

    writer.write(HELLO)
    first = await answer(reader)
    writer.write(POST % 5 + b"world")
    second = await answer(reader)

    assert json.loads(first[1]) == {
        "method": "POST", "path": "/echo", "query": "a=1", "body": "hello", "host": "x", "version": "1.1",
    }  # fmt: skip
    assert second == (first[0], first[1].replace(b"hello", b"world"))
    writer.close()


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
OFFERED = HELLO.replace(b"Host: x\r\n", b"Host: x\r\n" + UPGRADE)


@pytest.mark.parametrize("cut", [len(OFFERED), OFFERED.index(b"hello"), OFFERED.index(b"hello") + 2, 30])
async def test_an_offer_of_another_protocol_is_declined_and_the_request_answered(serve, cut):
    reader, writer = await connect(await serve(echo))

    for _ in range(2):
        writer.write(OFFERED[:cut])
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(OFFERED[cut:])
        _, body = await answer(reader)

        assert json.loads(body)["body"] == "hello"
    writer.write(BYE)
    assert json.loads((await answer(reader))[1])["path"] == "/end"
    writer.close()


async def test_what_follows_a_declined_offer_is_the_next_request(serve):
    reader, writer = await connect(await serve(echo))
    get = b"GET /first HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n"

    writer.write(get + HELLO + BYE)
    bodies = [json.loads((await answer(reader))[1]) for _ in range(3)]

    assert [(body["path"], body["body"]) for body in bodies] == [("/first", ""), ("/echo", "hello"), ("/end", "")]
    writer.close()


GARBAGE = b"\x16\x03\x01 nonsense\r\n\r\n"
OFFER = b"GET /offer HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n"
CHUNKED = b"POST /pieces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("behind", [GARBAGE, OFFER, CHUNKED + b"zz\r\n"], ids=["garbage", "offer", "broken chunk"])
@pytest.mark.parametrize("owed", [1, 3])
async def test_a_refusal_comes_after_the_answers_that_are_owed(serve, owed, behind):
    go_on = asyncio.Event()

    async def slow(scope, receive, send):
        await go_on.wait()
        await echo(scope, receive, send)

    server = await serve(slow)
    reader, writer = await connect(server)
    writer.write(HELLO * owed + behind)
    await until(lambda: server.server_state.tasks)
    go_on.set()
    answers = [await answer(reader) for _ in range(owed + 1)]

    assert [head[0] for head, _ in answers] == [b"HTTP/1.1 200 OK"] * owed + [b"HTTP/1.1 400 Bad Request"]
    assert [json.loads(body)["body"] for _, body in answers[:owed]] == ["hello"] * owed
    assert await reader.read() == b""
    writer.close()


async def test_an_offer_with_a_body_in_pieces_is_refused(serve):
    reader, writer = await connect(await serve(echo))
    head = b"POST / HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n"

    writer.write(head + b"1\r\nx\r\n0\r\n\r\n")
    refused, body = await answer(reader)

    assert refused[0] == b"HTTP/1.1 400 Bad Request"
    assert "without Upgrade" in json.loads(body)["error"]
    writer.close()


async def test_empty_lines_before_a_request_are_not_taken_for_a_head_later(serve):
    server = await serve(echo)
    for path in (b"/first", b"/second"):
        reader, writer = await connect(server)

        writer.write(b"\r\n\r\nGET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path + BYE)
        bodies = [json.loads((await answer(reader))[1]) for _ in range(2)]

        assert [body["path"] for body in bodies] == [path.decode(), "/end"]
        writer.close()


async def test_what_is_no_http_is_refused_in_json(serve):
    reader, writer = await connect(await serve(echo))

    writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
    refused, body = await answer(reader)

    assert refused[:2] == [b"HTTP/1.1 400 Bad Request", b"content-type: application/json"]
    assert json.loads(body) == {"error": "Invalid HTTP request received."}
    writer.close()


def _is_direct(send):
    return isinstance(getattr(send, "__self__", None), Exchange)


@pytest.mark.parametrize(
    ("request_bytes", "is_plain"),
    [
        (HELLO, True),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nhost: x\r\nconnection: Keep-Alive\r\ncontent-length: 1\r\n\r\nx", True),
        (b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, upgrade\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", False),
        (POST % (MAX_BODY_BYTES + 1), False),
        (b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nhost: x\r\n\r\n", False),
    ],
)
async def test_only_what_asks_for_nothing_special_goes_the_short_way(serve, request_bytes, is_plain):
    ways = []

    async def app(scope, receive, send):
        ways.append(_is_direct(send))
        await send_reply(send, Reply(200))

    server = await serve(app)
    for _ in range(2):  # also when the head might be known
        reader, writer = await connect(server)
        writer.write(request_bytes)
        await answer(reader)
        writer.close()

    assert ways == [is_plain, is_plain]


async def test_a_request_in_two_pieces_is_whole_wherever_it_is_cut(serve):
    server = await serve(echo)
    reader, writer = await connect(server)
    writer.write(HELLO)
    whole = await answer(reader)
    (connection,) = server.server_state.connections

    for cut in range(1, len(HELLO)):
        connection.data_received(HELLO[:cut])
        connection.data_received(HELLO[cut:])

        assert await answer(reader) == whole
    writer.close()


PLAIN = (
    HELLO,
    POST % 0,
    POST % 70_000 + b"x" * 70_000,
    b"GET /models HTTP/1.1\r\nHost: y\r\nConnection: Keep-Alive\r\n\r\n",
)
SPECIAL = (
    b"POST /long HTTP/1.1\r\nhost: x\r\nx-long: %b\r\ncontent-length: 3\r\n\r\nabc" % (b"x" * MAX_KNOWN_HEAD_BYTES),
    b"GET /a%20b?c=%20 HTTP/1.1\r\nhost: x\r\nx-long: %b\r\n\r\n".replace(b"%b", b"x" * MAX_KNOWN_HEAD_BYTES),
    b"GET http://elsewhere/a HTTP/1.1\r\nhost: x\r\n\r\n",
    b"HEAD /models HTTP/1.1\r\nhost: y\r\n\r\n",
    b"POST /c HTTP/1.1\r\nhost: y\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /e HTTP/1.1\r\nhost: y\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nab",
    b"PUT /p HTTP/1.1\r\nhost: y\r\ncontent-length: 2\r\n\r\nab",
)


async def uvicorn_server(app):
    config = uvicorn.Config(app, interface="asgi3", lifespan="off", log_config=None, access_log=False, port=0)
    config.server_header = False
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started)
    return server, serving


async def spoken(port, pieces):
    """Everything that comes back for these pieces, without dates."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    said = await reader.read()
    writer.close()
    return [line for line in said.split(b"\r\n") if not line.startswith(b"date:")]


@pytest.fixture(scope="module")
def both():
    """A loop, the port of our server, and that of a bare uvicorn."""

    async def start():
        return await run_until_stopped(echo), await uvicorn_server(echo)

    async def stop():
        ours.stop()
        bare.should_exit = True
        await asyncio.gather(serving, bare_serving)

    with asyncio.Runner() as runner:
        (ours, serving), (bare, bare_serving) = runner.run(start())
        bare_port = bare.servers[0].sockets[0].getsockname()[1]
        for request in PLAIN:  # so that their heads are known
            runner.run(spoken(ours.port, [request, BYE]))
        yield runner, ours.port, bare_port
        runner.run(stop())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(PLAIN + SPECIAL), min_size=1, max_size=5),
    st.lists(st.integers(0, 1000), max_size=5),
)
def test_whatever_comes_in_whatever_pieces_is_answered_as_by_uvicorn(both, requests, cuts):
    runner, our_port, bare_port = both
    data = b"".join(requests) + BYE
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(edges)]

    ours = runner.run(spoken(our_port, pieces))
    bare = runner.run(spoken(bare_port, pieces))

    assert ours == bare


HEAD = Head({"method": "POST", "headers": ((b"host", b"x"), (b"content-length", b"0"))}, 0)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", True),
        (b"POST / HTTP/1.1\nhost: x\ncontent-length: 0\r\n\r\n", False),
        (b"\r\nPOST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nhost: x\r\n y\r\ncontent-length: 0\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nhost: %b\r\ncontent-length: 0\r\n\r\n" % (b"x" * MAX_KNOWN_HEAD_BYTES), False),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-le", False),
    ],
)
def test_a_head_is_kept_only_if_all_parsers_see_the_same_end_of_it(text, is_kept):
    known = KnownHeads()

    known.learn(text, HEAD)

    assert (known.find(text) is not None) is is_kept


@pytest.mark.parametrize(("length", "body_bytes"), [(b"100", 100), (b"101", None), (b"+1", None), (b"1" * 99, None)])
def test_a_body_that_the_application_would_refuse_is_not_plain(length, body_bytes):
    assert KnownHeads(max_body_bytes=100).plain_body_bytes([(b"content-length", length)]) == body_bytes


def test_two_lengths_are_not_plain():
    assert KnownHeads().plain_body_bytes([(b"content-length", b"3"), (b"content-length", b"3")]) is None


def test_ever_new_heads_do_not_fill_the_memory():
    known = KnownHeads()
    heads = [
        b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n" % number for number in range(MAX_KNOWN_HEADS + 10)
    ]

    for head in heads:
        known.learn(head, HEAD)

    assert 0 < sum(known.find(head) is not None for head in heads) <= MAX_KNOWN_HEADS


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_body_that_does_not_go_on_is_given_up(serve, is_known):
    server = await serve(echo)
    reader, writer = await connect(server)
    writer.write(HELLO if is_known else BYE.replace(b"connection: close\r\n", b""))
    await answer(reader)
    (connection,) = server.server_state.connections

    connection.data_received(HELLO[:-2])
    sweep(server, MAX_BODY_SWEEPS - 1)
    connection.data_received(HELLO[-2:-1])
    sweep(server, MAX_BODY_SWEEPS)
    head, body = await answer(reader)

    assert json.loads(body)["body"] == "slow"
    assert b"connection: close" in head
    assert await reader.read() == b""
    writer.close()


async def test_a_call_ends_when_its_client_leaves(serve):
    began, ended = asyncio.Event(), asyncio.Event()

    async def call():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    outcomes = []

    async def app(scope, receive, send):
        if await read_body(receive, {}, 100) == [b"hello"]:
            outcomes.append(await unless_disconnected(call(), receive))
        await send_reply(send, Reply(200))

    server = await serve(app)
    reader, writer = await connect(server)
    writer.write(POST % 5 + b"first")
    await answer(reader)

    writer.write(HELLO)
    await began.wait()
    writer.transport.abort()
    async with asyncio.timeout(5):
        await ended.wait()
    await connections(server, 0)

    assert outcomes == [None]
    assert not server.server_state.tasks


async def test_a_call_that_is_cancelled_by_others_stays_cancelled(serve):
    async def app(scope, receive, send):
        if await read_body(receive, {}, 100) == [b"hello"]:
            asyncio.current_task().cancel()
            await unless_disconnected(asyncio.sleep(10), receive)
        await send_reply(send, Reply(200))

    reader, writer = await connect(await serve(app))
    writer.write(POST % 5 + b"first")
    await answer(reader)

    writer.write(HELLO)
    head, _ = await answer(reader)

    assert head[0] == b"HTTP/1.1 500 Internal Server Error"
    writer.close()


async def test_a_defect_is_answered_and_others_go_on(serve):
    async def app(scope, receive, send):
        if await read_body(receive, {}, 100) == [b"hello"]:
            raise ValueError("a defect")
        await send_reply(send, Reply(200))

    server = await serve(app)
    reader, writer = await connect(server)
    writer.write(POST % 5 + b"first")
    await answer(reader)

    writer.write(HELLO)
    head, body = await answer(reader)
    others_reader, others = await connect(server)
    others.write(POST % 5 + b"third")

    assert (head[0], body) == (b"HTTP/1.1 500 Internal Server Error", b"Internal Server Error")
    assert (await answer(others_reader))[0][0] == b"HTTP/1.1 200 OK"
    writer.close()
    others.close()


async def test_an_application_that_speaks_plain_asgi_is_served_too(serve):
    async def app(scope, receive, send):
        message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"], "more_body": True})
        await send({"type": "http.response.body", "body": b"!"})
        assert (await receive())["type"] == "http.disconnect"

    reader, writer = await connect(await serve(app))
    writer.write(HELLO)
    first = await reader.readuntil(b"0\r\n\r\n")
    writer.write(HELLO)
    second = await reader.readuntil(b"0\r\n\r\n")

    assert b"5\r\nhello\r\n1\r\n!\r\n" in first
    assert first.partition(b"\r\n\r\n")[2] == second.partition(b"\r\n\r\n")[2]
    writer.close()


async def test_a_header_that_would_be_two_is_never_sent(serve):
    async def app(scope, receive, send):
        is_good = await read_body(receive, {}, 100) == [b"first"]
        await send_reply(send, Reply(200, b"", ((b"x", b"y" if is_good else b"y\r\nz: 1"),)))

    reader, writer = await connect(await serve(app))
    writer.write(POST % 5 + b"first")
    await answer(reader)

    writer.write(HELLO)
    head, _ = await answer(reader)

    assert head[0] == b"HTTP/1.1 500 Internal Server Error"
    writer.close()


async def test_a_running_request_is_answered_before_the_server_ends():
    began, go = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        if await read_body(receive, {}, 100) == [b"hello"]:
            began.set()
            await go.wait()
        await send_reply(send, Reply(200))

    server, serving = await run_until_stopped(app)
    port = server.port
    reader, writer = await connect(server)
    writer.write(POST % 5 + b"first")
    await answer(reader)

    writer.write(HELLO)
    await began.wait()
    server.stop()
    await no_more_connections(port)
    go.set()
    head, _ = await answer(reader)
    await serving

    assert (head[0], b"connection: close" in head) == (b"HTTP/1.1 200 OK", True)
    writer.close()


async def test_an_idle_connection_is_closed_after_a_while_and_a_busy_one_is_not(serve):
    began, go = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        if await read_body(receive, {}, 100) == [b"hello"]:
            began.set()
            await go.wait()
        await send_reply(send, Reply(200))

    server = await serve(app)
    idle_reader, idle = await connect(server)
    busy_reader, busy = await connect(server)
    for reader, writer in ((idle_reader, idle), (busy_reader, busy)):
        writer.write(POST % 5 + b"first")
        await answer(reader)
    busy.write(HELLO)
    await began.wait()

    sweep(server, MAX_IDLE_SWEEPS)
    go.set()

    assert await idle_reader.read() == b""
    assert (await answer(busy_reader))[0][0] == b"HTTP/1.1 200 OK"
    idle.close()
    busy.close()


async def test_an_idle_connection_holds_no_body(serve):
    server = await serve(echo)
    reader, writer = await connect(server)
    for _ in range(2):
        writer.write(PLAIN[2])
        await answer(reader)

    (connection,) = server.server_state.connections

    assert connection.cycle.pieces == []
    assert connection.cycle.task.done()
    writer.close()


@pytest.mark.parametrize("is_read_now_and_then", [False, True])
async def test_a_client_that_takes_nothing_of_its_answer_is_given_up(serve, is_read_now_and_then):
    async def app(scope, receive, send):
        await send_reply(send, Reply(200, bytes(32 << 20)))

    server = await serve(app)
    reader, writer = await connect(server)
    writer.write(HELLO)  # the reader stops at its own limit
    await until(lambda: any(each.flow.write_paused for each in server.server_state.connections))
    (connection,) = server.server_state.connections
    unread_bytes = connection.transport.get_write_buffer_size

    for _ in range(2):
        sweep(server, MAX_UNREAD_SWEEPS)
        if is_read_now_and_then:
            before_bytes = unread_bytes()
            while unread_bytes() >= before_bytes:
                await reader.read(1 << 20)

    assert connection.transport.is_closing() is not is_read_now_and_then
    writer.transport.abort()


async def test_connections_beyond_the_limit_are_refused_and_those_within_are_served(serve):
    server = await serve(echo, max_connections=2)
    kept = [await connect(server) for _ in range(2)]
    await connections(server, 2)

    reader, writer = await connect(server)
    writer.write(HELLO)
    head, body = await answer(reader)

    assert head[0] == b"HTTP/1.1 503 Service Unavailable"
    assert json.loads(body) == {"error": "too many connections: at most 2"}
    for kept_reader, kept_writer in kept:
        kept_writer.write(HELLO)
        assert (await answer(kept_reader))[0][0] == b"HTTP/1.1 200 OK"
        kept_writer.close()
    writer.close()
    await connections(server, 0)
    reader, writer = await connect(server)
    writer.write(HELLO)
    assert (await answer(reader))[0][0] == b"HTTP/1.1 200 OK"
    writer.close()


async def test_a_flood_of_connections_is_dropped_without_a_word(serve):
    server = await serve(echo, max_connections=1)

    flood = [await connect(server) for _ in range(MAX_REFUSALS + 3)]
    last_reader, _ = flood[-1]
    try:
        said = await last_reader.read()
    except ConnectionResetError:
        said = b""

    assert said == b""
    for _, writer in flood:
        writer.close()


def test_there_is_always_a_file_left_to_refuse_a_connection_with():
    assert affordable_connections(1) == 1
    assert affordable_connections(1 << 40) < 1 << 40
