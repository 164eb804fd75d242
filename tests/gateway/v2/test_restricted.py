"""Calls that need a header, and headers that models see."""

import asyncio

import httpx
import orjson
import pytest

from gateway.app import create_rest_app
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.restricted_rest import RestrictedRest
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.restricted import CATEGORIES, RestrictedFeatures
from gateway.v2.surface_settings import SurfaceSettings
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of

PATHS = {
    "/v2": "metadata",
    "/v2/models/simple": "metadata",
    "/v2/health/live": "health",
    "/v2/health/ready": "health",
    "/v2/models/simple/versions/1/ready": "health",
    "/v2/models/simple/config": "model-config",
    "/v2/models/simple/stats": "statistics",
    "/v2/models/stats": "statistics",
    "/v2/models/simple/infer": "inference",
    "/v2/models/simple/generate": "inference",
    "/v2/models/simple/generate_stream": "inference",
    "/v2/trace/setting": "trace",
    "/v2/models/simple/trace/setting": "trace",
    "/v2/logging": "logging",
    "/v2/repository/index": "model-repository",
    "/v2/repository/models/simple/load": "model-repository",
    "/v2/systemsharedmemory/status": "shared-memory",
    "/v2/cudasharedmemory/unregister": "shared-memory",
}
ALL = SurfaceSettings(restricted=RestrictedFeatures.parse([f"{name}:{name}-Key=secret" for name in CATEGORIES]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_a_restricted_call_without_its_header_is_refused_before_anything_else(path: str, method: str) -> None:
    async with client_of(FakeEngine(), settings=ALL) as client:
        reply = await client.request(method, path)

    text = f"This API is restricted, expecting header '{PATHS[path]}-Key'"
    assert (reply.status_code, reply.json()) == (403, {"error": text})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("METADATA-key", "secret")], 200),
        ([("metadata-key", "Secret")], 403),
        ([("metadata-key", "secre")], 403),
        ([("metadata-key", "x"), ("metadata-key", "secret")], 403),
        ([("health-key", "secret")], 403),
    ],
)
async def test_name_and_value_of_the_header_count(headers: list[tuple[str, str]], status: int) -> None:
    async with client_of(FakeEngine(), settings=ALL) as client:
        reply = await client.get("/v2", headers=headers)

    assert reply.status_code == status


async def test_what_is_not_restricted_is_free_and_other_paths_are_not_found() -> None:
    settings = SurfaceSettings(restricted=RestrictedFeatures.parse(["metadata,inference:k=v"]))

    async with client_of(FakeEngine(), settings=settings) as client:
        statuses = [(await client.get(path)).status_code for path in ("/v2/health/live", "/v2/nothing", "/v2")]

    assert statuses == [200, 404, 403]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (["foo:k=v"], "found the category 'foo', expected one of health, metadata"),
        (["health:k=v", "health:a=b"], "found the category 'health' twice"),
        (["health,health:k=v"], "found the category 'health' twice"),
        (["health:k"], "expected <category>,<category>:<header>=<value>"),
        (["health:=v"], "expected <category>,<category>:<header>=<value>"),
        (["health:k="], "expected <category>,<category>:<header>=<value>"),
        (["health"], "expected <category>,<category>:<header>=<value>"),
        ([":k=v"], "found the category ''"),
    ],
)
def test_a_group_that_means_nothing_is_refused(groups: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RestrictedFeatures.parse(groups)


def test_a_value_may_hold_what_separates() -> None:
    assert RestrictedFeatures.parse(["health:k=a=b:c,d"]).header_for("health") == ("k", "a=b:c,d")


async def test_headers_that_match_are_parameters_of_the_request() -> None:
    engine = FakeEngine()
    settings = SurfaceSettings(forwarding=HeaderForwarding.parse("X-.*|.*secret"))
    body = {
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}],
        "parameters": {"x-one": 1, "own": 2},
    }
    headers = [("x-one", "a"), ("my-SECRET", "b"), ("x-one", "last"), ("secret2", "no"), ("cookie", "no")]

    async with client_of(engine, settings=settings) as client:
        await client.post("/v2/models/ident_fp32/infer", content=orjson.dumps(body), headers=headers)

    assert engine.requests[0].parameters == {"x-one": "last", "own": 2, "my-secret": "b"}


async def test_a_header_that_is_no_text_cannot_be_forwarded() -> None:
    settings = SurfaceSettings(forwarding=HeaderForwarding.parse("x-.*"))
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}'

    async with client_of(FakeEngine(), settings=settings) as client:
        reply = await client.post("/v2/models/ident_fp32/infer", content=body, headers=[(b"x-one", b"\xff")])

    assert (reply.status_code, "no UTF-8" in reply.json()["error"]) == (400, True)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a regular expression"):
        HeaderForwarding.parse("(x")


async def test_the_answer_to_a_wrong_method_needs_the_header_too() -> None:
    async with client_of(FakeEngine(), settings=ALL) as client:
        reply = await client.post("/v2", headers={"metadata-Key": "secret"})

    assert reply.status_code == 405


@pytest.mark.parametrize(
    ("path", "category"),
    [
        ("/classify", "inference"),
        ("/classify/m", "inference"),
        ("/models", "metadata"),
        ("/models/m/config", "model-config"),
        ("/models/m/scale", "model-repository"),
    ],
)
async def test_the_paths_beside_v2_are_no_way_around(path: str, category: str) -> None:
    engine = FakeEngine()
    limits = ClassifyLimits()
    rest = create_rest_app(engine, ClassifySurface(engine, limits, offload=asyncio.to_thread), "1.2.3")
    transport = httpx.ASGITransport(app=RestrictedRest(rest, ALL.restricted))

    async with httpx.AsyncClient(transport=transport, base_url="http://shoal") as client:
        refused = await client.post(path)
        passed = await client.post(path, headers={f"{category}-key": "secret"})
        free = await client.get("/")

    assert refused.json() == {"error": f"This API is restricted, expecting header '{category}-Key'"}
    assert (refused.status_code, passed.status_code == 403, free.status_code) == (403, False, 200)
