"""Plain inference on a real connection: without a task, and with the answers that it has with one."""

import asyncio
import json

import pytest

from gateway.app import Gateway
from gateway.http_server import HttpServer, bind
from gateway.v2.app import V2Surface
from gateway.v2.limits import V2Limits
from tests.gateway.serving import POISON, Gate, echo, serving

HEAD = "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\n{more}content-length: {length}\r\n\r\n"


def request(*values: float, model: str = "echo", more: str = "", **members: object) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values), 2], "data": [v for v in values for _ in "ab"]}
    return post(json.dumps({"inputs": [tensor], **members}), model, more)


def post(body: str, model: str = "echo", more: str = "") -> bytes:
    return (HEAD.format(model=model, more=more, length=len(body)) + body).encode()


class Front:
    """A server with connections to it."""

    def __init__(self, service, **limits: int) -> None:
        surface = V2Surface(service, V2Limits(**limits), offload=asyncio.to_thread, server_version="1")
        self.gateway = Gateway(surface, surface)
        self.server = HttpServer(self.gateway, bind("127.0.0.1", 0, "--http-port"), plan=self.gateway.plan)

    async def __aenter__(self):
        self._serving = asyncio.ensure_future(self.server.run_until_stopped())
        await self.server.listening.wait()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.server.stop()
        self.server.force()
        await self._serving

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    @property
    def tasks(self) -> int:
        return len(self.server.server_state.tasks)


