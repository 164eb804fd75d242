"""The differences that docs/compatibility.md lists are there."""

import gzip
import json
from collections.abc import Mapping
from mmap import PAGESIZE
from pathlib import Path

import httpx
import pytest
from backports import zstd

from gateway.control_access import ControlAccess, GuardedControl
from gateway.refused_flags import UNOFFERED
from gateway.torchserve_paths import MOVED
from gateway.v2.shared_memory import SharedMemory
from tests.docs.pages import ROOT, table_of
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.segments import content_of, cut_off, needs_shared_memory, segment
from tests.gateway.v2.serving import client_of

DIFFERENCES = {case: shoal for case, _, shoal in table_of(ROOT / "docs/compatibility.md", "What differs, on purpose")}
BODY_LIMIT_BYTES = 4096


def call(body: str | bytes, headers: Mapping[str, str] | None = None, model: str = "ident_uint8") -> httpx.Request:
    return httpx.Request("POST", f"http://shoal/v2/models/{model}/infer", content=body, headers=headers)


def call_packed(body: bytes, coding: str) -> httpx.Request:
    headers = {"content-encoding": coding}
    return httpx.Request("POST", "http://shoal/v2/models/ident_uint8/infer", content=body, headers=headers)


def infer_body(*data: int, **more: object) -> str:
    return json.dumps({"inputs": [{"name": "IN", "datatype": "UINT8", "shape": [1, len(data)], "data": data}], **more})


def manage(path: str, body: object, **headers: str) -> httpx.Request:
    sent = {"host": "localhost", **headers}
    return httpx.Request("POST", f"http://shoal/v2/repository/{path}", json=body, headers=sent)


NO_ROWS = '{"inputs":[{"name":"IN","datatype":"UINT8","shape":[0,1],"parameters":{"binary_data_size":1}}]}'
CLASSES = [{"name": "OUT", "parameters": {"classification": 1}}]
EXAMPLES = {
    "a body above --http-max-input-size": [call(" " * (BODY_LIMIT_BYTES + 1))],
    "the same output asked for twice": [call(infer_body(1, outputs=[{"name": "OUT"}, {"name": "OUT"}]))],
    "JSON nested too deeply": [call("[" * 2000 + "]" * 2000)],
    "the same member twice in a JSON object": [call('{"inputs": [], ' + infer_body(1)[1:])],
    "an id or a parameter that is not UTF-8": [call(infer_body(1, id="?").encode().replace(b"?", b"\xff"))],
    "a shape of 2^63 elements or bytes": [call(infer_body(1).replace("[1, 1]", f"[1, {2**63}]"))],
    "a shape of no rows with the data of one": [
        call(f"{NO_ROWS}x", {"Inference-Header-Content-Length": str(len(NO_ROWS))}),
    ],
    "classes of an output without elements": [call(infer_body(outputs=CLASSES))],
    "classes of an output of type BYTES": [
        call(infer_body(1, outputs=CLASSES).replace("UINT8", "BYTES").replace("[1]}", '["a"]}'), model="ident_bytes")
    ],
    "shared memory that a client registers or unregisters": [
        httpx.Request("POST", "http://shoal/v2/systemsharedmemory/region/r/register", json={"key": "k", "byte_size": 1})
    ],
    "a load with file: parameters": [manage("models/simple/load", {"parameters": {"config": "{}", "file:1/x": "AA"}})],
    "a load from a page of another site": [manage("models/simple/load", {}, origin="http://elsewhere")],
    "a body in zstd": [call_packed(zstd.compress(infer_body(1).encode()), "zstd")],
    "a compressed body that is damaged or incomplete": [
        call_packed(gzip.compress(infer_body(1).encode())[:-8] + bytes(8), "gzip"),
        call_packed(gzip.compress(infer_body(1).encode())[:-1], "deflate"),
        call_packed(b"{}", "gzip"),
    ],
    "a percent-encoded name of a model": [httpx.Request("GET", "http://shoal/v2/models/s%69mple")],
    "a version named by a label that the model has": [
        httpx.Request("GET", "http://shoal/v2/models/simple/versions/stable")
    ],
    "an input that is there twice in a body of generate": [
        httpx.Request("POST", "http://shoal/v2/models/ident_uint8/generate", content='{"IN": 1, "IN": 2}')
    ],
    "/ready of an unknown model": [httpx.Request("GET", "http://shoal/v2/models/nothing/ready")],
}

