"""The differences over gRPC that docs/compatibility.md lists are there."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from gateway.control_access import ControlAccess, GuardedControl
from tests.docs.pages import ROOT, table_of
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.grpc_v2.serving import output, request, served, tensor

DIFFERENCES = {case: shoal for case, _, shoal in table_of(ROOT / "docs/compatibility.md", "Over gRPC")}
MESSAGE_LIMIT_BYTES = 5 << 20
TOKEN = "0123456789abcdef"  # noqa: S105 - it guards nothing
BEARER = (("authorization", f"Bearer {TOKEN}"),)


def load(stub: Any, metadata: Any = BEARER, **parameters: Any) -> Awaitable[Any]:
    return stub.RepositoryModelLoad(  # type: ignore[no-any-return]
        pb.RepositoryModelLoadRequest(model_name="simple", parameters=parameters), metadata=metadata
    )


async def stream_with_two_errors(stub: Any) -> Any:
    bad = request(model="nothing")
    call = stub.ModelStreamInfer(iter([bad, bad]), metadata=(("triton_grpc_error", "true"),))
    return [answer async for answer in call]


EXAMPLES: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "ModelReady of an unknown model": lambda stub: stub.ModelReady(pb.ModelReadyRequest(name="nothing")),
    "the same output twice": lambda stub: stub.ModelInfer(request(outputs=[output(), output()])),
    "2^32 and more classes": lambda stub: stub.ModelInfer(
        request(tensor(shape=(1, 4)), raw=[bytes(16)], model="cls", outputs=[output(classification=2**40)])
    ),
    "a version named by a label that the model has": lambda stub: stub.ModelMetadata(
        pb.ModelMetadataRequest(name="simple", version="stable")
    ),
    "a message above --grpc-max-input-size, 256 MiB by default": lambda stub: stub.ModelInfer(
        request(tensor(shape=(1, MESSAGE_LIMIT_BYTES // 4)), raw=[bytes(MESSAGE_LIMIT_BYTES)])
    ),
    "a message of more than 1 MiB with more than 2,000,000 fields, strings or 32 bytes of other typed contents": (
        lambda stub: stub.ModelInfer(request(tensor(contents={"bytes_contents": [b""] * 2_000_001})))
    ),
    "a message of more than 1 MiB that is no infer request": lambda stub: stub.ModelReady(
        pb.ModelReadyRequest(name="x" * (1 << 20))
    ),
    "a stream with the metadata triton_grpc_error: true": stream_with_two_errors,
    "a load with file: parameters": lambda stub: load(
        stub, **{"file:1/model.py": pb.ModelRepositoryParameter(bytes_param=b"x")}
    ),
    "a load with an empty configuration": lambda stub: load(stub, config=pb.ModelRepositoryParameter(string_param="")),
    "a load without the control token": lambda stub: load(stub, ()),
}


def test_every_difference_has_an_example_here() -> None:
    assert DIFFERENCES.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("case", EXAMPLES)
async def test_a_difference_is_answered_with_the_code_on_the_page(case: str) -> None:
    control = GuardedControl(FakeControl(), ControlAccess(mode="explicit", token=TOKEN.encode()))

    async with served(FakeEngine(), control, grpc_max_input_size=MESSAGE_LIMIT_BYTES) as here:
        try:
            await EXAMPLES[case](here.stub)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
        else:
            code = "OK"

    assert code == DIFFERENCES[case].partition(":")[0]
