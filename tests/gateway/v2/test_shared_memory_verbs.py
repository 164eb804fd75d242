import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.v2.shared_memory import SharedMemory
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.segments import needs_shared_memory, segment
from tests.gateway.v2.serving import client_of

pytestmark = needs_shared_memory

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
HANDLE = {"b64": b64encode(bytes(64)).decode()}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(FakeEngine(), memory=SharedMemory(is_enabled=True)) as made:
        yield made


@pytest.fixture
async def closed_client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(FakeEngine()) as made:
        yield made


@pytest.fixture
def key() -> Iterator[str]:
    with segment(bytes(4096)) as path:
        yield path.name


async def register(client: httpx.AsyncClient, body: Any, place: str = f"{SYSTEM}/region/r") -> httpx.Response:
    return await client.post(f"{place}/register", content=body if isinstance(body, str) else json.dumps(body))


async def test_a_registered_region_is_in_the_status(client: httpx.AsyncClient, key: str) -> None:
    answer = await register(client, {"key": f"/{key}", "byte_size": 64})

    statuses = [(await client.get(f"{SYSTEM}{path}/status")).json() for path in ("", "/region/r")]

    assert (answer.status_code, answer.content) == (200, b"")
    assert statuses == [[{"name": "r", "key": f"/{key}", "offset": 0, "byte_size": 64}]] * 2


@pytest.mark.parametrize("path", ["/region/r", ""])
async def test_an_unregistered_region_is_gone(client: httpx.AsyncClient, key: str, path: str) -> None:
    await register(client, {"key": key, "byte_size": 64})

    answer = await client.post(f"{SYSTEM}{path}/unregister")

    assert (answer.status_code, answer.content) == (200, b"")
    assert (await client.get(f"{SYSTEM}/status")).json() == []


@pytest.mark.parametrize("place", [SYSTEM, f"{SYSTEM}/region/x", CUDA, f"{CUDA}/region/x"])
async def test_unregistering_what_is_not_there_is_no_error(client: httpx.AsyncClient, place: str) -> None:
    answer = await client.post(f"{place}/unregister", content="not read")

    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "Shared memory register request has no 'key' field"),
        ({"byte_size": 1}, 400, "Shared memory register request has no 'key' field"),
        ({"key": "k"}, 400, "Shared memory register request has no 'byte_size' field"),
        ({"key": 1}, 500, "attempt to access JSON non-string as string"),
        ({"key": "k", "byte_size": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "k", "byte_size": "1"}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "k", "byte_size": True}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "k", "byte_size": 1.0}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "k", "offset": None}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "k", "offset": 10**23}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "shoal-test-absent", "byte_size": 1}, 500, "Unable to open shared memory region: 'shoal-test-absent'"),
        ({"key": "../x", "byte_size": 1}, 500, "Unable to open shared memory region: '../x'"),
    ],
)
async def test_a_bad_registration_is_refused_in_tritons_words(
    client: httpx.AsyncClient, body: Any, status: int, text: str
) -> None:
    answer = await register(client, body)

    assert (answer.status_code, answer.json()) == (status, {"error": text})


async def test_a_second_registration_is_refused_in_tritons_words(client: httpx.AsyncClient, key: str) -> None:
    first, second = [await register(client, {"key": key, "byte_size": 64}) for _ in range(2)]

    assert first.status_code == 200
    assert (second.status_code, second.json()) == (400, {"error": "shared memory region 'r' already in manager"})