MILLION = json.dumps(
    {
        "inputs": [
            {"name": "IN", "datatype": "UINT8", "shape": [1, 1_000_001], "parameters": {"binary_data_size": 1_000_001}}
        ],
        "outputs": CLASSES,
    }
)
LARGE_EXAMPLES = {
    "classes of more than 1,000,000 elements": [
        call(MILLION.encode() + bytes(1_000_001), {"Inference-Header-Content-Length": str(len(MILLION))})
    ],
    "more than 2,000,000 values in JSON beside the numbers and strings of data, or NaN among them": [
        call('{"x":[' + "0," * 2_000_000 + "0]," + infer_body(1)[1:]),
        call(infer_body(1).replace("[1]}", "[NaN" + ",0" * 2_000_000 + "]}")),
    ],
}


async def register(client: httpx.AsyncClient, name: str, key: str, offset: int = 0, **headers: str) -> httpx.Response:
    body = {"key": key, "byte_size": PAGESIZE, "offset": offset}
    return await client.post(f"/v2/systemsharedmemory/region/{name}/register", json=body, headers=headers)


async def to_region(client: httpx.AsyncClient, offset: int = 0) -> httpx.Response:
    place = {
        "shared_memory_region": "r",
        "shared_memory_byte_size": 2**64 - 1 if offset else 4,
        "shared_memory_offset": offset,
    }
    content = infer_body(1, 2, 3, 4, outputs=[{"name": "OUT", "parameters": place}])
    return await client.post("/v2/models/ident_uint8/infer", content=content)


async def a_second_region(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    await register(client, "r", path.name)
    return await register(client, "s", path.name)


async def a_region_at_an_offset(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    await register(client, "r", path.name, offset=PAGESIZE)
    answer = await to_region(client)
    assert content_of(path)[PAGESIZE : PAGESIZE + 4] == bytes((1, 2, 3, 4))
    return answer


async def memory_of_workers(client: httpx.AsyncClient, _path: Path) -> httpx.Response:
    return await register(client, "r", "triton_python_backend_shm_region_1")


async def an_endless_place(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    await register(client, "r", path.name)
    return await to_region(client, offset=1)


async def shorter_memory(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    await register(client, "r", path.name)
    cut_off(path, 0)
    return await to_region(client)


async def too_many_regions(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    return [await register(client, str(number), path.name) for number in range(1025)][-1]


async def a_page(client: httpx.AsyncClient, path: Path) -> httpx.Response:
    return await register(client, "r", path.name, origin="http://shoal")


SHARED_MEMORY_EXAMPLES = {
    "a second region of the same shared memory": a_second_region,
    "a region that begins at an offset": a_region_at_an_offset,
    "shared memory of Triton's own workers": memory_of_workers,
    "a place in a region whose end is beyond 64 bits": an_endless_place,
    "shared memory that its client has made shorter": shorter_memory,
    "more than 1024 regions": too_many_regions,
    "a registration by a page in a browser": a_page,
}


def test_every_difference_has_an_example_here() -> None:
    assert DIFFERENCES.keys() == {*EXAMPLES, *SHARED_MEMORY_EXAMPLES, *LARGE_EXAMPLES}


@pytest.mark.parametrize("case", EXAMPLES)
async def test_a_difference_is_answered_with_the_status_on_the_page(case: str) -> None:
    control = GuardedControl(FakeControl(), ControlAccess(mode="explicit"))

    async with client_of(FakeEngine(), control, max_body_bytes=BODY_LIMIT_BYTES) as client:
        statuses = {(await client.send(request)).status_code for request in EXAMPLES[case]}

    assert statuses == {int(DIFFERENCES[case][:3])}


@needs_shared_memory
@pytest.mark.parametrize("case", SHARED_MEMORY_EXAMPLES)
async def test_a_difference_in_shared_memory_is_answered_with_the_status_on_the_page(case: str) -> None:
    with segment(bytes(2 * PAGESIZE)) as path:
        async with client_of(FakeEngine(), memory=SharedMemory(is_enabled=True)) as client:
            answer = await SHARED_MEMORY_EXAMPLES[case](client, path)

    assert answer.status_code == int(DIFFERENCES[case][:3])


@pytest.mark.parametrize("case", LARGE_EXAMPLES)
async def test_a_difference_of_large_bodies_is_answered_with_the_status_on_the_page(case: str) -> None:
    async with client_of(FakeEngine()) as client:
        statuses = {(await client.send(request)).status_code for request in LARGE_EXAMPLES[case]}

    assert statuses == {int(DIFFERENCES[case][:3])}


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
