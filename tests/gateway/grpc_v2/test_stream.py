import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from backends.errors import BackendError
from gateway.grpc_v2.stream import FIRST_REQUESTS, MAX_PENDING_BYTES
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.surface_settings import SurfaceSettings
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.grpc_v2.serving import Served, request, served, tensor


async def answers_to(here: Served, requests: Sequence[Any], metadata: Any = ()) -> list[Any]:
    return [answer async for answer in here.stub.ModelStreamInfer(iter(requests), metadata=metadata)]


async def test_each_answer_is_the_final_one_of_its_request() -> None:
    async with served(FakeEngine()) as here:
        found = await answers_to(
            here, [request(id="a"), request(id="b", values={"triton_enable_empty_final_response": True})]
        )

    assert [answer.infer_response.id for answer in found] == ["a", "b"]
    assert all(answer.infer_response.parameters["triton_final_response"].bool_param for answer in found)
    assert all(len(answer.infer_response.raw_output_contents[0]) == 8 for answer in found)


async def test_an_error_is_told_on_the_stream_which_goes_on() -> None:
    engine = FakeEngine({"cls": BackendError("went wrong")})
    bad = request(tensor(shape=(1, 4)), raw=[b"\0" * 16], model="cls", id="c")
    async with served(engine) as here:
        found = await answers_to(here, [request(model="nothing", id="a"), request(id="b"), bad, request(id="d")])

    unknown, good, failed, last = found
    assert [answer.error_message for answer in found] == [
        "Request for unknown model: 'nothing' is not found", "", "went wrong", "",
    ]  # fmt: skip
    assert unknown.infer_response == pb.ModelInferResponse(id="a")
    assert failed.infer_response == pb.ModelInferResponse(
        model_name="cls", id="c", parameters={"triton_final_response": pb.InferParameter(bool_param=True)}
    )
    assert (good.infer_response.id, last.infer_response.id) == ("b", "d")


async def test_answers_come_in_the_order_of_the_requests() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(iter([request(model="hold", id="slow"), request(id="fast")]))
        await engine.hold_entered.wait()
        engine.hold_released.set()
        found = [answer.infer_response.id async for answer in call]

    assert found == ["slow", "fast"]


async def test_a_stream_that_is_to_end_at_errors_ends_with_their_status() -> None:
    async with served(FakeEngine()) as here:
        call = here.stub.ModelStreamInfer(
            iter([request(id="a"), request(model="nothing"), request(id="c")]),
            metadata=(("triton_grpc_error", "true"),),
        )
        first = await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()

    assert first.infer_response.id == "a"
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_bytes_that_are_no_message_end_the_stream() -> None:
    async with served(FakeEngine()) as here:
        call = here.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([b"\xff"]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()

    assert caught.value.details() == "Unable to parse request"


async def test_metadata_that_cannot_be_forwarded_are_refused_on_a_stream_too() -> None:
    surface = SurfaceSettings(forwarding=HeaderForwarding.parse("x-.*"))
    async with served(FakeEngine(), surface=surface) as here:
        call = here.stub.ModelStreamInfer(iter([request()]), metadata=(("x-raw-bin", b"\xff"),))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "x-raw-bin" in caught.value.details()


async def test_a_client_that_leaves_withdraws_what_it_has_asked() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(iter([request(model="hold")]))
        reading = asyncio.ensure_future(call.read())
        await engine.hold_entered.wait()
        call.cancel()
        await asyncio.wait([reading])

        events = [await asyncio.to_thread(engine.happened.get) for _ in range(2)]

    assert events == ["entered", "cancelled"]


async def test_no_more_is_read_while_too_much_is_unanswered() -> None:
    engine = FakeEngine()
    sent = 0
    size_bytes = MAX_PENDING_BYTES // 8
    message = request(tensor(shape=(1, size_bytes // 4)), raw=[bytes(size_bytes)], model="hold")

    async def requests() -> AsyncIterator[Any]:
        nonlocal sent
        while True:
            yield message
            sent += 1

    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(requests())
        reading = asyncio.ensure_future(call.read())
        seen = -1
        while sent != seen or sent < 7:  # until the client is not let send any more
            seen = sent
            for _ in range(50):
                await here.stub.ServerLive(pb.ServerLiveRequest())
        asked = len(engine.requests)
        call.cancel()
        await asyncio.wait([reading])

    assert asked == 7  # eight of them are a little more than the limit


async def test_no_more_requests_than_a_few_are_read_before_the_first_answer() -> None:
    engine = FakeEngine()
    sent = 0

    async def requests() -> AsyncIterator[Any]:
        nonlocal sent
        while True:
            yield request(model="hold")
            sent += 1

    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(requests())
        reading = asyncio.ensure_future(call.read())
        while len(engine.requests) < FIRST_REQUESTS:
            await here.stub.ServerLive(pb.ServerLiveRequest())
        for _ in range(50):
            await here.stub.ServerLive(pb.ServerLiveRequest())
        asked = len(engine.requests)
        call.cancel()
        await asyncio.wait([reading])

    assert (asked, sent > asked) == (FIRST_REQUESTS, True)


async def test_a_client_that_leaves_without_reading_is_no_defect_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(iter([request(id=str(number)) for number in range(20)]))
        while len(engine.requests) < 20:
            await here.stub.ServerLive(pb.ServerLiveRequest())
        call.cancel()
        for _ in range(20):
            await here.stub.ServerLive(pb.ServerLiveRequest())

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_leaves_while_a_large_answer_is_sent_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    size_bytes = 8 << 20
    message = request(tensor(shape=(1, size_bytes // 4)), raw=[bytes(size_bytes)])
    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(iter([message] * 4))
        while not engine.requests:
            await here.stub.ServerLive(pb.ServerLiveRequest())
        for _ in range(50):
            await here.stub.ServerLive(pb.ServerLiveRequest())
        call.cancel()
        for _ in range(50):
            await here.stub.ServerLive(pb.ServerLiveRequest())

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_server_that_stops_answers_what_it_has_read_and_ends_the_stream() -> None:
    engine = FakeEngine()
    more = asyncio.Event()

    async def requests() -> AsyncIterator[Any]:
        yield request(model="hold", id="a")
        await more.wait()

    async with served(engine) as here:
        call = here.stub.ModelStreamInfer(requests())
        first = asyncio.ensure_future(call.read())
        await engine.hold_entered.wait()
        here.server.stop()
        engine.hold_released.set()
        answer = await first
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        more.set()

    assert answer.infer_response.id == "a"
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "Server exiting")
