"""What happens to requests whose shared memory changes under them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.v2.app import V2Surface
from gateway.v2.limits import V2Limits
from gateway.v2.shared_memory import INLINE_BYTES, SharedMemory
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.segments import content_of, cut_off, fill, needs_shared_memory, open_files, segment
from tests.gateway.v2.serving import client_of

pytestmark = needs_shared_memory

ROW = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture
def path() -> Iterator[Path]:
    with segment(ROW.tobytes() + bytes(48)) as made:
        yield made


@pytest.fixture
def memory(path: Path) -> SharedMemory:
    made = SharedMemory(is_enabled=True)
    made.register("r", path.name, 0, 64)
    return made


def place(size_bytes: int = 16, offset: int = 0) -> dict[str, Any]:
    return {"shared_memory_region": "r", "shared_memory_byte_size": size_bytes, "shared_memory_offset": offset}


def body(**output: Any) -> str:
    """From the region's start to its byte 16."""
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 4], "parameters": place()}
    target = {"name": "OUT", "parameters": place(offset=16, **output)}
    return json.dumps({"inputs": [tensor], "outputs": [target]})


async def infer(client: httpx.AsyncClient, content: str, model: str = "ident_fp32") -> httpx.Response:
    return await client.post(f"/v2/models/{model}/infer", content=content)


async def test_an_answer_in_shared_memory_has_no_data_of_its_own(memory: SharedMemory, path: Path) -> None:
    async with client_of(FakeEngine(), memory=memory) as client:
        answer = await infer(client, body())

    assert answer.json()["outputs"] == [{"name": "OUT", "datatype": "FP32", "shape": [1, 4]}]
    assert content_of(path)[16:32] == ROW.tobytes()


async def test_a_request_reads_its_input_before_it_waits(memory: SharedMemory, path: Path) -> None:
    engine = FakeEngine()
    async with client_of(engine, memory=memory) as client, asyncio.TaskGroup() as group:
        call = group.create_task(infer(client, body(), "hold"))
        await engine.hold_entered.wait()
        fill(path, bytes(64))
        engine.hold_released.set()

    assert call.result().status_code == 200
    assert content_of(path)[16:32] == ROW.tobytes()


async def test_unregistering_does_not_disturb_a_request_that_waits(memory: SharedMemory, path: Path) -> None:
    engine = FakeEngine()
    async with client_of(engine, memory=memory) as client, asyncio.TaskGroup() as group:
        call = group.create_task(infer(client, body(), "hold"))
        await engine.hold_entered.wait()
        gone = await client.post("/v2/systemsharedmemory/unregister")
        engine.hold_released.set()

    assert (gone.status_code, call.result().status_code) == (200, 200)
    assert content_of(path)[16:32] == ROW.tobytes()
    assert str(path) not in open_files()


async def test_memory_that_is_cut_off_while_a_request_waits_is_refused(memory: SharedMemory, path: Path) -> None:
    engine = FakeEngine()
    async with client_of(engine, memory=memory) as client, asyncio.TaskGroup() as group:
        call = group.create_task(infer(client, body(), "hold"))
        await engine.hold_entered.wait()
        cut_off(path, 20)
        engine.hold_released.set()

    text = "Invalid offset + byte size for shared memory region: 'r'"
    assert (call.result().status_code, call.result().json()) == (400, {"error": text})
    assert content_of(path) == ROW.tobytes() + bytes(4)


async def test_one_request_cannot_read_more_than_the_limit_however_many_inputs_it_names(path: Path) -> None:
    memory = SharedMemory(is_enabled=True, max_read_bytes=128)
    memory.register("r", path.name, 0, 64)
    tensor = {"datatype": "FP32", "shape": [1, 16], "parameters": place(64)}
    content = json.dumps({"inputs": [{**tensor, "name": str(number)} for number in range(3)]})

    async with client_of(FakeEngine(), memory=memory) as client:
        answer = await infer(client, content)

    assert answer.status_code in (400, 413)
    assert "192 bytes in shared memory" in answer.json()["error"]


async def test_large_tensors_are_copied_off_the_event_loop() -> None:
    size_bytes = 2 * INLINE_BYTES
    offloaded: list[object] = []

    async def offload(function: Any) -> Any:
        offloaded.append(function)
        return await asyncio.to_thread(function)

    with segment(bytes(size_bytes)) as path:
        memory = SharedMemory(is_enabled=True)
        memory.register("r", path.name, 0, size_bytes)
        surface = V2Surface(FakeEngine(), V2Limits(), offload=offload, server_version="1.2.3", memory=memory)
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, size_bytes // 4], "parameters": place(size_bytes)}
        content = json.dumps({"inputs": [tensor], "outputs": [{"name": "OUT", "parameters": place(size_bytes)}]})
        transport = httpx.ASGITransport(app=surface)
        async with httpx.AsyncClient(transport=transport, base_url="http://shoal") as client:
            answer = await infer(client, content)

    assert answer.status_code == 200
    assert len(offloaded) == 2  # once for reading, once for writing
