"""The differences that docs/compatibility.md lists are there."""

import json
from collections.abc import Mapping

import httpx
import pytest

from gateway.control_access import ControlAccess, GuardedControl
from gateway.refused_flags import UNOFFERED
from gateway.torchserve_paths import MOVED
from tests.docs.pages import ROOT, table_of
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of

DIFFERENCES = {case: shoal for case, _, shoal in table_of(ROOT / "docs/compatibility.md", "What differs, on purpose")}
BODY_LIMIT_BYTES = 4096


def call(body: str, headers: Mapping[str, str] | None = None, model: str = "ident_uint8") -> httpx.Request:
    return httpx.Request("POST", f"http://shoal/v2/models/{model}/infer", content=body, headers=headers)


def infer_body(*data: int, **more: object) -> str:
    return json.dumps({"inputs": [{"name": "IN", "datatype": "UINT8", "shape": [1, len(data)], "data": data}], **more})


def manage(path: str, body: object, **headers: str) -> httpx.Request:
    sent = {"host": "localhost", **headers}
    return httpx.Request("POST", f"http://shoal/v2/repository/{path}", json=body, headers=sent)


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
    "an index with a ready that is no boolean": [manage("index", {"ready": 1})],
    "an unload with an unload_dependents that is no boolean": [
        manage("models/simple/unload", {"parameters": {"unload_dependents": 1}})
    ],
    "a load with an unknown parameter": [manage("models/simple/load", {"parameters": {"x": "y"}})],
    "a load with file: parameters": [manage("models/simple/load", {"parameters": {"config": "{}", "file:1/x": "AA"}})],
    "a load from a page of another site": [manage("models/simple/load", {}, origin="http://elsewhere")],
    "/ready of an unknown model": [httpx.Request("GET", "http://shoal/v2/models/nothing/ready")],
}
ORDER = "order of the outputs in the answer"
ENDING = "readiness while ending"


def test_every_difference_has_an_example_here() -> None:
    assert DIFFERENCES.keys() == {*EXAMPLES, ORDER, ENDING}


@pytest.mark.parametrize("case", EXAMPLES)
async def test_a_difference_is_answered_with_the_status_on_the_page(case: str) -> None:
    control = GuardedControl(FakeControl(), ControlAccess(mode="explicit"))

    async with client_of(FakeEngine(), control, max_body_bytes=BODY_LIMIT_BYTES) as client:
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


def test_every_flag_that_is_not_offered_is_listed_with_its_sentence() -> None:
    expected = [
        [
            ", ".join(entry.names),
            "all values" if entry.harmless is None else ", ".join(entry.harmless) or "-",
            entry.sentence,
        ]
        for entry in UNOFFERED
    ]

    assert table_of(ROOT / "docs/compatibility.md", "Flags that are not offered") == expected


def test_every_request_of_torchserves_api_is_listed_with_what_answers_here() -> None:
    expected = [[f"{entry.method} {entry.call}".strip(), entry.instead] for entry in MOVED]

    assert table_of(ROOT / "docs/torchserve-models.md", "TorchServe's own API") == expected
