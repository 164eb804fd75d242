"""The surface as an ASGI application, without a socket."""

import asyncio
import gzip
import logging
import zlib
from collections.abc import AsyncIterator, Callable

import httpx
import numpy as np
import orjson
import pytest

from backends.errors import ExecutionError
from batching.core.errors import DeadlineExceededError, QueueFullError, ShuttingDownError, TooManyRowsError
from gateway.v2.app import V2Surface
from gateway.v2.limits import V2Limits
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of, make_surface

INFER = "/v2/models/simple/infer"
ONE_TO_SIXTEEN = list(range(1, 17))
SIMPLE = {
    "id": "42",
    "inputs": [
        {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "data": ONE_TO_SIXTEEN},
        {"name": "INPUT1", "datatype": "INT32", "shape": [1, 16], "data": [[1] * 16]},
    ],
}
SUM, DIFFERENCE = [n + 1 for n in ONE_TO_SIXTEEN], [n - 1 for n in ONE_TO_SIXTEEN]
HOLD = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}'


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(engine) as client:
        yield client


async def test_health_has_no_body_and_not_ready_is_400(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    live, ready = await client.get("/v2/health/live"), await client.get("/v2/health/ready")
    engine.ready = False
    not_ready = await client.get("/v2/health/ready")

    assert [(reply.status_code, reply.content) for reply in (live, ready, not_ready)] == [
        (200, b""), (200, b""), (400, b""),
    ]  # fmt: skip


async def test_server_metadata_lists_only_what_is_served(client: httpx.AsyncClient) -> None:
    reply = await client.get("/v2")

    assert reply.json() == {
        "name": "shoal",
        "version": "1.2.3",
        "extensions": [
            "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
            "model_configuration", "system_shared_memory", "binary_tensor_data", "parameters", "statistics", "trace",
            "logging",
        ],
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/v2/models/simple", "/v2/models/simple/versions/1", "/v2/models/s%69mple"])
async def test_model_metadata_has_string_versions_and_the_batch_dimension(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path)

    assert reply.json() == {
        "name": "simple",
        "versions": ["1"],
        "platform": "fake",
        "inputs": [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in range(2)],
        "outputs": [{"name": f"OUTPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in range(2)],
    }


async def test_model_config_is_the_specs(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    reply = await client.get("/v2/models/simple/config")

    assert reply.json() == engine.model("simple").config
    assert reply.json()["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}


async def test_model_readiness(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    ready = await client.get("/v2/models/simple/ready")
    engine.unready.add("simple")
    loading = await client.get("/v2/models/simple/versions/1/ready")
    unknown = await client.get("/v2/models/nobody/ready")

    assert (ready.status_code, ready.content) == (200, b"")
    assert (loading.status_code, loading.json()) == (400, {"error": "Model version not ready"})
    assert unknown.status_code == 404


async def test_statistics_count_and_have_every_member(client: httpx.AsyncClient) -> None:
    await client.post(INFER, content=orjson.dumps(SIMPLE))

    one = (await client.get("/v2/models/simple/versions/1/stats")).json()["model_stats"]
    everything = (await client.get("/v2/models/stats")).json()["model_stats"]

    assert len(one) == 1
    assert one[0] in everything
    assert len(everything) > 5
    assert one[0]["version"] == "1"
    assert set(one[0]["inference_stats"]) == {
        "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss",
    }  # fmt: skip
    assert one[0]["inference_stats"]["success"] == {"count": 1, "ns": 1000}
    assert one[0]["batch_stats"][0]["batch_size"] == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/models/nobody/stats", "requested model 'nobody' is not available"),
        ("/v2/models/simple/versions/9/stats", "requested model version is not available for model 'simple'"),
    ],
)
async def test_statistics_of_something_unknown_are_400(client: httpx.AsyncClient, path: str, text: str) -> None:
    reply = await client.get(path)

    assert (reply.status_code, reply.json()) == (400, {"error": text})


async def test_a_version_may_be_named_by_its_label(client: httpx.AsyncClient) -> None:
    replies = [await client.get(f"/v2/models/simple/versions/{version}") for version in ("stable", "1", "01")]

    assert [reply.json()["versions"] for reply in replies] == [["1"]] * 3


@pytest.mark.parametrize("version", ["abc", "-1", "1.0", "٣"])
async def test_an_unknown_label_is_not_found(client: httpx.AsyncClient, version: str) -> None:
    reply = await client.get(f"/v2/models/simple/versions/{version}")

    assert (reply.status_code, reply.json()) == (404, {"error": "Not Found"})


@pytest.mark.parametrize(
    "path",
    [
        "/v2/", "/v2/models/simple/", "/v2/models", "/V2", "/v2/models//infer",
        "/v2/models/simple/versions/1/infer/x", "/v2/models/simple/nothing",
    ],
)  # fmt: skip
async def test_other_paths_are_not_found(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path)

    assert (reply.status_code, reply.json()) == (404, {"error": "Not Found"})
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", INFER), ("POST", "/v2"), ("POST", "/v2/models/simple"), ("PUT", INFER), ("DELETE", "/v2/health/live")],
)
async def test_other_methods_are_not_allowed(client: httpx.AsyncClient, method: str, path: str) -> None:
    reply = await client.request(method, path)

    assert reply.status_code == 405
    assert "allow" not in reply.headers
    assert reply.content == b'{"error":"Method Not Allowed"}'


async def test_the_method_is_checked_before_the_model(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v2/models/nobody/infer")).status_code == 405


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/models/nobody/infer", "Request for unknown model: 'nobody' is not found"),
        ("/v2/models/simple/versions/99/infer", "Request for unknown model: 'simple' version 99 is not found"),
    ],
)
async def test_an_unknown_model_is_404_whatever_the_body(client: httpx.AsyncClient, path: str, text: str) -> None:
    reply = await client.post(path, content=b"{bad")

    assert (reply.status_code, reply.json()) == (404, {"error": text})


async def test_a_version_beyond_all_numbers_is_400(client: httpx.AsyncClient) -> None:
    reply = await client.get(f"/v2/models/simple/versions/{'9' * 5000}")

    assert reply.status_code == 400
    assert reply.json()["error"].endswith("(details: stol), version should be an integral value > 0")


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
async def test_a_server_that_ends_says_so(client: httpx.AsyncClient, engine: FakeEngine, path: str) -> None:
    engine.stopping = True

    reply = await client.get(path)

    assert (reply.status_code, reply.json()) == (503, {"error": "Server exiting"})


@pytest.mark.parametrize("path", ["/%76%32", "/v2/models%2Fsimple", "/v2/models/simple%2Fready", "/v2/%6Cogging"])
async def test_only_names_are_percent_decoded(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_a_body_split_anywhere_gives_the_same_answer(client: httpx.AsyncClient) -> None:
    body = orjson.dumps(SIMPLE)
    whole = await client.post(INFER, content=body)

    async def pieces(at: int) -> AsyncIterator[bytes]:
        yield body[:at]
        yield body[at:]

    answers = {(await client.post(INFER, content=pieces(at))).content for at in range(len(body) + 1)}

    assert answers == {whole.content}


async def test_leading_zeros_of_a_version_do_not_matter(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v2/models/simple/versions/0001")).status_code == 200


async def test_a_version_that_is_loading_is_503(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.unready.add("simple")

    reply = await client.post(INFER, content=orjson.dumps(SIMPLE))

    assert reply.status_code == 503
    assert reply.json()["error"] == "Request for unknown model: 'simple' version 1 is not at ready state"


async def test_json_in_json_out(client: httpx.AsyncClient) -> None:
    reply = await client.post(INFER, content=orjson.dumps(SIMPLE), headers={"content-type": "text/plain"})

    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in reply.headers
    assert reply.json() == {
        "id": "42",
        "model_name": "simple",
        "model_version": "1",
        "outputs": [
            {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16], "data": SUM},
            {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 16], "data": DIFFERENCE},
        ],
    }


LISTED = [{"name": "OUTPUT1"}, {"name": "OUTPUT0", "parameters": {"binary_data": True}}]


@pytest.mark.parametrize(
    ("outputs", "default", "expected"),
    [
        (None, False, [("OUTPUT0", "json"), ("OUTPUT1", "json")]),
        ([], True, [("OUTPUT0", "binary"), ("OUTPUT1", "binary")]),
        (LISTED, True, [("OUTPUT0", "binary"), ("OUTPUT1", "json")]),
        (LISTED[:1], False, [("OUTPUT1", "json")]),
    ],
)
async def test_which_outputs_are_binary(client: httpx.AsyncClient, outputs, default, expected) -> None:
    body = {
        **SIMPLE,
        "parameters": {"binary_data_output": default},
        **({} if outputs is None else {"outputs": outputs}),
    }

    reply = await client.post(INFER, content=orjson.dumps(body))

    length = int(reply.headers.get("inference-header-content-length", len(reply.content)))
    items = orjson.loads(reply.content[:length])["outputs"]
    assert [(item["name"], "json" if "data" in item else "binary") for item in items] == expected
    sizes = [item["parameters"]["binary_data_size"] for item in items if "parameters" in item]
    assert len(reply.content) == length + sum(sizes)


async def test_a_raw_request_gets_a_binary_answer(client: httpx.AsyncClient) -> None:
    values = np.arange(8, dtype=np.float32)

    reply = await client.post(
        "/v2/models/ident_fp32/infer",
        content=values.tobytes(),
        headers={"inference-header-content-length": "0"},
    )

    length = int(reply.headers["inference-header-content-length"])
    assert orjson.loads(reply.content[:length])["outputs"][0]["shape"] == [1, 8]
    assert reply.content[length:] == values.tobytes()


async def test_an_empty_body_is_an_empty_raw_request(client: httpx.AsyncClient) -> None:
    reply = await client.post(INFER)

    assert reply.status_code == 400
    assert reply.json()["error"].startswith("[request id: <id_unknown>] Raw request must only have 1 input")


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("request_coding", PACKERS)
@pytest.mark.parametrize("reply_coding", PACKERS)
async def test_both_ways_compressed_is_the_same(client: httpx.AsyncClient, request_coding, reply_coding) -> None:
    reply = await client.post(
        INFER,
        content=PACKERS[request_coding](orjson.dumps(SIMPLE)),
        headers={"content-encoding": request_coding, "accept-encoding": reply_coding},
    )

    assert reply.headers["content-encoding"] == reply_coding
    assert reply.json()["outputs"][0]["data"] == SUM


async def test_an_unknown_coding_is_501_and_names_the_known_ones(client: httpx.AsyncClient) -> None:
    reply = await client.post(INFER, content=b"x", headers={"content-encoding": "br"})

    assert (reply.status_code, reply.headers["accept-encoding"]) == (501, "gzip, deflate")
    assert reply.json()["error"].startswith("Unsupported compression type")


async def test_errors_are_never_compressed(client: httpx.AsyncClient) -> None:
    reply = await client.post(INFER, content=b"{bad", headers={"accept-encoding": "gzip"})

    assert reply.status_code == 500
    assert "content-encoding" not in reply.headers


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"x" * 1001, {}),
        (b"x", {"content-length": "9" * 30}),
        (zlib.compress(b"x" * 1001), {"content-encoding": "deflate"}),
    ],
    ids=["sent", "announced", "unpacked"],
)
async def test_a_body_over_the_limit_is_400_with_a_hint(engine: FakeEngine, content, headers) -> None:
    async with client_of(engine, max_body_bytes=1000) as client:
        reply = await client.post(INFER, content=content, headers=headers)

    assert reply.status_code == 400
    assert "exceeds the maximum allowed value of 1000 bytes. Use --http-max-input-size" in reply.json()["error"]
    assert engine.requests == []


async def test_a_chunked_body_over_the_limit_is_400_before_its_end(engine: FakeEngine) -> None:
    sent_chunks = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_chunks
        while sent_chunks < 1000:
            sent_chunks += 1
            yield b"x" * 100

    async with client_of(engine, max_body_bytes=1000) as client:
        reply = await client.post(INFER, content=endless())

    assert reply.status_code == 400
    assert sent_chunks < 20


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (QueueFullError(limit=1, unit="requests"), 503, "[request id: 42] Exceeds maximum queue size"),
        (DeadlineExceededError(), 503, "Request timeout expired"),
        (ShuttingDownError(), 503, "Server is stopping"),
        (TooManyRowsError(rows=9, limit_rows=8), 400, "request has 9 rows"),
        (ExecutionError("the model's own text"), 500, "the model's own text"),
    ],
)
async def test_errors_of_the_engine_get_tritons_codes(error: Exception, status: int, text: str) -> None:
    async with client_of(FakeEngine({"simple": error})) as client:
        reply = await client.post(INFER, content=orjson.dumps(SIMPLE))

    assert reply.status_code == status
    assert reply.json()["error"].startswith(text)


