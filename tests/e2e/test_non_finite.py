"""A model that overflows in half precision, as its callers see it."""

from collections.abc import Iterator

import httpx
import pytest

from models.spec import NonFinite
from tests.backends.overflow import LARGE, save_doubling
from tests.e2e.server import Server

pytestmark = pytest.mark.e2e

WISHES = [wish.value for wish in NonFinite]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("repository")
    for wish in WISHES:
        save_doubling(root / wish / "1")
        (root / wish / "shoal.toml").write_text(f'[execution]\nnon_finite = "{wish}"\n')
    host = 'host = "process"\n'
    save_doubling(root / "in-a-worker" / "1")
    (root / "in-a-worker" / "shoal.toml").write_text(f'[execution]\nnon_finite = "retry_fp32"\n{host}')
    with Server("--model-repository", str(root)) as server:
        yield server


def double(server: Server, model: str, value: float) -> httpx.Response:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, 1]}
    return server.client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]})


@pytest.mark.parametrize("model", [*WISHES, "in-a-worker"])
def test_ordinary_numbers_are_answered(server: Server, model: str) -> None:
    assert double(server, model, 3).json()["outputs"][0]["data"] == [6.0, 2.0]


@pytest.mark.parametrize("model", ["retry_fp32", "in-a-worker"])
def test_a_retried_answer_is_right(server: Server, model: str) -> None:
    before = server.metric("shoal_non_finite_rows", model=model)

    assert double(server, model, LARGE).json()["outputs"][0]["data"] == [2 * LARGE, 2.0]
    assert server.metric("shoal_non_finite_rows", model=model) == before + 1


def test_a_failed_answer_is_a_sentence(server: Server) -> None:
    answer = double(server, "fail", LARGE)

    assert (answer.status_code, answer.json()) == (500, {"error": "1 of 1 rows came out as NaN or infinite numbers"})
    assert server.metric("shoal_non_finite_rows", model="fail") >= 1


def test_a_counted_answer_is_answered(server: Server) -> None:
    before = server.metric("shoal_non_finite_rows", model="count")

    assert double(server, "count", LARGE).status_code == 200
    assert server.metric("shoal_non_finite_rows", model="count") == before + 1
