"""Bodies that are cut, chunked, mislabelled or absurd: the right answer or a typed error, and nobody else notices."""

import asyncio
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.conftest import assert_unharmed
from tests.e2e.models import add_echo, add_mirror
from tests.e2e.server import PATIENCE_S, Server
from tests.e2e.wire import Answer, all_of, ask_once, connect

pytestmark = pytest.mark.e2e

LIMIT_BYTES = 1 << 20
BLOB = struct.pack("<4f", 1, -2, 3.5, 4)


def strings(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def binary_request(size_bytes: int, datatype: str = "FP32", shape: Sequence[int] = (2, 2)) -> bytes:
    """The JSON part of a request whose only input follows it, and whose answer is binary, too."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size_bytes}}
    return json.dumps({"id": "7", "inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()


TEXT = binary_request(len(BLOB))
HEADER = "Inference-Header-Content-Length"


def post(body: bytes, *headers: str, model: str = "echo") -> bytes:
    """A whole HTTP request with a Content-Length."""
    return head(f"Content-Length: {len(body)}", *headers, model=model) + body


def head(*headers: str, model: str = "echo") -> bytes:
    return "\r\n".join([f"POST /v2/models/{model}/infer HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def chunked(body: bytes, size_bytes: int) -> bytes:
    pieces = [body[start : start + size_bytes] for start in range(0, len(body), size_bytes)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("awkward")
    add_echo(root, "echo")
    add_echo(root, "texts", data_type="TYPE_STRING")
    add_mirror(root, "mirror")
    with Server(f"--model-repository={root}", f"--http-max-input-size={LIMIT_BYTES}") as started:
        yield started


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    yield
    assert_unharmed(server)


def error_of(answer: Answer) -> str:
    """The text of an error that was foreseen."""
    text: str = json.loads(answer.body)["error"]
    assert text != "internal error"
    return text


async def ask(server: Server, request: bytes) -> Answer:
    return await ask_once(server.port, request)


GOOD = post(TEXT + BLOB, f"{HEADER}: {len(TEXT)}")


async def test_a_request_is_answered_alike_wherever_it_is_cut_in_two(server: Server) -> None:
    expected = await ask(server, GOOD)
    cuts = range(1, len(GOOD))
    connections = await all_of(connect(server.port) for _ in cuts)

    for cut, connection in zip(cuts, connections, strict=True):
        connection.send(GOOD[:cut])
    await ask(server, GOOD)  # when this one is answered, the server has read the first pieces
    answers = await all_of(connection.ask(GOOD[cut:]) for cut, connection in zip(cuts, connections, strict=True))

    await all_of(connection.close() for connection in connections)
    assert expected.status == 200
    assert expected.body.endswith(BLOB)
    assert {answer.body for answer in answers} == {expected.body}


async def test_two_requests_at_once_are_answered_in_turn_wherever_they_are_cut(server: Server) -> None:
    other = post(b"{", model="texts")
    pair = GOOD + other
    cuts = range(1, len(pair), 3)
    expected = [(await ask(server, request)).body for request in (GOOD, other)]
    connections = await all_of(connect(server.port) for _ in cuts)

    for cut, connection in zip(cuts, connections, strict=True):
        connection.send(pair[:cut])
    await ask(server, GOOD)  # when this one is answered, the server has read the first pieces
    first = await all_of(connection.ask(pair[cut:]) for cut, connection in zip(cuts, connections, strict=True))
    second = await all_of(connection.ask(b"") for connection in connections)

    await all_of(connection.close() for connection in connections)
    assert {(one.body, two.body) for one, two in zip(first, second, strict=True)} == {tuple(expected)}


async def test_a_client_may_wait_until_it_is_told_to_go_on(server: Server) -> None:
    expected = await ask(server, GOOD)
    connection = await connect(server.port)
    try:
        request = post(TEXT + BLOB, f"{HEADER}: {len(TEXT)}", "Expect: 100-continue")
        head_bytes = len(request) - len(TEXT + BLOB)
        connection.send(request[:head_bytes])
        told = await connection.read_until(b"\r\n\r\n")
        answer = await connection.ask(request[head_bytes:])
    finally:
        await connection.close()

    assert told.startswith(b"HTTP/1.1 100 ")
    assert answer.body == expected.body


@pytest.mark.parametrize("size_bytes", [1, 2, 3, 7, 64, 1000])
async def test_a_chunked_request_is_answered_like_a_whole_one(server: Server, size_bytes: int) -> None:
    expected = await ask(server, GOOD)
    body = chunked(TEXT + BLOB, size_bytes)

    answer = await ask(server, head("Transfer-Encoding: chunked", f"{HEADER}: {len(TEXT)}") + body)

    assert answer == expected


@pytest.mark.parametrize(
    ("length", "status", "text"),
    [
        (len(TEXT) - 1, 500, "failed to parse the request JSON buffer: "),
        (len(TEXT) + 1, 400, "unexpected size for input 'x', expecting 1 additional bytes for model 'echo'"),
        (len(TEXT) + len(BLOB), 400, "unexpected size for input 'x', expecting 16 additional bytes for model 'echo'"),
        (len(TEXT) + len(BLOB) + 1, 400, "inference header size should be in range (0, "),
        (-1, 400, "inference header size should be in range (0, "),
        (10**30, 400, "inference header size should be in range (0, "),
    ],
)
async def test_a_wrong_header_length_is_refused(server: Server, length: int, status: int, text: str) -> None:
    body = TEXT + bytes(16)

    answer = await ask(server, post(body, f"{HEADER}: {length}"))

    assert (answer.status, error_of(answer)[: len(text)]) == (status, text)


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (BLOB[:-1], "unexpected size for input 'x', expecting 1 additional bytes for model 'echo'"),
        (b"", "unexpected size for input 'x', expecting 16 additional bytes for model 'echo'"),
        (BLOB + b"x", "unexpected additional input data for model 'echo'"),
    ],
)
async def test_too_few_or_too_many_bytes_are_refused(server: Server, blob: bytes, text: str) -> None:
    answer = await ask(server, post(TEXT + blob, f"{HEADER}: {len(TEXT)}"))

    assert (answer.status, error_of(answer)) == (400, text)


@pytest.mark.parametrize("size_bytes", [0, 15, 17, 2**31, 2**63, 2**64 - 1])
async def test_a_size_that_the_body_does_not_have_is_refused(server: Server, size_bytes: int) -> None:
    text = binary_request(size_bytes)

    answer = await ask(server, post(text + BLOB, f"{HEADER}: {len(text)}"))

    assert answer.status == 400
    assert error_of(answer).startswith(("unexpected size for input 'x'", "unexpected additional input data"))


BAD_STRINGS = {
    "cut in a length": strings(b"a", b"b")[:-4],
    "cut in an element": strings(b"a", b"bc")[:-1],
    "one too few": strings(b"a"),
    "one too many": strings(b"a", b"b", b"c"),
    "a length beyond the end": struct.pack("<I", 2**32 - 1) + b"a" + strings(b"b"),
    "a length one too long": struct.pack("<I", 6) + strings(b"b"),
    "no lengths": b"ab",
    "nothing": b"",
}


@pytest.mark.parametrize("mistake", BAD_STRINGS)
async def test_strings_with_bad_lengths_are_refused(server: Server, mistake: str) -> None:
    blob = BAD_STRINGS[mistake]
    text = binary_request(len(blob), "BYTES", (1, 2))

    answer = await ask(server, post(text + blob, f"{HEADER}: {len(text)}", model="texts"))

    assert answer.status == 400
    assert "string" in error_of(answer)
    assert "for inference input 'x'" in error_of(answer)


@pytest.mark.parametrize(
    "shape",
    [
        [2**63, 2],
        [2**63 - 1, 2],
        [2**64 - 1, 1],
        [2**64, 2],
        [2**62, 4],
        [2**32, 2**32],
        [0, 2**63 - 1],
        [2**32, 2**32, 0],
        [10**30],
        [1] * 40,
        [1] * 10_000,
        [1e300, 2],
        [],
    ],
    ids=lambda shape: str(shape)[:24],
)
@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
async def test_absurd_shapes_are_refused(server: Server, shape: list[Any], is_binary: bool) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": [1, 2]}]}
    text = binary_request(16, shape=shape) if is_binary else json.dumps(body).encode()
    request = post(text + BLOB, f"{HEADER}: {len(text)}") if is_binary else post(text)

    answer = await ask(server, request)

    assert answer.status in (400, 500)
    assert error_of(answer)


DEPTH = 400_000
DEEP = b"[" * DEPTH + b"]" * DEPTH
PLAIN = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":%s}]}'


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b"[" * 2 * DEPTH,
        b'{"a":' * (DEPTH // 3) + b"1" + b"}" * (DEPTH // 3),
        PLAIN % DEEP,
        PLAIN % (b"[1," + DEEP + b"]"),
        PLAIN % (b"[" * 101 + b"1,2" + b"]" * 101),
        b'{"unknown":' + DEEP + b',"inputs":[]}',
    ],
    ids=["lists", "open lists", "objects", "data", "data beside a number", "data just too deep", "unknown member"],
)
async def test_deep_nesting_is_refused_in_bounded_memory(server: Server, body: bytes) -> None:
    before_kib = server.peak_memory_kib(forget=True)

    answer = await ask(server, post(body))

    assert answer.status in (400, 500)
    assert error_of(answer)
    assert server.peak_memory_kib() - before_kib < 64 << 10


@pytest.mark.parametrize(
    "number", [b"1e400", b"-1e400", b"9" * 100_000, b"01", b"1.", b".5", b"+1", b"0x10", b"1e", b"--1", b"nan", b"null"]
)
async def test_numbers_that_are_none_are_refused(server: Server, number: bytes) -> None:
    answer = await ask(server, post(PLAIN % (b"[1," + number + b"]")))

    assert answer.status in (400, 500)
    assert error_of(answer)


async def test_an_announced_body_above_the_limit_is_refused_before_it_comes_every_time(server: Server) -> None:
    request = head(f"Content-Length: {LIMIT_BYTES + 1}")

    async with asyncio.timeout(PATIENCE_S):
        answers = [await ask(server, request) for _ in range(3)]

    for answer in answers:
        assert (answer.status, "--http-max-input-size" in error_of(answer)) == (400, True)


async def test_a_chunked_body_above_the_limit_is_refused_while_it_comes(server: Server) -> None:
    before_kib = server.peak_memory_kib(forget=True)
    endless = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    answer = await ask(server, head("Transfer-Encoding: chunked") + endless * (LIMIT_BYTES // 0x10000 + 1))

    assert answer.status in (400, 413)
    assert (answer.status, "--http-max-input-size" in error_of(answer)) == (400, True)
    assert server.peak_memory_kib() - before_kib < 16 << 10


async def test_the_body_of_a_refused_request_is_never_taken_for_a_request(server: Server) -> None:
    expected = await ask(server, GOOD)
    body = (GOOD * (LIMIT_BYTES // len(GOOD) + 1)).ljust(LIMIT_BYTES + len(GOOD))
    connection = await connect(server.port)
    try:
        refused = await connection.ask(head(f"Content-Length: {len(body)}"))
        connection.send(body)
        answer = await connection.ask(post(b"{"))
        last = await connection.ask(GOOD)
    finally:
        await connection.close()

    assert (refused.status, answer.status) == (400, 500)
    assert last.body == expected.body


async def test_a_body_as_large_as_the_limit_is_read(server: Server) -> None:
    text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}).encode()

    answer = await ask(server, post(text.ljust(LIMIT_BYTES)))

    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Content-Length: 5 5",),
        ("Content-Length: 99999999999999999999999",),
    ],
    ids=str,
)
async def test_a_length_that_could_be_read_in_two_ways_is_refused(server: Server, headers: tuple[str, ...]) -> None:
    answer = await ask_closing(server, head(*headers) + b"12345")

    assert answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n0\r\n\r\n", b"5\r\nabc\r\n0\r\n\r\n", b"-1\r\n", b"f" * 40 + b"\r\n"])
async def test_broken_chunks_are_refused(server: Server, body: bytes) -> None:
    answer = await ask_closing(server, head("Transfer-Encoding: chunked") + body)

    assert answer.startswith(b"HTTP/1.1 4")


async def ask_closing(server: Server, request: bytes) -> bytes:
    """Everything that comes until the server closes."""
    connection = await connect(server.port)
    try:
        connection.send(request)
        async with asyncio.timeout(PATIENCE_S):
            return await connection.read_to_end()
    finally:
        await connection.close()


async def test_clients_that_leave_within_their_bodies_harm_nobody(server: Server) -> None:
    async def leave(sent_bytes: int) -> None:
        connection = await connect(server.port)
        connection.send(GOOD[:sent_bytes])
        await connection.close()

    await all_of(leave(sent_bytes) for sent_bytes in range(1, len(GOOD), 7))

    assert (await ask(server, GOOD)).status == 200


HUGE = {
    "dimensions": b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%s],"data":[]}]}' % (b"1," * 2**24 + b"1"),
    "numbers": PLAIN % (b"[" + b"0," * 2**24 + b"0]"),
    "strings": PLAIN % (b"[" + b'"",' * 2**24 + b'""]'),
    "rows": PLAIN % (b"[" + b"[]," * 2**21 + b"[]]"),
    "an unknown list": PLAIN[:-1] % b"[1,2]" + b',"k":[' + b"0," * 2**24 + b"0]}",
    "a parameter's list": PLAIN[:-1] % b"[1,2]" + b',"parameters":{"k":[' + b"0," * 2**24 + b"0]}}",
}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_lists_longer_than_any_parser_counts_are_answered(tmp_path: Path) -> None:
    with Server(f"--model-repository={add_echo(tmp_path, 'echo')}") as server:
        for body in HUGE.values():
            answer = await ask(server, post(body))

            assert answer.status in (200, 400, 413, 500)
            assert answer.status == 200 or error_of(answer)

        assert (await ask(server, GOOD)).status == 200


def mutated(random: Random, body: bytes) -> bytes:
    """One to three bytes changed, inserted, repeated or left out."""
    changed = bytearray(body)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(changed))
        kind = random.randrange(4)
        if kind == 0:
            changed[place] = random.randrange(256)
        elif kind == 1:
            changed[place:place] = random.choice((b'"', b"{", b"]", b",", b"\\", b"9", b"-", b"\0", b"\xff"))
        elif kind == 2:
            del changed[place : place + random.choice((1, 4, 16))]
        else:
            changed[place:place] = changed[: random.choice((1, 8, 32))]
    return bytes(changed)


@pytest.mark.parametrize("seed", range(3))
async def test_damaged_requests_get_an_answer_or_a_typed_error(server: Server, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    bodies = [mutated(random, TEXT + BLOB) for _ in range(200)]

    answers = await all_of(ask(server, post(body, f"{HEADER}: {len(TEXT)}")) for body in bodies)

    assert {answer.status for answer in answers} <= {200, 400, 404, 500, 501}
    assert all(error_of(answer) for answer in answers if answer.status != 200)
