"""Models that need the same resource take turns, when the server is told so."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_CODE = """
import time
import numpy as np

def execute(inputs):
    began = time.monotonic()
    time.sleep(0.03)
    return {"span": np.array([[began, time.monotonic()]])}
"""
_CONFIG = """
backend: "python"
max_batch_size: 1
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "span" data_type: TYPE_FP64 dims: [ 2 ] } ]
instance_group [ { count: 2 rate_limiter { resources [ { name: "turn" count: 1 global: true } ] } } ]
"""
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0]}]}


def add_clock(root: Path, name: str) -> None:
    """A model that answers when it ran; it needs the resource `turn`."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(_CONFIG)
    (root / name / "1" / "model.py").write_text(_CODE)


def spans(server: Server) -> list[tuple[float, float]]:
    """When the batches of two models ran that were all wanted at once, in order."""

    def ask(name: str) -> tuple[float, float]:
        with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
            began, ended = client.post(f"/v2/models/{name}/infer", json=REQUEST).json()["outputs"][0]["data"]
        return began, ended

    with ThreadPoolExecutor(12) as threads:
        return sorted(threads.map(ask, ["a", "b"] * 6))


def overlap(found: list[tuple[float, float]]) -> bool:
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(found))


def test_batches_that_need_one_resource_never_run_at_once_and_without_the_limiter_they_do(tmp_path: Path) -> None:
    add_clock(tmp_path, "a")
    add_clock(tmp_path, "b")
    repository = f"--model-repository={tmp_path}"

    with Server(repository, "--rate-limit=execution_count") as server:
        limited = spans(server)
    with Server(repository) as server:
        free = spans(server)

    assert len(limited) == 12
    assert not overlap(limited)
    assert overlap(free)


def test_a_model_that_needs_more_than_there_is_does_not_load_and_says_what_to_do(tmp_path: Path) -> None:
    add_clock(tmp_path, "a")
    flags = ("--rate-limit=execution_count", "--rate-limit-resource=turn:0", "--exit-on-error=false")

    with Server(f"--model-repository={tmp_path}", *flags) as server:
        assert server.client.get("/v2/models/a/ready").status_code == 400
        assert "found 1 of resource 'turn', expected at most 0" in server.log
