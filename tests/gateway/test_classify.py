"""POST /classify and the pages around it, without a socket."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from batching.core.errors import QueueFullError, ShuttingDownError
from models.errors import VersionNotReadyError
from models.inference import ClassifyRequest, ClassifyResponse, Prediction
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.serving import client_of, echo, mirror, rest_app, serving

GONE = {"type": "http.disconnect"}


class Scripted(FakeEngine):
    """Classifies as it is told and remembers what it was asked."""

    def __init__(self, script: Callable[[ClassifyRequest], object] = lambda _request: None) -> None:
        super().__init__()
        self._script = script
        self.asked: list[ClassifyRequest] = []

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        self.asked.append(request)
        outcome = self._script(request)
        if isinstance(outcome, Exception):
            raise outcome
        result = outcome or (Prediction(index=0, label="cat", probability=1.0),)
        return ClassifyResponse(model="m", version=1, results=(result,), request_id=request.request_id)  # type: ignore[arg-type]


async def test_a_photograph_is_answered_with_labels_and_times() -> None:
    async with serving(mirror()) as service, client_of(service) as client:
        answer = await client.post("/classify?top_k=2", content=b"1")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert [guess["label"] for guess in answer.json()["predictions"]] == ["b", "a"]
    assert answer.headers["server-timing"].startswith("decode;dur=")


async def test_path_query_and_headers_reach_the_engine() -> None:
    engine = Scripted()
    async with client_of(engine) as client:
        await client.post("/classify/m?top_k=7", content=b"x", headers={"x-request-id": "a" * 200})
        await client.post("/classify", json={"images": ["eA=="], "top_k": 3})
        await client.post("/classify", content=b"x")

    assert [(request.model, request.top_k) for request in engine.asked] == [("m", 7), (None, 3), (None, 5)]
    assert engine.asked[0].request_id == "a" * 128


async def test_a_large_body_is_parsed_all_the_same() -> None:
    engine = Scripted()
    async with client_of(engine) as client:
        await client.post("/classify", files={"image": bytes(100_000)})

    assert engine.asked[0].images == (bytes(100_000),)


@pytest.mark.parametrize(
    ("request_of", "expected_status", "text"),
    [
        (lambda client: client.post("/classify", content=bytes(2000)), 413, "exceeds the maximum allowed value"),
        (
            lambda client: client.post("/classify", files=[("i", b"x")] * 3),
            400,
            "found 3 images in one request, expected at most 2",
        ),
        (lambda client: client.post("/classify?top_k=x", content=b"x"), 400, "top_k: found 'x'"),
        (lambda client: client.post("/classify", content=b""), 400, "found 0 bytes"),
        (lambda client: client.get("/nowhere"), 404, "Not Found"),
        (lambda client: client.get("/classify"), 405, "Method Not Allowed"),
    ],
    ids=["too large", "too many", "bad top_k", "empty", "unknown path", "wrong method"],
)
async def test_a_bad_request_never_reaches_the_engine(request_of, expected_status: int, text: str) -> None:
    engine = Scripted()
    async with client_of(engine, max_body_bytes=1000, max_images=2) as client:
        answer = await request_of(client)

    assert answer.status_code == expected_status
    assert text in answer.json()["error"]
    assert engine.asked == []


@pytest.mark.parametrize(
    ("error", "expected_status"),
    [
        (QueueFullError(limit=1, unit="requests"), 429),
        (ShuttingDownError(), 503),
        (VersionNotReadyError("m", 1), 503),
    ],
)
@pytest.mark.parametrize("is_result", [True, False], ids=["of the image", "of the request"])
async def test_what_will_pass_says_when_to_come_back(error: Exception, expected_status: int, is_result: bool) -> None:
    class Failing(Scripted):
        async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
            if is_result:
                return ClassifyResponse(model="m", version=1, results=(error,))
            raise error

    async with client_of(Failing()) as client:
        answer = await client.post("/classify", content=b"x")

    assert (answer.status_code, answer.headers["retry-after"]) == (expected_status, "1")


async def test_a_defect_is_500_without_details_and_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(Scripted(lambda _request: ZeroDivisionError("secret"))) as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.post("/classify", content=b"x")

    assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})
    assert "ZeroDivisionError: secret" in caplog.text


async def test_a_defect_of_another_page_is_500_in_json_too() -> None:
    class Defective(FakeEngine):
        def model_names(self):
            raise ZeroDivisionError

    async with client_of(Defective()) as client:
        answer = await client.get("/models")

    assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})


async def test_models_lists_the_ready_and_the_others() -> None:
    engine = FakeEngine()
    engine.unready.add("simple")
    async with client_of(engine) as client:
        listed = {model["name"]: model for model in (await client.get("/models")).json()}

    assert listed["simple"] == {"name": "simple", "versions": [], "ready": False}
    assert listed["cls"] == {
        "name": "cls",
        "versions": ["1"],
        "ready": True,
        "backend": "fake",
        "policy": "shoal",
        "max_batch_size": 8,
        "instances": 1,
        "classifies_images": False,
    }


async def test_the_index_says_where_to_go_and_openapi_lists_v2_too() -> None:
    async with serving(echo()) as service, client_of(service) as client:
        index, document = await client.get("/"), await client.get("/openapi.json")

    assert index.json()["version"] == "1.2.3"
    assert {"/classify", "/v2/models/{model}/infer"} <= set(document.json()["paths"])


async def answers_after(messages: list[dict[str, object]], engine: FakeEngine) -> list[dict[str, object]]:
    """What is sent to a client from which these messages come, and then nothing more."""
    sent: list[dict[str, object]] = []
    silence = asyncio.Event()

    async def receive() -> dict[str, object]:
        if not messages:
            await silence.wait()
        return messages.pop(0)

    async def send(message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/classify",
        "raw_path": b"/classify",
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("shoal", 80),
    }
    await rest_app(engine)(scope, receive, send)
    return sent


async def test_a_client_that_leaves_while_sending_is_no_request() -> None:
    engine = Scripted()

    sent = await answers_after([{"type": "http.request", "body": b"x", "more_body": True}, GONE], engine)

    assert (sent[0]["status"], engine.asked) == (499, [])


async def test_a_client_that_leaves_while_waiting_cancels_its_classification() -> None:
    outcomes: list[str] = []

    class Waiting(Scripted):
        async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise
            raise AssertionError("nothing ends the wait")

    sent = await answers_after([{"type": "http.request", "body": b"x"}, GONE], Waiting())

    assert (sent[0]["status"], outcomes) == (499, ["cancelled"])


@pytest.mark.parametrize("target", ["/classify", "/classify/mirror"])
@pytest.mark.parametrize("parameter", ["topk", "versoin", "_"])
async def test_an_unknown_query_parameter_is_refused_with_those_that_there_are(target: str, parameter: str) -> None:
    async with serving(mirror()) as service, client_of(service) as client:
        answer = await client.post(f"{target}?{parameter}=1", content=b"1")

    assert answer.status_code == 400
    assert answer.json()["error"] == f"unknown query parameter '{parameter}', expected top_k or version"


@pytest.mark.parametrize(("version", "status"), [("1", 200), ("9", 404), ("nine", 404)])
async def test_a_version_counts_without_a_model_in_the_path(version: str, status: int) -> None:
    async with serving(mirror(), echo()) as service, client_of(service) as client:
        answer = await client.post(f"/classify?version={version}", content=b"1")

    assert answer.status_code == status


async def test_a_version_does_not_choose_between_two_models() -> None:
    async with serving(mirror(), mirror("other")) as service, client_of(service) as client:
        answer = await client.post("/classify?version=1", content=b"1")

    assert (answer.status_code, "name one in the path: mirror, other" in answer.json()["error"]) == (400, True)