async def test_a_defect_is_an_internal_error_whose_trace_is_only_in_the_log(caplog) -> None:
    async with client_of(FakeEngine({"simple": ZeroDivisionError("secret")})) as client:
        reply = await client.post(INFER, content=orjson.dumps(SIMPLE))

    assert (reply.status_code, reply.json()) == (500, {"error": "internal error"})
    assert "ZeroDivisionError: secret" in caplog.text


async def test_a_misfit_is_reported_with_the_requests_id(client: httpx.AsyncClient) -> None:
    body = {**SIMPLE, "inputs": SIMPLE["inputs"][:1]}  # type: ignore[index]

    with_id = await client.post(INFER, content=orjson.dumps(body))
    without = await client.post(INFER, content=orjson.dumps({**body, "id": ""}))

    assert with_id.status_code == 400
    assert with_id.json()["error"].startswith("[request id: 42] expected 2 inputs but got 1 inputs for model 'simple'")
    assert without.json()["error"].startswith("[request id: <id_unknown>] expected 2 inputs")


async def test_classes_come_with_labels(client: httpx.AsyncClient) -> None:
    body = {
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [0.1, 0.7, 0.2, 0]}],
        "outputs": [{"name": "OUT", "parameters": {"classification": 2}}],
    }

    reply = await client.post("/v2/models/cls/infer", content=orjson.dumps(body))

    assert reply.json()["outputs"] == [
        {"name": "OUT", "datatype": "BYTES", "shape": [1, 2], "data": ["0.700000:1:dog", "0.200000:2"]}
    ]


