"""Metrics, statistics and the API document tell the truth."""

import re

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import GOOD_PHOTO
from tests.e2e.server import Server
from tests.e2e.wire import infer_body

pytestmark = pytest.mark.e2e

TRITON_COUNTERS = (
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
)


def scrape(server: Server) -> httpx.Response:
    return httpx.get(server.metrics_url, trust_env=False)


@pytest.mark.parametrize("name", TRITON_COUNTERS)
def test_tritons_counters_have_their_exact_names(zoo: Server, name: str) -> None:
    lines = scrape(zoo).text.splitlines()

    assert f"# TYPE {name} counter" in lines
    assert any(line.startswith(f'{name}{{model="echo",') for line in lines)
    assert not any(f"{name}_total" in line for line in lines)


def test_the_metrics_parse_and_no_name_occurs_twice(zoo: Server) -> None:
    answer = scrape(zoo)

    names = [family.name for family in text_string_to_metric_families(answer.text)]

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert len(names) == len(set(names))
    assert {"nv_inference_pending_request_count", "shoal_batch_rows", "shoal_stage_seconds", "shoal_ready"} <= set(
        names
    )


def test_other_paths_of_the_metrics_port_are_empty_and_other_methods_are_refused(zoo: Server) -> None:
    assert httpx.get(zoo.metrics_url + "/more", trust_env=False).content == b""
    assert httpx.post(zoo.metrics_url, trust_env=False).status_code == 405


def test_metrics_and_statistics_agree(zoo: Server) -> None:
    for rows in ((1.0,), (2.0, 3.0), (4.0, 5.0, 6.0)):
        assert zoo.client.post("/v2/models/echo/infer", json=infer_body(*rows)).status_code == 200

    stats = zoo.stats("echo")

    times = stats["inference_stats"]
    assert stats["inference_count"] >= 6
    assert zoo.metric("nv_inference_count", model="echo") == stats["inference_count"]
    assert zoo.metric("nv_inference_exec_count", model="echo") == stats["execution_count"]
    assert zoo.metric("nv_inference_request_success", model="echo") == times["success"]["count"]
    assert zoo.metric("nv_inference_request_duration_us", model="echo") == times["success"]["ns"] // 1000
    assert zoo.metric("nv_inference_queue_duration_us", model="echo") == times["queue"]["ns"] // 1000
    assert zoo.metric("shoal_batch_rows_count", model="echo") == stats["execution_count"]
    assert zoo.metric("shoal_batch_rows_sum", model="echo") == stats["inference_count"]
    assert zoo.metric("shoal_batches_closed", model="echo") == stats["execution_count"]


def test_a_classification_says_where_its_time_went(zoo: Server) -> None:
    answer = zoo.client.post("/classify/mirror", content=GOOD_PHOTO, headers={"x-request-id": "a-7"})

    times = answer.json()["timing_ms"]
    assert answer.json()["id"] == "a-7"
    assert 0 < times["decode"] <= times["total"]
    assert answer.headers["server-timing"].startswith(f"decode;dur={times['decode']}, queue;dur=")


def test_the_openapi_document_names_every_path(zoo: Server) -> None:
    document = orjson.loads(zoo.client.get("/openapi.json").content)

    assert document["openapi"].startswith("3.")
    assert {"/classify", "/classify/{model}", "/models", "/v2", "/v2/health/ready", "/v2/models/{model}/infer"} <= set(
        document["paths"]
    )


def test_there_is_a_page_to_read_and_a_place_to_begin(zoo: Server) -> None:
    page, index = zoo.client.get("/docs"), zoo.client.get("/")

    assert (page.status_code, "swagger" in page.text.lower()) == (200, True)
    assert index.json()["classify"] == "/classify"


def test_the_page_takes_its_scripts_and_styles_from_this_server(zoo: Server) -> None:
    page = zoo.client.get("/docs").text

    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) >= 2
    assert {zoo.client.get(file).status_code for file in files} == {200}
    assert not [file for file in files if file.startswith(("http", "//"))]


@pytest.mark.parametrize("path", ["/nowhere", "/v2/nowhere", "/v23", "/classify/"])
def test_an_unknown_path_is_404_in_json(zoo: Server, path: str) -> None:
    answer = zoo.client.get(path)

    assert answer.status_code == 404
    assert "error" in answer.json()


def test_a_wrong_method_is_405_in_json(zoo: Server) -> None:
    answer = zoo.client.get("/classify")

    assert (answer.status_code, answer.headers["allow"], "error" in answer.json()) == (405, "POST", True)


def test_a_model_that_cannot_classify_says_why(zoo: Server) -> None:
    answer = zoo.client.post("/classify/echo", content=GOOD_PHOTO)

    assert answer.status_code == 400
    assert "its shoal.toml declares no [preprocessing]" in answer.json()["error"]


def test_with_several_classifiers_one_must_be_named(zoo: Server) -> None:
    answer = zoo.client.post("/classify", content=GOOD_PHOTO)

    assert answer.status_code == 400
    assert "name one in the path: exif-blind, mirror" in answer.json()["error"]


def test_an_unknown_model_is_404(zoo: Server) -> None:
    assert zoo.client.post("/classify/nobody", content=GOOD_PHOTO).status_code == 404
