"""/generate and /generate_stream, as Triton 2.51 answers them."""

from typing import Any

import orjson
import pytest

from backends.errors import ExecutionError
from batching.core.errors import DeadlineExceededError, QueueFullError
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of

PREFIX = b'"model_name":"ident_fp32","model_version":"1"}'


async def generate(model: str, body: object, *, path: str = "generate", engine: FakeEngine | None = None) -> Any:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    async with client_of(engine or FakeEngine()) as client:
        return await client.post(f"/v2/models/{model}/{path}", content=content)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"IN": 1.5}', b'{"OUT":1.5,'),
        (b'{"IN": [1.5]}', b'{"OUT":1.5,'),
        (b'{"IN": [1, 2, 3]}', b'{"OUT":[1.0,2.0,3.0],'),
        (b'{"IN": NaN}', b'{"OUT":NaN,'),
        (b'{"parameters": {"IN": 2}}', b'{"OUT":2.0,'),
        (b'{"IN": 1, "id": "abc"}', b'{"OUT":1.0,"id":"abc",'),
    ],
)
async def test_members_named_like_inputs_are_the_inputs_and_outputs_are_flat(body: bytes, text: bytes) -> None:
    reply = await generate("ident_fp32", body)

    assert (reply.status_code, reply.content) == (200, text + PREFIX)
    assert reply.headers["content-type"] == "application/json"


async def test_a_string_is_a_tensor_of_one() -> None:
    reply = await generate("ident_str", {"IN": 'h\u00e9 "\n'})

    assert reply.json()["OUT"] == 'h\u00e9 "\n'


async def test_the_innermost_variable_dimension_takes_what_is_left() -> None:
    engine = FakeEngine()

    await generate("simple", {"INPUT0": [1] * 32, "INPUT1": [2] * 32}, engine=engine)
    await generate("ident_fp32", {"IN": [1] * 32}, engine=engine)

    assert [request.inputs[name].shape for request, name in zip(engine.requests, ("INPUT0", "IN"), strict=True)] == [
        (2, 16),
        (1, 32),
    ]


async def test_other_members_are_parameters() -> None:
    engine = FakeEngine()

    await generate(
        "ident_fp32", {"IN": 1, "a": 1, "sequence_id": 3, "id": "i", "parameters": {"b": True, "c": "d"}}, engine=engine
    )

    assert engine.requests[0].parameters == {"a": 1, "sequence_id": 3, "id": "i", "b": True, "c": "d"}
    assert engine.requests[0].sequence_id == 0


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
        (b"[]", 500, "attempt to get members for non-object"),
        ({"IN": 1, "id": 3}, 500, "Unable to parse 'id': attempt to access JSON non-string as string"),
        ({"IN": "x"}, 500, "Unable to parse 'data': attempt to access JSON non-number as double"),
        ({"IN": None}, 500, "Unable to parse 'data': attempt to access JSON non-number as double"),
        ({"IN": [[1, 2]]}, 500, "Unable to parse 'data': Shape does not match true shape of 'data' field"),
        (
            {"IN": 1, "x": [1]},
            400,
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"IN": 1, "parameters": {"x": None}},
            400,
            "Converting keyword: 'parameters': parameter 'x' has invalid type. It should be either 'int', 'bool', or "
            "'string'.",
        ),
        (
            {"IN": 1, "parameters": []},
            500,
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
        ),
        (
            {"IN": 1, "parameters": {"IN": 2}},
            400,
            "Converting keyword: 'parameters': [request id: <id_unknown>] input 'IN' already exists in request",
        ),
        (
            {"id": "r"},
            400,
            "[request id: r] expected 1 inputs but got 0 inputs for model 'ident_fp32'. Got input(s) [], but missing "
            "required input(s) ['IN']. Please provide all required input(s).",
        ),
    ],
)
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
async def test_what_is_wrong_before_inference_is_told_in_plain_json(
    body: object, status: int, text: str, path: str
) -> None:
    reply = await generate("ident_fp32", body, path=path)

    assert (reply.status_code, reply.json()) == (status, {"error": text})
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("count", [0, 15, 17])
async def test_elements_that_do_not_make_the_shape_are_refused(count: int) -> None:
    reply = await generate("simple", {"INPUT0": [1] * count} if count else {"INPUT0": {}})

    assert reply.status_code == 400
    assert reply.json()["error"] == "The schema can not convert input 'INPUT0' to tensor with proper shape"


async def test_halves_have_no_json_form() -> None:
    reply = await generate("ident_fp16", {"IN": 1})

    assert reply.status_code == 400
    assert reply.json()["error"].startswith("receiving FP16 data via JSON is not supported.")


async def test_a_stream_has_one_event() -> None:
    reply = await generate("ident_fp32", {"IN": 1}, path="versions/1/generate_stream")

    assert (reply.status_code, reply.content) == (200, b'data: {"OUT":1.0,' + PREFIX + b"\n\n")
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("error", [ExecutionError("the model's own text"), DeadlineExceededError()])
async def test_errors_of_the_model_are_400_and_an_event_of_a_stream(error: Exception) -> None:
    engine = FakeEngine({"ident_fp32": error})

    plain = await generate("ident_fp32", {"IN": 1}, engine=engine)
    event = await generate("ident_fp32", {"IN": 1}, engine=engine, path="generate_stream")

    assert (plain.status_code, event.status_code) == (400, 400)
    assert event.content == b"data: " + plain.content + b"\n\n"


async def test_a_full_queue_is_told_before_inference() -> None:
    engine = FakeEngine({"ident_fp32": QueueFullError(limit=1, unit="requests")})

    reply = await generate("ident_fp32", {"IN": 1}, engine=engine, path="generate_stream")

    assert (reply.status_code, reply.headers["content-type"]) == (503, "application/json")


async def test_only_plain_bodies_are_read() -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.post("/v2/models/ident_fp32/generate", content=b"", headers={"content-encoding": "gzip"})

    text = "Unsupported content-encoding, only 'identity' is supported."
    assert (reply.status_code, reply.json()) == (400, {"error": text})


@pytest.mark.parametrize(("model", "status"), [("nothing/generate", 404), ("ident_fp32/versions/7/generate", 404)])
async def test_an_unknown_model_is_not_found(model: str, status: int) -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.post(f"/v2/models/{model}", content=b"{")

    assert reply.status_code == status


async def test_other_methods_are_not_allowed() -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.get("/v2/models/ident_fp32/generate")

    assert reply.status_code == 405
