import asyncio
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from gateway.grpc_v2.server import GrpcConfigError, credentials_of, options_of
from gateway.http_server import PortInUseError, bind
from gateway.settings import Settings
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.grpc_v2.serving import request, served, tensor


async def status_of(call: object) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return str(caught.value.code().name)


def large(size: int) -> object:
    return request(tensor(shape=(1, size // 4)), raw=[bytes(size)])


async def test_a_message_over_the_limit_is_refused_and_the_connection_goes_on() -> None:
    async with served(FakeEngine(), grpc_max_input_size=1 << 20) as here:
        refused = await status_of(here.stub.ModelInfer(large(2 << 20)))
        answer = await here.stub.ModelInfer(large(1 << 19))

    assert (refused, len(answer.raw_output_contents[0])) == ("RESOURCE_EXHAUSTED", 1 << 19)


async def test_a_small_message_that_unpacks_to_a_large_one_is_refused() -> None:
    async with served(FakeEngine(), grpc_max_input_size=1 << 20) as here:
        refused = await status_of(here.stub.ModelInfer(large(16 << 20), compression=grpc.Compression.Gzip))

    assert refused == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("level", ["none", "low", "high"])
@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_taken_at_all_levels_of_compressing_answers(
    coding: grpc.Compression, level: str
) -> None:
    async with served(FakeEngine(), grpc_infer_response_compression_level=level) as here:
        answer = await here.stub.ModelInfer(large(1 << 16), compression=coding)

    assert len(answer.raw_output_contents[0]) == 1 << 16


async def test_messages_far_over_the_librarys_own_limit_go_there_and_back() -> None:
    async with served(FakeEngine()) as here:
        answer = await here.stub.ModelInfer(large(16 << 20))

    assert len(answer.raw_output_contents[0]) == 16 << 20


async def test_a_server_that_stops_answers_running_calls_and_takes_no_new_ones() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        running = asyncio.ensure_future(here.stub.ModelInfer(request(model="hold")))
        await engine.hold_entered.wait()
        here.server.stop()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{here.port}") as late:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(late)
            refused = await status_of(stub.ServerLive(pb.ServerLiveRequest(), timeout=5))
        engine.hold_released.set()
        answer = await running

    assert (refused, answer.model_name) == ("UNAVAILABLE", "hold")


async def test_a_server_that_is_forced_ends_running_calls() -> None:
    engine = FakeEngine()
    async with served(engine) as here:
        running = asyncio.ensure_future(here.stub.ModelInfer(request(model="hold")))
        await engine.hold_entered.wait()
        here.server.stop()
        here.server.force()

        assert await status_of(running) in {"UNAVAILABLE", "CANCELLED"}


async def test_two_servers_do_not_share_a_port() -> None:
    async with served(FakeEngine()) as here:
        with pytest.raises(PortInUseError, match="choose another port with --grpc-port"):
            bind("127.0.0.1", here.port, "--grpc-port")


def test_the_flags_become_channel_arguments_and_no_age_means_none() -> None:
    options = dict(options_of(Settings(grpc_keepalive_time=5, grpc_max_connection_age=7)))

    assert (options["grpc.keepalive_time_ms"], options["grpc.max_connection_age_ms"]) == (5, 7)
    assert "grpc.max_connection_age_grace_ms" not in options


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"grpc_use_ssl": True}, "give --grpc-server-key"),
        ({"grpc_use_ssl": True, "grpc_server_key": Path("missing")}, "--grpc-server-key: cannot be read"),
        ({"grpc_use_ssl_mutual": True, "grpc_server_key": Path(__file__), "grpc_server_cert": Path(__file__)},
         "give --grpc-root-cert"),
        ({"grpc_use_ssl": True, "grpc_server_key": Path(__file__), "grpc_server_cert": Path(__file__)},
         "--grpc-server-cert and --grpc-server-key: no pair"),
    ],
)  # fmt: skip
def test_encryption_needs_its_files(flags: dict[str, object], text: str) -> None:
    with pytest.raises(GrpcConfigError, match=text):
        credentials_of(Settings(**flags))  # type: ignore[arg-type]
