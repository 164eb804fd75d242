"""A real gRPC server in the test's own event loop, and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from gateway.control_access import GuardedControl
from gateway.grpc_v2.server import GrpcServer
from gateway.grpc_v2.service import V2Service
from gateway.http_server import bind
from gateway.settings import Settings
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.surface_settings import SurfaceSettings
from tests.gateway.fake_engine import FakeEngine

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Served(NamedTuple):
    server: GrpcServer
    port: int
    channel: Any
    stub: Any


@asynccontextmanager
async def served(
    engine: FakeEngine,
    control: GuardedControl | None = None,
    memory: SharedMemory | None = None,
    surface: SurfaceSettings | None = None,
    **flags: Any,
) -> AsyncIterator[Served]:
    """Serve an engine inside the block; everything is closed after it."""
    service = V2Service(
        engine, offload=asyncio.to_thread, server_version="1.2.3", control=control, memory=memory, settings=surface
    )
    with bind("127.0.0.1", 0, "--grpc-port") as bound:
        server = GrpcServer(service, Settings(**flags), bound)
        server.listen("--grpc-port")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.run_until_stopped())
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=_UNLIMITED) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                try:
                    yield Served(server, server.port, channel, stub)
                finally:
                    server.force()


def parameter(value: object) -> Any:
    """An `InferParameter` of the value's type; a tuple of one number stands for an unsigned one."""
    match value:
        case bool():
            return pb.InferParameter(bool_param=value)
        case int():
            return pb.InferParameter(int64_param=value)
        case str():
            return pb.InferParameter(string_param=value)
        case float():
            return pb.InferParameter(double_param=value)
        case (int() as number,):
            return pb.InferParameter(uint64_param=number)
        case _:
            return pb.InferParameter()


def parameters(values: dict[str, object]) -> dict[str, Any]:
    return {name: parameter(value) for name, value in values.items()}


def tensor(
    name: str = "IN",
    datatype: str = "FP32",
    shape: Sequence[int] = (1, 2),
    contents: dict[str, Any] | None = None,
    **values: object,
) -> Any:
    """An input without raw data; keywords that are left are its parameters."""
    made = pb.ModelInferRequest.InferInputTensor(
        name=name, datatype=datatype, shape=shape, parameters=parameters(dict(values))
    )
    if contents is not None:
        made.contents.CopyFrom(pb.InferTensorContents(**contents))
    return made


def output(name: str = "OUT", **values: object) -> Any:
    return pb.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=parameters(dict(values)))


def request(
    *inputs: Any,
    raw: Sequence[bytes] = (),
    model: str = "ident_fp32",
    values: dict[str, object] | None = None,
    **more: Any,
) -> Any:
    """A `ModelInferRequest`; by default one row of two numbers for an identity."""
    return pb.ModelInferRequest(
        model_name=model,
        inputs=inputs or (tensor(),),
        raw_input_contents=raw or (() if inputs else (np.float32([1, 2]).tobytes(),)),
        parameters=parameters(values or {}),
        **more,
    )
