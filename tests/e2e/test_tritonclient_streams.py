"""Streams of `tritonclient.grpc`, and its asyncio client, unmodified, against the whole server."""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.e2e.client_models import add_echo
from tests.e2e.server import PATIENCE_S, Server

pytestmark = pytest.mark.e2e

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("streams")
    add_echo(root, "echo", "TYPE_FP32")
    add_echo(root, "other", "TYPE_FP32")
    add_echo(root, "slow", "TYPE_FP32", base_us=100_000)
    with Server(f"--model-repository={root}") as server:
        yield server


def inputs(array: np.ndarray) -> list[triton.InferInput]:
    tensor = triton.InferInput("x", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return [tensor]


class Stream:
    """A client with an open stream, and what came on it."""

    def __init__(self, server: Server) -> None:
        self.client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        self._answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client.start_stream(callback=lambda result, error: self._answers.put((result, error)))

    def ask(self, model: str, array: np.ndarray = ROWS, **more: Any) -> None:
        self.client.async_stream_infer(model, inputs(array), **more)

    def next(self) -> tuple[Any, Any]:
        return self._answers.get(timeout=PATIENCE_S)


@pytest.fixture
def stream(server: Server) -> Iterator[Stream]:
    stream = Stream(server)
    yield stream
    stream.client.stop_stream()
    stream.client.close()


def test_answers_come_in_the_order_of_the_requests_and_each_is_the_final_one(stream: Stream) -> None:
    for number in range(20):
        stream.ask("slow" if number == 0 else "echo", ROWS + number, request_id=str(number))
    for number in range(20):
        result, error = stream.next()
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS + number)
        response = result.get_response()
        assert (response.id, response.parameters["triton_final_response"].bool_param) == (str(number), True)


def test_a_stream_may_ask_several_models(stream: Stream) -> None:
    stream.ask("echo")
    stream.ask("other", ROWS + 1)
    assert [stream.next()[0].get_response().model_name for _ in range(2)] == ["echo", "other"]


def test_a_bad_request_is_told_and_the_stream_goes_on(stream: Stream) -> None:
    stream.ask("echo", request_id="a")
    stream.ask("nothing", request_id="b")
    stream.ask("echo", np.zeros((9, 2), np.float32), request_id="c")
    stream.ask("echo", request_id="d")
    answers = [stream.next() for _ in range(4)]
    assert [result is not None for result, _ in answers] == [True, False, False, True]
    assert answers[1][1].message() == "Request for unknown model: 'nothing' is not found"
    assert "batch-size must be <= 8 for 'echo'" in answers[2][1].message()
    assert answers[3][0].get_response().id == "d"


@pytest.mark.parametrize("wants_more", [True, False])
def test_one_answer_a_request_also_if_an_empty_final_one_is_wanted(stream: Stream, wants_more: bool) -> None:
    for number in range(3):
        stream.ask("echo", ROWS + number, request_id=str(number), enable_empty_final_response=wants_more)
    assert [stream.next()[0].get_response().id for _ in range(3)] == ["0", "1", "2"]


def test_a_stream_may_be_ended_with_requests_under_way(server: Server) -> None:
    left = Stream(server)
    for _ in range(20):
        left.ask("slow")
    left.client.stop_stream(cancel_requests=True)
    left.client.close()
    after = Stream(server)
    after.ask("echo")
    assert after.next()[1] is None
    after.client.stop_stream()
    after.client.close()


async def test_the_asyncio_client_offers_the_same(server: Server) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        results = await asyncio.gather(*(client.infer("echo", inputs(ROWS + number)) for number in range(16)))
        compressed = await client.infer("echo", inputs(ROWS), compression_algorithm="gzip")
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'nothing' is not found"):
            await client.infer("nothing", inputs(ROWS))
        statistics = await client.get_inference_statistics("echo")
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("echo")
        assert (await client.get_server_metadata()).name == "shoal"
        assert (await client.get_model_metadata("echo")).name == "echo"
        assert (await client.get_model_config("echo")).config.name == "echo"
        assert {entry.name for entry in (await client.get_model_repository_index()).models} >= {"echo", "other"}
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS + number)
    np.testing.assert_array_equal(compressed.as_numpy("y"), ROWS)
    assert statistics.model_stats[0].name == "echo"


async def test_a_stream_of_the_asyncio_client(server: Server) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(10):
            model = "nothing" if number == 5 else "echo"
            yield {"model_name": model, "inputs": inputs(ROWS + number), "request_id": str(number)}

    async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        answers = [answer async for answer in client.stream_infer(requests())]
    assert [error is None for _, error in answers] == [number != 5 for number in range(10)]
    assert [result.get_response().id for result, error in answers if error is None] == list("012346789")


async def test_a_stream_of_the_asyncio_client_may_be_cancelled(server: Server) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for _ in range(50):
            yield {"model_name": "slow", "inputs": inputs(ROWS)}

    async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        answers = client.stream_infer(requests())
        result, error = await anext(aiter(answers))
        answers.cancel()
        again = await client.infer("echo", inputs(ROWS))
    assert error is None
    np.testing.assert_array_equal(result.as_numpy("y"), again.as_numpy("y"))
