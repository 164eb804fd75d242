"""The differences that docs/compatibility.md lists are there."""

import json
from collections.abc import Mapping

import httpx
import pytest

from tests.docs.pages import ROOT, table_of
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of

DIFFERENCES = {case: shoal for case, _, shoal in table_of(ROOT / "docs/compatibility.md", "What differs, on purpose")}
BODY_LIMIT_BYTES = 4096


def call(body: str, headers: Mapping[str, str] | None = None, model: str = "ident_uint8") -> httpx.Request:
    return httpx.Request("POST", f"http://shoal/v2/models/{model}/infer", content=body, headers=headers)


def infer_body(*data: int, **more: object) -> str:
    return json.dumps({"inputs": [{"name": "IN", "datatype": "UINT8", "shape": [1, len(data)], "data": data}], **more})


EXAMPLES = {
    "JSON that cannot be read, a missing member, a member of the wrong type": [
        call("{"),
        call("{}"),
        call('{"inputs": 1}'),
    ],
    "a body above --http-max-input-size": [call(" " * (BODY_LIMIT_BYTES + 1))],
    "an integer that the tensor's type cannot hold": [call(infer_body(300)), call(infer_body(-1))],
    "the same output asked for twice": [call(infer_body(1, outputs=[{"name": "OUT"}, {"name": "OUT"}]))],
    "JSON nested too deeply": [call("[" * 2000 + "]" * 2000)],
    "Inference-Header-Content-Length: 95x": [call(infer_body(1), {"Inference-Header-Content-Length": "95x"})],
    "an input or output in shared memory": [
        call(infer_body(1, outputs=[{"name": "OUT", "parameters": {"shared_memory_region": "r"}}]))
    ],
    "/ready of an unknown model": [httpx.Request("GET", "http://shoal/v2/models/nothing/ready")],
}
ORDER = "order of the outputs in the answer"
ENDING = "readiness while ending"


def test_every_difference_has_an_example_here() -> None:
    assert DIFFERENCES.keys() == {*EXAMPLES, ORDER, ENDING}


@pytest.mark.parametrize("case", EXAMPLES)
async def test_a_difference_is_answered_with_the_status_on_the_page(case: str) -> None:
    async with client_of(FakeEngine(), max_body_bytes=BODY_LIMIT_BYTES) as client:
        statuses = {(await client.send(request)).status_code for request in EXAMPLES[case]}

    assert statuses == {int(DIFFERENCES[case][:3])}


async def test_outputs_come_in_the_order_of_the_request() -> None:
    inputs = [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [1, 16], "data": [0] * 16} for i in (0, 1)]
    body = json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]})

    async with client_of(FakeEngine()) as client:
        answer = await client.send(call(body, model="simple"))

    assert [output["name"] for output in answer.json()["outputs"]] == ["OUTPUT1", "OUTPUT0"]


async def test_readiness_while_ending_is_told_by_the_status_alone() -> None:
    engine = FakeEngine()
    engine.ready = False  # what an engine says from the first signal on

    async with client_of(engine) as client:
        answer = await client.get("/v2/health/ready")

    assert (answer.status_code, answer.content) == (int(DIFFERENCES[ENDING][:3]), b"")
