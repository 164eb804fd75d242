"""Index, load and unload, as Triton words them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from gateway.control_access import ControlAccess, GuardedControl
from models.errors import LoadFailedError, UnknownModelError
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of, make_surface, served

LOAD = "/v2/repository/models/echo/load"
UNLOAD = "/v2/repository/models/echo/unload"
OPEN = ControlAccess(mode="explicit")


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
async def client(control: FakeControl) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(FakeEngine(), GuardedControl(control, OPEN)) as client:
        client.base_url = httpx.URL("http://localhost:8000")
        yield client


async def post(client: httpx.AsyncClient, path: str, body: object = None) -> tuple[int, Any]:
    content = body if isinstance(body, (bytes, str)) else b"" if body is None else json.dumps(body)
    reply = await client.post(path, content=content)
    return reply.status_code, reply.json() if reply.content else None


@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/repository/any/index"])
@pytest.mark.parametrize("body", [None, {}, {"ready": False}, "[]"])
async def test_the_index_lists_every_version_and_models_that_were_never_loaded(
    client: httpx.AsyncClient, path: str, body: object
) -> None:
    answer = await post(client, path, body)

    assert answer == (
        200,
        [
            {"name": "asleep"},
            {"name": "echo", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": "echo", "version": "2", "state": "READY"},
        ],
    )


async def test_the_index_may_be_of_ready_versions_only(client: httpx.AsyncClient) -> None:
    answer = await post(client, "/v2/repository/index", {"ready": True})

    assert answer == (200, [{"name": "echo", "version": "2", "state": "READY"}])


async def test_ready_must_be_a_boolean(client: httpx.AsyncClient) -> None:
    status, answer = await post(client, "/v2/repository/index", {"ready": 1})

    assert (status, answer["error"]) == (500, "attempt to access JSON non-boolean as boolean")


@pytest.mark.parametrize("body", [None, {}, {"parameters": {}}, {"other": 1}])
async def test_a_load_answers_with_nothing_when_it_is_done(
    client: httpx.AsyncClient, control: FakeControl, body: object
) -> None:
    answer = await post(client, LOAD, body)

    assert (answer, control.calls) == ((200, None), [("load", "echo", None)])


async def test_a_configuration_comes_as_a_text(client: httpx.AsyncClient, control: FakeControl) -> None:
    config = json.dumps({"max_batch_size": 4})

    answer = await post(client, LOAD, {"parameters": {"config": config}})

    assert (answer, control.calls) == ((200, None), [("load", "echo", config)])


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"parameters": {"file:1/model.onnx": "AAAA"}}, 400, "expected no files in a request"),
        ({"parameters": {"config": "{}", "file:../../evil": "AAAA"}}, 400, "expected no files in a request"),
        ({"parameters": {"confg": "{}"}}, 500, "unexpected error on creating Triton parameter"),
        ({"parameters": {"config": {"max_batch_size": 4}}}, 500, "non-string as string"),
        ({"parameters": {"config": " "}}, 500, "failed to load 'echo', failed to poll from model repository"),
        ({"parameters": []}, 500, "attempt to get members for non-object"),
        (" ", 500, "The document is empty. at 1"),
        ("{", 500, "failed to parse the request JSON buffer"),
        ("[" * 100_000, 400, "JSON is nested too deeply"),
    ],
)
async def test_what_a_load_cannot_use_is_refused(
    client: httpx.AsyncClient, control: FakeControl, body: object, status: int, text: str
) -> None:
    answer, found = await post(client, LOAD, body)

    assert (answer, text in found["error"], control.calls) == (status, True, [])


@pytest.mark.parametrize("name", [".hidden", "a b", "a;id", "\u00fc", "n" * 300, "a\n", "a\0", "..%2f..", "\\x"])
async def test_a_name_that_no_model_can_have_is_none_of_a_model(
    client: httpx.AsyncClient, control: FakeControl, name: str
) -> None:
    load_status, load = await post(client, f"/v2/repository/models/{quote(name)}/load")
    unload = await post(client, f"/v2/repository/models/{quote(name)}/unload")

    assert (load_status, load["error"].endswith("failed to poll from model repository")) == (500, True)
    assert (unload, control.calls) == ((200, None), [])


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (UnknownModelError("echo"), 500, "failed to load 'echo', failed to poll from model repository"),
        (LoadFailedError("echo", "version 1 is at UNAVAILABLE state: x\n"), 400, "load failed for model 'echo': "),
    ],
)
async def test_a_load_that_fails_says_why(
    client: httpx.AsyncClient, control: FakeControl, error: Exception, status: int, text: str
) -> None:
    control.error = error

    answer, found = await post(client, LOAD)

    assert (answer, found["error"].startswith(text)) == (status, True)


@pytest.mark.parametrize(
    ("body", "dependents"),
    [(None, False), ({"parameters": {"unload_dependents": True}}, True), ({"parameters": {}}, False)],
)
async def test_an_unload_may_take_others_along(
    client: httpx.AsyncClient, control: FakeControl, body: object, dependents: bool
) -> None:
    answer = await post(client, UNLOAD, body)

    assert (answer, control.calls) == ((200, None), [("unload", "echo", dependents)])


@pytest.mark.parametrize("body", [{"parameters": {"unload_dependents": "yes"}}, {"parameters": []}, "{", "[]"])
async def test_what_an_unload_cannot_read_counts_as_nothing(
    client: httpx.AsyncClient, control: FakeControl, body: object
) -> None:
    answer = await post(client, UNLOAD, body)

    assert (answer, control.calls) == ((200, None), [("unload", "echo", False)])


async def test_a_repository_cannot_be_named(client: httpx.AsyncClient, control: FakeControl) -> None:
    answer = await post(client, "/v2/repository/mine/models/echo/load")

    assert answer == (501, {"error": "'repository_name' specification is not supported"})
    assert control.calls == []


@pytest.mark.parametrize("control", [GuardedControl(FakeControl(), ControlAccess()), None], ids=["forbidden", "none"])
@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_in_other_modes_the_verbs_are_unavailable(control: GuardedControl | None, path: str) -> None:
    async with client_of(FakeEngine(), control) as client:
        status, answer = await post(client, path)

    text = "explicit model load / unload is not allowed if polling is enabled"
    assert (status, answer["error"].startswith(text)) == (503, True)


async def test_the_index_needs_no_control() -> None:
    async with client_of(FakeEngine()) as client:
        status, answer = await post(client, "/v2/repository/index")

    assert status == 200
    assert {"name": "simple", "version": "1", "state": "READY"} in answer


async def test_a_large_body_is_refused_before_it_is_read(control: FakeControl) -> None:
    async with client_of(FakeEngine(), GuardedControl(control, OPEN), max_body_bytes=100) as client:
        client.base_url = httpx.URL("http://localhost")
        status, _ = await post(client, LOAD, " " * 101)

    assert (status, control.calls) == (400, [])


async def test_a_load_goes_on_when_its_client_leaves(control: FakeControl) -> None:
    surface = make_surface(FakeEngine(), GuardedControl(control, OPEN))
    control.released.clear()
    messages = iter([{"type": "http.request"}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(_message: object) -> None:
        raise OSError("the client has left")

    scope = {"type": "http", "method": "POST", "path": LOAD, "headers": [(b"host", b"localhost")]}
    async with asyncio.TaskGroup() as group:
        group.create_task(surface(scope, receive, send))
        await control.entered.wait()
        control.released.set()

    assert control.calls == [("load", "echo", None)]


def test_the_unmodified_client_can_index_load_and_unload() -> None:
    control = FakeControl()

    with served(FakeEngine(), GuardedControl(control, OPEN)) as port:
        client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        index = client.get_model_repository_index()
        client.load_model("echo", config='{"max_batch_size": 4}')
        client.unload_model("echo", unload_dependents=True)
        with pytest.raises(InferenceServerException, match="expected no files in a request"):
            client.load_model("echo", config="{}", files={"file:1/model.onnx": b"x"})
        client.close()

    assert [entry["name"] for entry in index] == ["asleep", "echo", "echo"]
    assert control.calls == [("load", "echo", '{"max_batch_size": 4}'), ("unload", "echo", True)]
