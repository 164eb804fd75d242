"""Starting, refusing to start, draining and stopping of the process."""

import asyncio
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import orjson
import pytest
from PIL import Image

from tests.e2e.models import add_echo
from tests.e2e.server import COMMAND, PATIENCE_S, ROOT, Server, wait_until
from tests.e2e.wire import Answer, ask_once, echoed, infer_body, infer_bytes
from tests.images.pictures import encoded

pytestmark = pytest.mark.e2e

SLOW_US = 1_000_000


def can_bind(address: str) -> bool:
    try:
        socket.create_server((address, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_echo(tmp_path, "slow", base_us=SLOW_US)
    return add_echo(tmp_path, "echo")


async def running_request(server: Server) -> "asyncio.Task[Answer]":
    """A request that an instance is working on."""
    task = asyncio.create_task(ask_once(server.port, infer_bytes("slow", 1)))
    await asyncio.to_thread(
        wait_until, lambda: server.metric("shoal_running_batches", model="slow") == 1, "the slow request to run"
    )
    return task


def is_not_ready(server: Server) -> bool:
    return server.client.get("/v2/health/ready").status_code == 503


async def test_sigterm_first_says_not_ready_then_drains_and_ends_with_0(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--drain-lead-secs=0.7") as server:
        running = await running_request(server)

        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(wait_until, lambda: is_not_ready(server), "readiness to end")
        still_answered = await asyncio.to_thread(server.client.post, "/v2/models/echo/infer", json=infer_body(5))
        answer = await running

        assert echoed(still_answered.json()) == [5]
        assert still_answered.headers["connection"] == "close"
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert echoed(orjson.loads(answer.body)) == [1]
        assert await asyncio.to_thread(server.exit_code) == 0
        assert "Traceback" not in server.log


async def test_sigint_needs_no_lead_and_still_drains(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--drain-lead-secs=3600") as server:
        running = await running_request(server)

        server.send_signal(signal.SIGINT)

        assert (await running).status == 200
        assert await asyncio.to_thread(server.exit_code) == 0


async def test_a_second_sigterm_ends_the_lead_and_does_not_wait_for_what_is_running(tmp_path: Path) -> None:
    repository = add_echo(tmp_path, "slow", base_us=3600 * SLOW_US)
    with Server(f"--model-repository={repository}", "--drain-lead-secs=3600") as server:
        running = await running_request(server)

        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(wait_until, lambda: is_not_ready(server), "readiness to end")
        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.logged, "requests are still running and are given up")

        answer = await running
        assert (answer.status, b"Server is stopping" in answer.body) == (503, True)
        assert await asyncio.to_thread(server.exit_code) == 1
        assert server.logged("a batch does not end; the process ends without it")
        assert "Traceback" not in server.log


async def test_a_request_that_outlasts_the_exit_timeout_is_given_up(tmp_path: Path) -> None:
    repository = add_echo(tmp_path, "slow", base_us=3600 * SLOW_US)
    with Server(f"--model-repository={repository}", "--exit-timeout-secs=0.2") as server:
        running = await running_request(server)

        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.logged, "requests are still running and are given up")

        await asyncio.gather(running, return_exceptions=True)
        assert await asyncio.to_thread(server.exit_code) == 1
        assert server.logged("a batch does not end; the process ends without it")


def start(*flags: str) -> "subprocess.CompletedProcess[str]":
    """A server that is expected to end by itself."""
    command = [*COMMAND, "serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT, check=False)


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_in_use_is_one_line_that_names_the_flag(repository: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = start(f"--model-repository={repository}", f"{flag}={port}", "--log-format=json")

    (line,) = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert ended.returncode == 1
    assert line == f"shoal: cannot listen on 127.0.0.1:{port} (Address already in use); choose another port with {flag}"


@pytest.fixture
def broken(repository: Path) -> Path:
    """A repository with a good model and one whose config.pbtxt has a mistake in its third line."""
    add_echo(repository, "broken")
    (repository / "broken" / "config.pbtxt").write_text('backend: "fake"\n\nmax_batch_sise: 8\n')
    return repository


def test_a_broken_model_ends_the_server_if_wanted_with_file_and_line(broken: Path) -> None:
    ended = start(f"--model-repository={broken}", "--exit-on-error=true")

    assert ended.returncode == 1
    assert "broken/config.pbtxt:3" in ended.stderr
    assert "shoal: 1 problem while loading models" in ended.stderr
    assert "start without --exit-on-error" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("strict", "expected"), [("true", 400), ("false", 200)])
def test_the_others_are_served_beside_a_broken_model(broken: Path, strict: str, expected: int) -> None:
    flags = (f"--model-repository={broken}", f"--strict-readiness={strict}")
    with Server(*flags) as server:
        ready = server.client.get("/v2/health/ready")
        good = server.client.post("/v2/models/echo/infer", json=infer_body(3))
        bad = server.client.post("/v2/models/broken/infer", json=infer_body(3))
        listed = {model["name"]: model["ready"] for model in server.client.get("/models").json()}

    assert ready.status_code == expected
    assert echoed(good.json()) == [3]
    assert bad.status_code == 404
    assert "'broken' has no available versions" in bad.json()["error"]
    assert listed == {"broken": False, "echo": True, "slow": True}


def test_a_missing_repository_is_one_line(tmp_path: Path) -> None:
    ended = start(f"--model-repository={tmp_path / 'nowhere'}")

    assert ended.returncode == 1
    assert "nowhere: found No such file or directory" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_without_metrics_there_is_no_second_port(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--allow-metrics=false") as server:
        assert server.logged("listening")["metrics_port"] is None
        assert server.client.get("/v2/health/live").status_code == 200


@pytest.mark.skipif(not can_bind("::1"), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address_is_served_and_shown_in_brackets(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--http-address=::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert httpx.get(f"{server.url}/v2/health/ready", trust_env=False).status_code == 200


def test_request_lines_are_logged_if_wanted(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--log-requests=true") as server:
        server.client.post("/v2/models/echo/infer", json=infer_body(3, id="a-7"))

        line = server.logged("request")

    assert (line["call"], line["model"], line["request_id"], line["outcome"]) == ("infer", "echo", "a-7", "ok")


def test_one_port_for_both_servers_is_an_error_in_one_line(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    ended = start(f"--model-repository={repository}", f"--http-port={port}", f"--metrics-port={port}")

    assert ended.returncode == 1
    assert "--metrics-port" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_forced_end_answers_those_whose_images_are_being_decoded() -> None:
    picture = encoded(Image.new("RGB", (8000, 7500), "green"))  # a small file that takes long to decode
    with Server("--drain-lead-secs=0") as server, ThreadPoolExecutor(16) as clients:
        calls = [clients.submit(httpx.post, f"{server.url}/classify", content=picture, timeout=30) for _ in range(16)]
        model = "efficientnet-lite0"
        wait_until(lambda: server.metric("shoal_reserved_requests", model=model) >= 10, "images to be admitted")

        server.send_signal(signal.SIGTERM)
        server.logged("draining")
        server.send_signal(signal.SIGTERM)
        statuses = {call.result().status_code for call in calls}

        server.exit_code()
        assert 503 in statuses
        assert statuses <= {200, 503}
        assert "Traceback" not in server.log