async def answer(reader) -> tuple[list[bytes], bytes]:
    """Head without its date, and body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    length = next(int(line.split()[1]) for line in lines if line.startswith(b"content-length:"))
    return [line for line in lines if not line.startswith(b"date:")], await reader.readexactly(length)


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - uvicorn has no events for it
            await asyncio.sleep(0)


GZIP = "accept-encoding: gzip\r\n"
REQUESTS = {
    "plain": request(1, 2),
    "with an id, priority and outputs": request(1, id="7", parameters={"priority": 1}, outputs=[{"name": "y"}]),
    "binary output": request(3, outputs=[{"name": "y", "parameters": {"binary_data": True}}]),
    "packed answer": request(1, more=GZIP),
    "identity wanted": request(1, more="accept-encoding: identity\r\n"),
    "no JSON": post("{"),
    "wrong shape": post('{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}],"id":"9"}'),
    "unknown model": request(1, model="nobody"),
    "unknown version": request(1, model="echo/versions/9"),
    "a version": request(1, model="echo/versions/1"),
    "a label": request(1, model="echo/versions/best"),
    "a batch that fails": request(POISON, id="7"),
    "more than a batch": request(*range(10)),
    "too much": request(*range(400)),
    "much to read": request(*range(60)),
    "bad header length": request(1, more="inference-header-content-length: 99999\r\n"),
    "raw": post("12345678", more="inference-header-content-length: 0\r\n"),
    "empty": post(""),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_request_is_answered_the_same_when_its_head_is_known(what: str) -> None:
    async with serving(echo()) as service, Front(service, max_body_bytes=4000, inline_bytes=700) as front:
        reader, writer = await front.connect()
        answers = []
        for _ in range(3):
            writer.write(REQUESTS[what])
            answers.append(await answer(reader))
            if writer.is_closing() or b"connection: close" in answers[-1][0]:
                reader, writer = await front.connect()
        writer.close()

    assert answers[1:] == [answers[0]] * 2


async def test_a_plain_request_has_no_task_and_others_have() -> None:
    gate = Gate()
    async with serving(echo(), gate=gate) as service, Front(service) as front:
        pairs = []
        for count, sent in enumerate((request(1), request(2), request(3, more=GZIP)), start=1):
            pairs.append(await front.connect())
            pairs[-1][1].write(sent)
            await until(lambda count=count: service.statistics()[0].admitted_requests == count)
            if count == 1:
                learning = front.tasks
        waiting = front.tasks
        gate.open()
        statuses = [(await answer(reader))[0][0] for reader, _ in pairs]
        for _, writer in pairs:
            writer.close()

    assert learning == 1  # the parser's
    assert waiting == 2  # and the packed answer's
    assert statuses == [b"HTTP/1.1 200 OK"] * 3


async def test_a_client_that_leaves_is_withdrawn_and_its_mates_are_answered() -> None:
    gate = Gate()
    async with serving(echo(), gate=gate) as service, Front(service) as front:
        pairs = [await front.connect() for _ in range(4)]
        for count, (_, writer) in enumerate(pairs, start=1):
            writer.write(request(count))
            await until(lambda count=count: service.statistics()[0].admitted_requests == count)
        tasks = front.tasks
        pairs[2][1].transport.abort()
        await until(lambda: service.statistics()[0].withdrawn_requests == 1)
        gate.open()
        bodies = [json.loads((await answer(pairs[place][0]))[1]) for place in (0, 1, 3)]
        (entry,) = service.statistics()
        for _, writer in pairs:
            writer.close()

    assert [body["outputs"][0]["data"] for body in bodies] == [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    assert (entry.failures["CANCELED"], entry.inference_count) == (1, 3)
    assert tasks == 1  # of the first, whose head was new


async def test_a_graceful_end_waits_for_a_request_without_a_task() -> None:
    gate = Gate()
    async with serving(echo(), gate=gate) as service, Front(service) as front:
        reader, writer = await front.connect()
        gate_opener = asyncio.ensure_future(asyncio.to_thread(gate.entered.acquire))
        other_reader, other = await front.connect()
        other.write(request(1))
        await gate_opener
        writer.write(request(2))
        await until(lambda: service.statistics()[0].admitted_requests == 2)
        tasks = front.tasks
        front.server.stop()
        gate.open()
        answers = [await answer(other_reader), await answer(reader)]
        ends = [await other_reader.read(), await reader.read()]
        writer.close()
        other.close()

    assert [head[0] for head, _ in answers] == [b"HTTP/1.1 200 OK"] * 2
    assert ends == [b"", b""]
    assert tasks == 1  # of the first, whose head was new


async def test_after_the_goodbye_plain_answers_close_too() -> None:
    async with serving(echo()) as service, Front(service) as front:
        reader, writer = await front.connect()
        writer.write(request(1))
        before, _ = await answer(reader)
        front.gateway.say_goodbye()
        writer.write(request(1))
        after, _ = await answer(reader)
        rest = await reader.read()
        writer.close()

    assert b"connection: close" not in before
    assert b"connection: close" in after
    assert rest == b""


async def test_many_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo()) as service, Front(service) as front:
        reader, writer = await front.connect()
        sent = [request(number % 7) if number % 3 else request(1, model="nobody") for number in range(2000)]
        writer.write(b"".join([request(0), *sent]))
        await answer(reader)
        bodies = [json.loads((await answer(reader))[1]) for _ in sent]
        writer.close()

    found = [body["outputs"][0]["data"][0] if "outputs" in body else None for body in bodies]
    assert found == [float(number % 7) if number % 3 else None for number in range(2000)]


async def test_a_client_that_reads_nothing_delays_only_itself() -> None:
    async with serving(echo(max_batch_rows=64)) as service, Front(service) as front:
        sent = request(*range(64))
        lazy_reader, lazy = await front.connect()
        for _ in range(2):
            lazy.write(sent)
            await answer(lazy_reader)
        for connection in list(front.server.server_state.connections):
            connection.pause_writing()
        lazy.write(sent)
        await until(lambda: service.statistics()[0].success.count == 3 and front.tasks == 1)
        busy_reader, busy = await front.connect()
        busy.write(sent)
        head, _ = await answer(busy_reader)
        for connection in list(front.server.server_state.connections):
            connection.resume_writing()
        late, _ = await answer(lazy_reader)
        lazy.close()
        busy.close()

    assert head[0] == late[0] == b"HTTP/1.1 200 OK"
