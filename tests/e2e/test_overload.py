"""Full queues, deadlines and callers that hang up. State is read from the server, so that nothing depends on luck."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import GOOD_PHOTO, assert_unharmed
from tests.e2e.models import add_echo, add_mirror
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import (
    Answer,
    ask_once,
    classified,
    connect,
    echoed,
    infer_body,
    infer_bytes,
    post_bytes,
    raw_connection,
)

pytestmark = pytest.mark.e2e

HOLD_US = 1_000_000  # of a batch that keeps the only instance busy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("overload")
    add_echo(root, "echo")
    add_mirror(root, "mirror")
    add_echo(root, "narrow", base_us=HOLD_US, batching="max_queue_requests = 2")
    add_mirror(root, "narrow-mirror", base_us=3 * HOLD_US, max_queue_requests=2)  # decoding takes time, too
    add_echo(root, "few-rows", max_batch_size=4, base_us=HOLD_US, batching="max_queue_rows = 4")
    add_echo(root, "late", base_us=HOLD_US, batching="deadlines = true")
    add_echo(root, "patient", base_us=HOLD_US // 4)
    add_echo(root, "left", base_us=HOLD_US // 2)
    with Server(f"--model-repository={root}") as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that gives requests 0.3 s."""
    root = tmp_path_factory.mktemp("hasty")
    add_echo(root, "echo")
    add_mirror(root, "mirror")
    add_echo(root, "slow", base_us=HOLD_US)
    add_mirror(root, "slow-mirror", base_us=HOLD_US)
    with Server(f"--model-repository={root}", "--request-timeout-secs=0.3") as server:
        yield server


async def until(server: Server, metric: str, model: str, value: int) -> None:
    """Wait for a gauge of a model."""
    await asyncio.to_thread(
        wait_until, lambda: server.metric(metric, model=model) == value, f"{metric} of {model} to be {value}"
    )


@contextlib.asynccontextmanager
async def full_queue(server: Server, model: str, request: bytes) -> AsyncIterator[None]:
    """One request is running and two are waiting; they give up at the end of the block."""
    connections = [await connect(server.port) for _ in range(3)]
    held = []
    for connection, metric, value in zip(
        connections, ("running_batches", "queue_requests", "queue_requests"), (1, 1, 2), strict=True
    ):
        held.append(asyncio.create_task(connection.ask(request)))
        await until(server, f"shoal_{metric}", model, value)
    yield
    for task in held:
        task.cancel()
    await asyncio.wait(held)
    for connection in connections:
        await connection.close()


async def test_a_full_queue_is_503_on_v2(server: Server) -> None:
    request = infer_bytes("narrow", 1)
    async with full_queue(server, "narrow", request):
        answer = await ask_once(server.port, request)

    assert answer.status == 503
    assert b"[request id: <id_unknown>] Exceeds maximum queue size" in answer.body
    assert server.metric("shoal_refused_requests_total", model="narrow") == 1
    assert_unharmed(server)


async def test_a_full_queue_is_429_with_retry_after_on_classify(server: Server) -> None:
    request = post_bytes("/classify/narrow-mirror", GOOD_PHOTO, "image/jpeg")
    async with full_queue(server, "narrow-mirror", request):
        answer = await ask_once(server.port, request)

    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert b"Exceeds maximum queue size (2 requests)" in answer.body
    assert_unharmed(server)


async def test_a_queue_that_is_full_of_rows_is_503_too(server: Server) -> None:
    request = infer_bytes("few-rows", 1, 2)
    async with full_queue(server, "few-rows", request):
        answer = await ask_once(server.port, request)

    assert answer.status == 503
    assert b"Exceeds maximum queue size" in answer.body


async def first_and_second(server: Server, model: str, first: bytes, second: bytes) -> tuple[Answer, Answer]:
    """The second is sent when the first is running."""
    running = asyncio.create_task(ask_once(server.port, first))
    await until(server, "shoal_running_batches", model, 1)
    answer = await ask_once(server.port, second)
    return await running, answer


async def test_a_request_that_waits_longer_than_it_may_is_503_on_v2(hasty: Server) -> None:
    request = infer_bytes("slow", 1)

    _, late = await first_and_second(hasty, "slow", request, request)

    assert late.status == 503
    assert b"Request timeout expired" in late.body
    assert hasty.metric("nv_inference_request_failure", model="slow", reason="REJECTED") >= 1
    assert_unharmed(hasty)


async def test_a_request_that_waits_longer_than_it_may_is_504_on_classify(hasty: Server) -> None:
    request = post_bytes("/classify/slow-mirror", GOOD_PHOTO, "image/jpeg")

    _, late = await first_and_second(hasty, "slow-mirror", request, request)

    assert late.status == 504
    assert b"Request timeout expired" in late.body
    assert_unharmed(hasty)


async def test_a_timeout_counts_as_in_triton_only_where_a_queue_has_one(server: Server) -> None:
    body = orjson.dumps(infer_body(2, parameters={"timeout": 1}))

    answers = await first_and_second(
        server, "patient", infer_bytes("patient", 1), post_bytes("/v2/models/patient/infer", body)
    )

    assert [answer.status for answer in answers] == [200, 200]


async def test_a_timeout_is_a_deadline_where_the_model_says_so(server: Server) -> None:
    body = orjson.dumps(infer_body(2, parameters={"timeout": 100_000}))

    on_time, late = await first_and_second(
        server, "late", infer_bytes("late", 1), post_bytes("/v2/models/late/infer", body)
    )

    assert (on_time.status, late.status) == (200, 503)
    assert b"Request timeout expired" in late.body


async def test_a_caller_that_hangs_up_is_cancelled_and_its_batch_mates_are_answered(server: Server) -> None:
    holding = asyncio.create_task(ask_once(server.port, infer_bytes("left", 1)))
    await until(server, "shoal_running_batches", "left", 1)
    with raw_connection(server) as leaving:
        leaving.sendall(infer_bytes("left", 2))
        await until(server, "shoal_queue_requests", "left", 1)
        staying = asyncio.create_task(ask_once(server.port, infer_bytes("left", 3)))
        await until(server, "shoal_queue_requests", "left", 2)
    await until(server, "nv_inference_request_failure", "left", 1)

    answers: list[Any] = [orjson.loads((await task).body) for task in (holding, staying)]

    assert [echoed(answer) for answer in answers] == [[1], [3]]
    assert server.metric("nv_inference_request_failure", model="left", reason="CANCELED") == 1
    assert server.stats("left")["inference_count"] == 2
    assert len(classified(server.client.post("/classify/mirror", content=GOOD_PHOTO))) == 5
    assert_unharmed(server)
