"""The shipped ensemble in a real server, and one that cannot run beside models that can."""

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.http

from tests.e2e.models import add_echo
from tests.e2e.server import COMMAND, PATIENCE_S, ROOT, Server, wait_until
from tests.e2e.wire import classified, echoed, infer_body

pytestmark = pytest.mark.e2e

_INFER = "/v2/models/photo-labels/infer"
_RAW = {"Inference-Header-Content-Length": "0"}  # the body is the only input


def is_ready(server: Server, model: str) -> bool:
    return server.client.get(f"/v2/models/{model}/ready").status_code == 200


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves what `shoal init --example ensemble` writes."""
    root = tmp_path_factory.mktemp("example")
    command = [*COMMAND, "init", str(root), "--example", "ensemble"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=PATIENCE_S, capture_output=True)
    with Server(f"--model-repository={root}") as server:
        wait_until(lambda: is_ready(server, "photo-labels"), "the ensemble")
        yield server


@pytest.fixture
def client(example: Server) -> Iterator[tritonclient.http.InferenceServerClient]:
    with tritonclient.http.InferenceServerClient(example.url.removeprefix("http://")) as client:
        yield client


def ask(client: tritonclient.http.InferenceServerClient, photos: list[bytes]) -> tuple[list[str], list[float]]:
    """The best label of each photograph, and its probability."""
    wanted = tritonclient.http.InferInput("photo", [len(photos), 1], "BYTES")
    wanted.set_data_from_numpy(np.array(photos, dtype=object)[:, None])
    answer = client.infer("photo-labels", [wanted])
    labels = [label.decode() for label in answer.as_numpy("label")[:, 0]]
    return labels, answer.as_numpy("probability")[:, 0].tolist()


def test_photographs_get_the_same_labels_as_from_classify(
    example: Server, client: tritonclient.http.InferenceServerClient, photos: list[tuple[int, bytes]]
) -> None:
    files = [photo for _, photo in photos[:8]]
    expected = [classified(example.client.post("/classify?top_k=1", content=photo))[0] for photo in files]

    labels, probabilities = ask(client, files)

    assert labels == [guess["label"] for guess in expected]
    assert probabilities == pytest.approx([guess["probability"] for guess in expected], abs=0.02)


def test_a_file_that_is_no_photograph_is_an_error_of_its_step(example: Server) -> None:
    answer = example.client.post(_INFER, content=b"no photograph", headers=_RAW)

    assert answer.status_code == 500
    assert "in ensemble 'photo-labels', ValueError: found 13 bytes" in answer.json()["error"]


def test_every_model_counts_its_own_part(example: Server, photos: list[tuple[int, bytes]]) -> None:
    names = ["photo-labels", "decode", "efficientnet-lite0", "topk"]
    before = [example.stats(name)["inference_count"] for name in names]

    answer = example.client.post(_INFER, content=photos[0][1], headers=_RAW)

    assert answer.status_code == 200
    assert [example.stats(name)["inference_count"] for name in names] == [count + 1 for count in before]
    counts = {name: entry["count"] for name, entry in example.stats("photo-labels")["inference_stats"].items()}
    assert counts["compute_input"] == counts["compute_infer"] == counts["compute_output"] == counts["success"]


def test_the_configuration_says_what_load_generators_look_for(client: tritonclient.http.InferenceServerClient) -> None:
    config = client.get_model_config("photo-labels")

    assert config["platform"] == "ensemble"
    steps = config["ensemble_scheduling"]["step"]
    assert [(step["model_name"], step["model_version"]) for step in steps] == [
        ("decode", -1),
        ("efficientnet-lite0", -1),
        ("topk", -1),
    ]
    assert client.get_model_metadata("photo-labels")["platform"] == "ensemble"


_MISMATCHED = """platform: "ensemble"
max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "b" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling {
  step [ { model_name: "echo" input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } } ]
}
"""


def test_an_ensemble_that_does_not_fit_its_models_is_refused_with_the_edge_and_blocks_nobody(tmp_path: Path) -> None:
    add_echo(tmp_path, "echo")
    (tmp_path / "pipeline/1").mkdir(parents=True)
    (tmp_path / "pipeline/config.pbtxt").write_text(_MISMATCHED)
    edge = "step 1 'echo' input 'x' <- ensemble tensor 'a' of ensemble input 'a': shape [-1, 3], expected shape [-1, 2]"

    with Server(f"--model-repository={tmp_path}") as server:
        wait_until(lambda: edge in server.log, "the complaint")
        wait_until(lambda: is_ready(server, "echo"), "the good model")
        answer = server.client.post("/v2/models/echo/infer", json=infer_body(7))

    assert "pipeline/config.pbtxt:6: ensemble_scheduling.step[0].input_map.x: found" in server.log
    assert echoed(answer.json()) == [7]


_TWICE = """platform: "ensemble"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling { step [
  { model_name: "echo" input_map { key: "x" value: "x" } output_map { key: "y" value: "between" } },
  { model_name: "echo" input_map { key: "x" value: "between" } output_map { key: "y" value: "y" } }
] }
"""


def ask_until(server: Server, over: threading.Event) -> list[int]:
    """The statuses of requests one after the other."""
    statuses = []
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client:
        while not over.is_set():
            statuses.append(client.post("/v2/models/twice/infer", json=infer_body(3)).status_code)
    return statuses


def test_a_model_of_a_step_is_reloaded_under_traffic_and_no_request_fails(tmp_path: Path) -> None:
    add_echo(tmp_path, "echo", base_us=2000)  # so that requests are between their steps when it is replaced
    (tmp_path / "twice/1").mkdir(parents=True)
    (tmp_path / "twice/config.pbtxt").write_text(_TWICE)
    over = threading.Event()
    control = ("--model-control-mode=explicit", "--load-model=*")

    with Server(f"--model-repository={tmp_path}", *control) as server, ThreadPoolExecutor(3) as threads:
        wait_until(lambda: is_ready(server, "twice"), "the ensemble")
        asking = [threads.submit(ask_until, server, over) for _ in range(3)]
        try:
            loads = [server.client.post("/v2/repository/models/echo/load").status_code for _ in range(20)]
        finally:
            over.set()
        statuses = {status for work in asking for status in work.result()}

    assert (set(loads), statuses) == ({200}, {200})