async def test_slow_bodies_and_answers_leave_the_event_loop() -> None:
    offloaded: list[str] = []

    async def offload(function):
        offloaded.append(function.func.__name__)
        return function()

    surface = V2Surface(
        FakeEngine(), V2Limits(inline_bytes=1000, inline_elements=100), offload=offload, server_version=""
    )
    shape = [1, 1000]
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": shape, "data": [0.5] * 1000}]}
    transport = httpx.ASGITransport(app=surface)
    async with httpx.AsyncClient(transport=transport, base_url="http://shoal") as client:
        small = await client.post(INFER, content=orjson.dumps(SIMPLE))
        assert offloaded == []

        large = await client.post(
            "/v2/models/ident_fp32/infer", content=orjson.dumps(body), headers={"accept-encoding": "gzip"}
        )

    assert (small.status_code, large.status_code) == (200, 200)
    assert offloaded == ["decode_json", "render", "deflate"]
    assert large.json()["outputs"][0]["data"] == [0.5] * 1000


class Connection:
    """One client that can leave."""

    def __init__(self, path: str, body: bytes) -> None:
        self.scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        self.sent: list[dict[str, object]] = []
        self._messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": body})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, object]:
        return await self._messages.get()

    async def send(self, message: dict[str, object]) -> None:
        self.sent.append(message)

    async def call(self, surface: V2Surface) -> None:
        await surface(self.scope, self.receive, self.send)  # type: ignore[arg-type]


