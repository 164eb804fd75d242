"""The whole process in this one: starting, serving, stopping."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import assembly
from gateway.app import Gateway
from gateway.http_server import PortInUseError, bind
from gateway.running import StartupError, Stop
from gateway.settings import Settings
from models.errors import RepositoryError

CONFIG = """
backend: "fake"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}

Visit = Callable[[httpx.AsyncClient], Awaitable[None]]


def add_model(root: Path, name: str, config: str = CONFIG) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    add_model(tmp_path, "echo")
    return tmp_path


def settings(root: Path, **given: Any) -> Settings:
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    free: dict[str, Any] = {**ports, "drain_lead_secs": 0, "model_repository": (root,)}
    return Settings(**{**free, **given})


async def serve(settings: Settings, visit: Visit, number: signal.Signals = signal.SIGINT) -> None:
    """Serve until the visit is over."""

    async def on_ready(url: str) -> None:
        try:
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                await visit(client)
        finally:
            signal.raise_signal(number)

    await assembly.serve(settings, on_ready)


@pytest.mark.parametrize("more", [{}, {"log_requests": True}, {"allow_metrics": False}])
async def test_a_repository_is_served_until_the_signal(root: Path, more: dict[str, Any]) -> None:
    answers: list[httpx.Response] = []

    async def visit(client: httpx.AsyncClient) -> None:
        answers.append(await client.post("/v2/models/echo/infer", json=BODY))
        answers.append(await client.get("/models"))

    await serve(settings(root, **more), visit)

    assert answers[0].json()["outputs"][0]["data"] == [7]
    assert [model["name"] for model in answers[1].json()] == ["echo"]


async def test_during_the_lead_time_the_server_is_not_ready_and_asks_to_close(root: Path) -> None:
    answers: list[httpx.Response] = []

    async def visit(client: httpx.AsyncClient) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)  # the loop's handler runs in the next turn
        answers.append(await client.get("/v2/health/ready"))
        answers.append(await client.post("/v2/models/echo/infer", json=BODY))

    # The second signal, at the end of the visit, ends the hour of lead time.
    await serve(settings(root, drain_lead_secs=3600), visit, signal.SIGTERM)

    assert [answer.status_code for answer in answers] == [503, 200]
    assert [answer.headers["connection"] for answer in answers] == ["close", "close"]


async def nothing(client: httpx.AsyncClient) -> None:
    raise AssertionError("it should not have started")


async def test_a_broken_model_ends_the_start_with_its_reason_in_the_log(root: Path, caplog) -> None:
    add_model(root, "broken", "max_batch_sise: 8")
    add_model(root, "absent", CONFIG + 'parameters { key: "service_row_us" value: { string_value: "x" } }')

    with pytest.raises(StartupError, match="2 problems while loading models"):
        await serve(settings(root, exit_on_error=True), nothing)

    assert "broken/config.pbtxt:1" in caplog.text
    assert "parameter 'service_row_us' is 'x'" in caplog.text


async def test_the_others_are_served_beside_a_broken_model_if_wanted(root: Path, caplog) -> None:
    add_model(root, "broken", "max_batch_sise: 8")
    (root / "echo" / "old").mkdir()
    statuses: list[int] = []

    async def visit(client: httpx.AsyncClient) -> None:
        statuses.append((await client.get("/v2/health/ready")).status_code)
        statuses.append((await client.post("/v2/models/echo/infer", json=BODY)).status_code)

    with caplog.at_level(logging.WARNING):
        await serve(settings(root), visit)

    assert statuses == [400, 200]
    assert "model echo: echo/old: skipped" in caplog.text


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--metrics-port"])
async def test_a_port_in_use_is_named_with_its_flag(root: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {flag.strip("-").replace("-", "_"): port}

        with pytest.raises(PortInUseError) as caught:
            await serve(settings(root, **given), nothing)

    expected = f"cannot listen on 127.0.0.1:{port} (Address already in use); choose another port with {flag}"
    assert str(caught.value) == expected


def test_an_address_that_is_not_here_is_refused() -> None:
    with pytest.raises(PortInUseError, match=r"cannot listen on 203\.0\.113\.1:0"):
        bind("203.0.113.1", 0, "--http-port")


async def test_a_missing_repository_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="nowhere"):
        await serve(settings(tmp_path / "nowhere"), nothing)


def test_a_first_signal_asks_and_a_second_one_forces() -> None:
    stop = Stop()

    stop.on_signal(signal.SIGTERM)
    first = (stop.wanted.is_set(), stop.politely, stop.forced.is_set())
    stop.on_signal(signal.SIGTERM)

    assert first == (True, True, False)
    assert stop.forced.is_set()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/v2", "v2"), ("/v2/models", "v2"), ("/v23", "rest"), ("/", "rest"), ("/classify", "rest")],
)
async def test_a_path_goes_to_its_surface(path: str, expected: str) -> None:
    reached: list[str] = []

    def surface(name: str):
        async def app(scope, receive, send) -> None:
            reached.append(name)

        return app

    async def unused(*_: object) -> Any:
        raise AssertionError("nobody reads or writes")

    await Gateway(surface("v2"), surface("rest"))({"type": "http", "path": path}, unused, unused)

    assert reached == [expected]
