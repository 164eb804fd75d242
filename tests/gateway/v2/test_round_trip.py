"""Whatever is sent comes back; whatever is broken is a 4xx."""

import asyncio
import copy
import time

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models.tensors import DataType
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of

SHAPES = st.tuples(st.integers(1, 8), st.integers(0, 5))


def post(model: str, content: bytes, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
    async def call() -> tuple[int, bytes, dict[str, str]]:
        async with client_of(FakeEngine()) as client:
            reply = await client.post(f"/v2/models/{model}/infer", content=content, headers=headers)
            return reply.status_code, reply.content, dict(reply.headers)

    return asyncio.run(call())


def arrays_of(data_type: DataType, shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
    if data_type is DataType.BYTES:
        return hnp.arrays(np.object_, shape, elements=st.binary(max_size=9))
    if data_type is DataType.BF16:
        return hnp.arrays(np.uint16, shape).map(lambda bits: bits.view(ml_dtypes.bfloat16))
    return hnp.arrays(data_type.numpy, shape)


def pack(array: np.ndarray) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    return b"".join(len(element).to_bytes(4, "little") + element for element in array.reshape(-1))


@pytest.mark.parametrize("data_type", DataType, ids=lambda data_type: data_type.value)
@given(data=st.data())
@settings(max_examples=15)
def test_binary_tensors_come_back_bit_for_bit(data_type: DataType, data: st.DataObject) -> None:
    array = data.draw(SHAPES.flatmap(lambda shape: arrays_of(data_type, shape)))
    blob = pack(array)
    item = {"name": "IN", "datatype": data_type.value, "shape": array.shape}
    item["parameters"] = {"binary_data_size": len(blob)}
    text = orjson.dumps({"inputs": [item], "parameters": {"binary_data_output": True}})

    status, content, headers = post(
        f"ident_{data_type.value.lower()}", text + blob, {"Inference-Header-Content-Length": str(len(text))}
    )

    length = int(headers.get("inference-header-content-length", len(content)))
    assert status == 200
    assert orjson.loads(content[:length])["outputs"][0]["shape"] == list(array.shape)
    assert content[length:] == blob


JSON_TYPES = [data_type for data_type in DataType if data_type not in (DataType.FP16, DataType.BF16)]


def json_arrays_of(data_type: DataType, shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
    if data_type is DataType.BYTES:
        return hnp.arrays(np.object_, shape, elements=st.text(max_size=5))
    if data_type in (DataType.FP32, DataType.FP64):
        width = 32 if data_type is DataType.FP32 else 64
        finite = st.floats(width=width, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
        return hnp.arrays(data_type.numpy, shape, elements=finite)
    return hnp.arrays(data_type.numpy, shape)


@pytest.mark.parametrize("data_type", JSON_TYPES, ids=lambda data_type: data_type.value)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@given(data=st.data())
@settings(max_examples=10)
def test_json_tensors_come_back_exactly(data_type: DataType, nested: bool, data: st.DataObject) -> None:
    array = data.draw(SHAPES.flatmap(lambda shape: json_arrays_of(data_type, shape)))
    values = array.tolist() if nested else array.reshape(-1).tolist()
    item = {"name": "IN", "datatype": data_type.value, "shape": array.shape, "data": values}

    status, content, _ = post(f"ident_{data_type.value.lower()}", orjson.dumps({"inputs": [item]}), {})

    output = orjson.loads(content)["outputs"][0]
    assert status == 200
    assert output["data"] == array.reshape(-1).tolist()


GOOD = {
    "id": "1",
    "parameters": {"binary_data_output": False, "priority": 1, "x": "y"},
    "inputs": [
        {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": list(range(16))},
        {"name": "INPUT1", "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}},
    ],
    "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 1, "binary_data": True}}],
}
PATHS = [
    ("id",), ("parameters",), ("parameters", "priority"), ("parameters", "x"), ("inputs",), ("inputs", 0),
    ("inputs", 0, "name"), ("inputs", 0, "datatype"), ("inputs", 0, "shape"), ("inputs", 0, "shape", 1),
    ("inputs", 0, "data"), ("inputs", 0, "data", 3), ("inputs", 1, "parameters"),
    ("inputs", 1, "parameters", "binary_data_size"), ("outputs",), ("outputs", 0), ("outputs", 0, "name"),
    ("outputs", 0, "parameters"), ("outputs", 0, "parameters", "classification"),
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "INPUT0", "INPUT1", "BYTES", "FP32", "FP16", "\x00", "é"])
)
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=5)


def mutated(path: tuple[str | int, ...], value: object) -> bytes:
    body = copy.deepcopy(GOOD)
    target = body
    for step in path[:-1]:
        target = target[step]  # type: ignore[index]
    target[path[-1]] = value  # type: ignore[index]
    return orjson.dumps(body)


@given(path=st.sampled_from(PATHS), value=JUNK)
@settings(max_examples=200)
def test_a_body_with_one_wrong_member_is_never_the_servers_fault(path: tuple[str | int, ...], value: object) -> None:
    text = mutated(path, value)
    started_s = time.monotonic()

    status, content, _ = post("simple", text + bytes(64), {"Inference-Header-Content-Length": str(len(text))})

    assert status == 200 or orjson.loads(content)["error"] not in ("", "internal error")
    assert time.monotonic() - started_s < 2


@given(at=st.integers(0, 400), junk=st.binary(min_size=1, max_size=4), length=st.integers(0, 500))
@settings(max_examples=100)
def test_a_body_with_wrong_bytes_or_lengths_is_never_the_servers_fault(at: int, junk: bytes, length: int) -> None:
    text = orjson.dumps(GOOD) + bytes(64)
    broken = text[:at] + junk + text[at + len(junk) :]

    status, content, _ = post("simple", broken, {"Inference-Header-Content-Length": str(length)})

    assert status == 200 or orjson.loads(content)["error"] not in ("", "internal error")