async def test_a_registration_beyond_the_end_is_refused_in_tritons_words(client: httpx.AsyncClient, key: str) -> None:
    answer = await register(client, {"key": key, "byte_size": 4097})

    text = "failed to register shared memory region 'r': invalid args"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "Shared memory register request has no 'raw_handle' field"),
        ({"raw_handle": 3}, 500, "attempt to access non-existing object member 'b64'"),
        ({"raw_handle": {"b64": 3}}, 500, "attempt to access JSON non-string as string"),
        ({"raw_handle": HANDLE}, 500, "attempt to access non-existing object member 'byte_size'"),
        ({"raw_handle": HANDLE, "byte_size": 1}, 500, "attempt to access non-existing object member 'device_id'"),
        (
            {"raw_handle": HANDLE, "byte_size": 1, "device_id": -1},
            500,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"raw_handle": {"b64": "!!"}, "byte_size": 1, "device_id": 0},
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        (
            {"raw_handle": {"b64": "AAAA"}, "byte_size": 1, "device_id": 0},
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        (
            {"raw_handle": HANDLE, "byte_size": 1, "device_id": 0},
            400,
            "failed to register shared memory region: invalid args",
        ),
    ],
)
async def test_gpu_memory_is_refused_in_the_words_of_a_triton_without_a_gpu(
    client: httpx.AsyncClient, body: Any, status: int, text: str
) -> None:
    answer = await register(client, body, f"{CUDA}/region/r")

    assert (answer.status_code, answer.json()) == (status, {"error": text})


@pytest.mark.parametrize(("place", "kind"), [(SYSTEM, "system"), (CUDA, "cuda")])
async def test_a_registration_without_a_name_is_refused(client: httpx.AsyncClient, place: str, kind: str) -> None:
    answer = await register(client, {}, place)

    text = f"'region name' is necessary to register {kind} shared memory region"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


@pytest.mark.parametrize(("place", "kind"), [(SYSTEM, "system"), (CUDA, "cuda")])
async def test_the_status_of_an_unknown_region_is_404(client: httpx.AsyncClient, place: str, kind: str) -> None:
    one, every = await client.get(f"{place}/region/x/status"), await client.get(f"{place}/status")

    text = f"Unable to find {kind} shared memory region: 'x'"
    assert (one.status_code, one.json()) == (404, {"error": text})
    assert (every.status_code, every.json()) == (200, [])


@pytest.mark.parametrize("place", [SYSTEM, f"{SYSTEM}/region/x", CUDA, f"{CUDA}/region/x"])
@pytest.mark.parametrize(("method", "verb"), [("POST", "status"), ("GET", "register"), ("GET", "unregister")])
async def test_another_method_is_405(client: httpx.AsyncClient, method: str, place: str, verb: str) -> None:
    answer = await client.request(method, f"{place}/{verb}")

    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})


@pytest.mark.parametrize("path", ["/", "/x", "/region/r", "/region//register", "/region/a/b/register", "/region/r/x"])
async def test_any_other_path_is_404(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(SYSTEM + path)

    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


@pytest.mark.parametrize("place", [SYSTEM, CUDA])
@pytest.mark.parametrize("verb", ["region/r/register", "region/r/unregister", "unregister", "register"])
async def test_a_server_that_does_not_allow_it_says_which_flag_would(
    closed_client: httpx.AsyncClient, place: str, verb: str
) -> None:
    answer = await closed_client.post(f"{place}/{verb}", content="{}")

    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    assert (answer.status_code, answer.json()) == (501, {"error": text})


@pytest.mark.parametrize("place", [SYSTEM, CUDA])
async def test_a_server_that_does_not_allow_it_still_tells_its_status(
    closed_client: httpx.AsyncClient, place: str
) -> None:
    answer = await closed_client.get(f"{place}/status")

    assert (answer.status_code, answer.json()) == (200, [])


async def test_a_page_in_a_browser_cannot_register_anything(client: httpx.AsyncClient, key: str) -> None:
    body = json.dumps({"key": key, "byte_size": 64})

    answer = await client.post(f"{SYSTEM}/region/r/register", content=body, headers={"origin": "http://shoal"})

    assert answer.status_code == 403
    assert (await client.get(f"{SYSTEM}/status")).json() == []


async def test_a_registration_has_a_largest_size(client: httpx.AsyncClient) -> None:
    answer = await register(client, {"key": "k" * 100_000, "byte_size": 1})

    assert answer.status_code in (400, 413)
