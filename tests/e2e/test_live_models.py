"""Models that are replaced, added and broken under a running server, over its sockets."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.zoo.embedded import MODEL_NAME, write_repository
from tests.e2e.models import add_echo
from tests.e2e.server import PATIENCE_S, Server, wait_until
from tests.e2e.wire import echoed, infer_body

pytestmark = pytest.mark.e2e

REPLACEMENTS = 50
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


class Traffic:
    """Requests one after the other from several threads, until the block ends."""

    def __init__(self, url: str, path: str, clients: int = 3) -> None:
        self._url = f"{url}{path}"
        self._over = threading.Event()
        self._clients = clients
        self.answers = 0
        self.failures: list[str] = []

    @contextmanager
    def flowing(self) -> Iterator[None]:
        with ThreadPoolExecutor(self._clients) as threads:
            works = [threads.submit(self._ask, number) for number in range(self._clients)]
            try:
                wait_until(lambda: self.answers > self._clients, "the first answers")
                yield
            finally:
                self._over.set()
        for work in works:
            work.result()

    def _ask(self, number: int) -> None:
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
            value = number
            while not self._over.is_set():
                answer = client.post(self._url, json=infer_body(value))
                if answer.status_code == 200 and echoed(answer.json()) == [value]:
                    self.answers += 1
                else:
                    self.failures.append(f"{answer.status_code} {answer.text[:200]}")
                value = (value + 1) % 1000


def load(server: Server, model: str, **body: Any) -> httpx.Response:
    return server.client.post(f"/v2/repository/models/{model}/load", json=body or None)


def index(server: Server) -> dict[tuple[str, str], tuple[str, str]]:
    entries = server.client.post("/v2/repository/index").json()
    return {
        (entry["name"], entry.get("version", "")): (entry.get("state", ""), entry.get("reason", ""))
        for entry in entries
    }


def batch_size(root: Path, rows: int) -> None:
    """Another configuration of the model `echo`, so that it has to be loaded again."""
    config = root / "echo" / "config.pbtxt"
    text = re.sub(r"max_batch_size: \d+", f"max_batch_size: {rows}", config.read_text())
    config.write_text(text)
    os.utime(config, ns=(rows, rows))


@pytest.mark.parametrize("path", ["/v2/models/echo/infer", "/v2/models/echo/versions/1/infer"], ids=["latest", "named"])
def test_a_version_is_replaced_fifty_times_under_traffic_and_nobody_notices(tmp_path: Path, path: str) -> None:
    add_echo(tmp_path, "echo")
    with Server(f"--model-repository={tmp_path}", *EXPLICIT) as server:
        traffic = Traffic(server.url, path)
        with traffic.flowing():
            for number in range(REPLACEMENTS):
                batch_size(tmp_path, 2 + number)
                assert load(server, "echo").status_code == 200

        shown = server.client.get("/v2/models/echo/config").json()
        assert traffic.failures == []
        assert (shown["max_batch_size"], traffic.answers > REPLACEMENTS) == (1 + REPLACEMENTS, True)


def test_polling_follows_new_versions_under_traffic_and_never_serves_half_a_copy(tmp_path: Path) -> None:
    write_repository(tmp_path)
    model = tmp_path / MODEL_NAME
    whole = (model / "1" / "model.onnx").read_bytes()
    add_echo(tmp_path, "echo")
    flags = (f"--model-repository={tmp_path}", "--model-control-mode=poll", "--repository-poll-secs=0.2")
    with Server(*flags) as server:
        traffic = Traffic(server.url, "/v2/models/echo/infer", 1)
        with traffic.flowing():
            (model / "2").mkdir()
            with (model / "2" / "model.onnx").open("wb", buffering=0) as file:
                for start in range(0, len(whole), 1 << 20):
                    file.write(whole[start : start + (1 << 20)])
                    before = traffic.answers
                    wait_until(lambda before=before: traffic.answers > before + 20, "time to pass")
                    assert "2" not in server.client.get(f"/v2/models/{MODEL_NAME}").json()["versions"]
            wait_until(
                lambda: server.client.get(f"/v2/models/{MODEL_NAME}/versions/2/ready").status_code == 200, "version 2"
            )
            wait_until(lambda: index(server)[MODEL_NAME, "1"][0] == "UNAVAILABLE", "version 1 to end")

        assert traffic.failures == []
        assert "ERROR" not in server.log


def python_model(root: Path, name: str, code: str) -> None:
    add_echo(root, name)
    config = (root / name / "config.pbtxt").read_text().replace('"fake"', '"python"')
    (root / name / "config.pbtxt").write_text(config)
    (root / name / "1" / "model.py").write_text(code)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """One good model and five broken ones, each in a way of its own."""
    add_echo(tmp_path, "echo")
    for name in ("bad_config", "no_file", "bad_file"):
        add_echo(tmp_path, name)
    (tmp_path / "bad_config" / "config.pbtxt").write_text('backend: "fake"\n\nmax_batch_sise: 8\n')
    for name in ("no_file", "bad_file"):
        config = tmp_path / name / "config.pbtxt"
        config.write_text(config.read_text().replace('"fake"', '"onnxruntime"'))
    (tmp_path / "bad_file" / "1" / "model.onnx").write_bytes(b"\x08not a model")
    python_model(tmp_path, "raises", "raise RuntimeError('no weights here')\n")
    python_model(tmp_path, "hangs", "import threading\nthreading.Event().wait()\n")
    return tmp_path


def test_a_good_model_is_served_while_five_broken_ones_are_tried(mixed: Path) -> None:
    with Server(f"--model-repository={mixed}", wait=False) as server:
        wait_until(lambda: server.client.get("/v2/models/echo/ready").status_code == 200, "the good model", 3)
        answer = server.client.post("/v2/models/echo/infer", json=infer_body(3))
        wait_until(lambda: "no weights here" in index(server)["raises", "1"][1], "the broken models")
        found = index(server)

        assert echoed(answer.json()) == [3]
        assert server.client.get("/v2/health/ready").status_code == 400
        assert server.client.get("/v2/health/live").status_code == 200
        assert found["hangs", "1"][0] == "LOADING"
        reasons = {name: reason for (name, _), (_, reason) in found.items()}
        assert "bad_config/config.pbtxt:3: max_batch_sise" in reasons["bad_config"]
        assert "no such file" in reasons["no_file"]
        assert "bad_file" in reasons["bad_file"]
        assert "model.py:1" in reasons["raises"]


def test_a_server_that_is_still_loading_can_be_stopped(mixed: Path) -> None:
    with Server(f"--model-repository={mixed}", wait=False) as server:
        wait_until(lambda: server.client.get("/v2/models/echo/ready").status_code == 200, "the good model")

        server.send_signal(signal.SIGTERM)

        assert server.exit_code() == 0
        assert "Traceback" not in server.log


def test_scaling_to_zero_answers_what_is_queued_refuses_what_comes_and_is_undone(tmp_path: Path) -> None:
    add_echo(tmp_path, "echo", max_batch_size=1, base_us=300_000)
    with Server(f"--model-repository={tmp_path}", *EXPLICIT) as server, ThreadPoolExecutor(8) as threads:
        assert server.client.post("/models/echo/scale?instances=2").status_code == 200
        queued = [
            threads.submit(server.client.post, "/v2/models/echo/infer", json=infer_body(value)) for value in range(7)
        ]
        wait_until(lambda: server.metric("shoal_admitted_requests_total", model="echo") == 7, "all to be queued")

        scaled = threads.submit(server.client.post, "/models/echo/scale?instances=0")
        wait_until(
            lambda: server.client.post("/v2/models/echo/infer", json=infer_body(1)).status_code == 503, "a refusal"
        )
        refusal = server.client.post("/v2/models/echo/infer", json=infer_body(1))
        assert scaled.result().status_code == 200
        server.client.post("/models/echo/scale?instances=2")
        again = server.client.post("/v2/models/echo/infer", json=infer_body(5))

        assert [work.result().status_code for work in queued] == [200] * 7
        assert "was scaled to 0" in refusal.json()["error"]
        assert echoed(again.json()) == [5]


def test_ready_and_live_tell_the_truth_while_models_come_and_go(tmp_path: Path) -> None:
    add_echo(tmp_path, "echo")
    (tmp_path / "echo" / "shoal.toml").write_text("required = true\n")
    with ThreadPoolExecutor(1) as threads, Server(f"--model-repository={tmp_path}", *EXPLICIT) as server:
        python_model(tmp_path, "slow", "import threading\nthreading.Event().wait()\n")
        threads.submit(load, server, "slow")
        wait_until(lambda: index(server).get(("slow", "1"), ("", ""))[0] == "LOADING", "the load to begin")
        while_loading = health(server)
        server.client.post("/v2/repository/models/echo/unload")
        unloaded = health(server)
        load(server, "echo")

        assert (while_loading, unloaded, health(server)) == ((200, 200), (400, 200), (200, 200))


def health(server: Server) -> tuple[int, int]:
    """Ready and live."""
    ready, live = (server.client.get(f"/v2/health/{what}").status_code for what in ("ready", "live"))
    return ready, live
