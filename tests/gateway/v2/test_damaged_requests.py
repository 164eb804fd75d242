"""Requests with members changed, added and left out at random: an answer or an error that somebody foresaw."""

import asyncio
import copy
import json
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import pytest

from gateway.v2.shared_memory import SharedMemory
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.segments import needs_shared_memory, segment
from tests.gateway.v2.serving import client_of

pytestmark = needs_shared_memory

Place = tuple[Any, Any]
"""A list or object, and an index or key of it."""

REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 4}
MEMBERS = (
    "parameters", "shape", "data", "datatype", "name", "binary_data_size", "classification", "binary_data", "inputs",
    "outputs", "sequence_id", "sequence_start", "priority", "timeout", "id", "triton_x", *REGION,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1.5, -1e308, True, False, None, "", "x", "\0",
    "é", "r", "IN", "FP32", "BYTES", "a" * 300, [], [[]], {}, {"a": 1}, [1] * 50, "NaN", [2**62, 4], [0, 2**63 - 1],
    [[1, 2], [3, 4]], [None], [{}], float("nan"), float("-inf"), {"b64": "AA=="},
)  # fmt: skip


def tensor(datatype: str, shape: list[int], name: str = "IN", **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def binary(size_bytes: int) -> dict[str, Any]:
    return {"binary_data_size": size_bytes}


STRINGS = struct.pack("<I3sI2s", 3, b"abc", 2, "é".encode())
GOOD: tuple[tuple[str, dict[str, Any], bytes], ...] = (
    (
        "ident_fp32",
        {
            "id": "a",
            "inputs": [tensor("FP32", [1, 4], data=[1, 2.5, -3e5, 0])],
            "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
            "parameters": {"priority": 1, "timeout": 1000, "x": "y"},
        },
        b"",
    ),
    ("ident_fp32", {"inputs": [tensor("FP32", [1, 4], parameters=binary(16))]}, bytes(16)),
    ("ident_bytes", {"inputs": [tensor("BYTES", [1, 2], parameters=binary(13))]}, STRINGS),
    ("ident_bytes", {"inputs": [tensor("BYTES", [2, 1], data=[["a"], ["é"]])]}, b""),
    (
        "simple",
        {
            "inputs": [
                tensor("INT32", [1, 16], "INPUT0", data=list(range(16))),
                tensor("INT32", [1, 16], "INPUT1", parameters=binary(64)),
            ],
            "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 3}}, {"name": "OUTPUT1"}],
        },
        bytes(64),
    ),
    ("ident_bool", {"inputs": [tensor("BOOL", [1, 2], data=[True, False])]}, b""),
    ("ident_fp16", {"inputs": [tensor("FP16", [1, 4], parameters=binary(8))]}, bytes(8)),
    (
        "ident_fp32",
        {
            "inputs": [tensor("FP32", [1, 4], parameters=REGION)],
            "outputs": [{"name": "OUT", "parameters": REGION}],
        },
        b"",
    ),
)


def places(value: Any) -> Iterator[Place]:
    """Every place in a tree of lists and objects."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield value, key
        yield from places(item)


def damage(random: Random, tree: dict[str, Any]) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 2, 3))):
        container, key = random.choice(list(places(tree)) or [(tree, "inputs")])
        kind = random.random()
        if kind < 0.6:
            container[key] = copy.deepcopy(random.choice(VALUES))
        elif kind < 0.75:
            container.pop(key, None) if isinstance(container, dict) else container.pop(key)
        elif isinstance(container, dict):
            container[random.choice(MEMBERS)] = copy.deepcopy(random.choice(VALUES))
        else:
            container.insert(key, copy.deepcopy(random.choice(VALUES)))
    return tree


async def answers_of(seed: int, count: int) -> list[httpx.Response]:
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    with segment(bytes(64)) as path:
        memory = SharedMemory(is_enabled=True)
        memory.register("r", path.name, 0, 64)
        async with client_of(FakeEngine(), memory=memory, max_body_bytes=1 << 20) as client:
            return [await ask(client, random) for _ in range(count)]


async def ask(client: httpx.AsyncClient, random: Random) -> httpx.Response:
    model, tree, blob = random.choice(GOOD)
    text = json.dumps(damage(random, tree)).encode()
    length = len(text) + random.choice((0, 0, 0, 0, 0, 1, -1, 16))
    headers = {"Inference-Header-Content-Length": str(length)} if blob or random.random() < 0.5 else {}
    async with asyncio.timeout(10):
        return await client.post(f"/v2/models/{model}/infer", content=text + blob, headers=headers)


def check(answers: list[httpx.Response]) -> None:
    refusals = [answer for answer in answers if answer.status_code != 200]
    assert 0 < len(refusals) < len(answers)
    assert {answer.status_code for answer in refusals} <= {400, 404, 500, 501}
    texts = [answer.json()["error"] for answer in refusals]
    assert "internal error" not in texts
    assert all(texts)


@pytest.mark.parametrize("seed", range(5))
async def test_damaged_requests_get_an_answer_or_a_typed_error(seed: int) -> None:
    answers = await answers_of(seed, 300)

    check(answers)


@pytest.mark.slow
async def test_many_damaged_requests_get_an_answer_or_a_typed_error() -> None:
    answers = await answers_of(100, 5000)

    check(answers)