async def test_a_client_that_leaves_cancels_its_request_and_nothing_is_sent_or_logged(engine, caplog) -> None:
    caplog.set_level(logging.DEBUG, logger="gateway")
    connection = Connection("/v2/models/hold/infer", HOLD)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        call = group.create_task(connection.call(make_surface(engine)))
        await engine.hold_entered.wait()

        connection.leave()

        await call
    assert [engine.happened.get_nowait() for _ in range(2)] == ["entered", "cancelled"]
    assert engine.happened.empty()
    assert connection.sent == []
    assert caplog.records == []
    assert call.cancelling() == 0


async def test_a_client_that_leaves_before_its_body_is_complete_is_forgotten(engine: FakeEngine) -> None:
    connection = Connection("/v2/models/hold/infer", HOLD)
    await connection.receive()
    connection.leave()

    await connection.call(make_surface(engine))

    assert connection.sent == []
    assert engine.requests == []


async def test_a_client_that_stays_gets_its_answer_after_a_wait(engine: FakeEngine) -> None:
    connection = Connection("/v2/models/hold/infer", HOLD)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        call = group.create_task(connection.call(make_surface(engine)))
        await engine.hold_entered.wait()

        engine.hold_released.set()

        await call
    assert connection.sent[0]["status"] == 200


async def test_cancelling_the_call_itself_is_not_swallowed(engine: FakeEngine) -> None:
    connection = Connection("/v2/models/hold/infer", HOLD)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        call = group.create_task(connection.call(make_surface(engine)))
        await engine.hold_entered.wait()

        call.cancel()

    assert call.cancelled()
    assert [engine.happened.get_nowait() for _ in range(2)] == ["entered", "cancelled"]
    assert engine.happened.empty()


async def test_an_answer_that_nobody_takes_is_no_error(engine: FakeEngine, caplog) -> None:
    connection = Connection("/v2/models/ident_fp32/infer", HOLD)

    async def broken(message) -> None:
        raise BrokenPipeError

    await make_surface(engine)(connection.scope, connection.receive, broken)

    assert len(engine.requests) == 1
    assert caplog.records == []
