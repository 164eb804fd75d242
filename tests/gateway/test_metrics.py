"""The Prometheus text, made from an engine's statistics."""

from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import create_metrics_app
from gateway.engine import Duration, Histogram, VersionStatistics
from gateway.metrics import GAUGES, TRITON_COUNTERS, Snapshot, render_metrics
from tests.gateway.fake_engine import FakeEngine

STATISTICS = VersionStatistics(
    model="m",
    version=2,
    inference_count=7,
    execution_count=3,
    success=Duration(5, 9_999_999),
    failures={"REJECTED": 1, "CANCELED": 0},
    close_reasons={"full": 2},
    stages={"queue": Histogram((0.001, 0.01), (4, 0, 1), 0.5)},
    batch_rows=Histogram((1.0, 2.0), (1, 0, 2), 7.0),
    refused_requests=4,
    pending_requests=6,
)


class Measured(FakeEngine):
    """With the statistics that it is given."""

    def __init__(self, *statistics: VersionStatistics) -> None:
        super().__init__()
        self._given = statistics

    def statistics(self) -> Sequence[VersionStatistics]:
        return self._given


def text_of(engine: FakeEngine) -> str:
    return render_metrics(Snapshot.of(engine)).decode()


def lines_of(*statistics: VersionStatistics) -> list[str]:
    return text_of(Measured(*statistics)).splitlines()


@pytest.mark.parametrize(
    "line",
    [
        'nv_inference_count{model="m",version="2"} 7.0',
        'nv_inference_exec_count{model="m",version="2"} 3.0',
        'nv_inference_request_success{model="m",version="2"} 5.0',
        'nv_inference_request_duration_us{model="m",version="2"} 9999.0',
        'nv_inference_request_failure{model="m",reason="REJECTED",version="2"} 1.0',
        'nv_inference_request_failure{model="m",reason="CANCELED",version="2"} 0.0',
        'nv_inference_pending_request_count{model="m",version="2"} 6.0',
        'shoal_refused_requests_total{model="m",version="2"} 4.0',
        'shoal_batches_closed_total{model="m",reason="full",version="2"} 2.0',
        'shoal_batch_rows_bucket{le="1.0",model="m",version="2"} 1.0',
        'shoal_batch_rows_bucket{le="+Inf",model="m",version="2"} 3.0',
        'shoal_batch_rows_sum{model="m",version="2"} 7.0',
        'shoal_stage_seconds_bucket{le="0.01",model="m",stage="queue",version="2"} 4.0',
        'shoal_stage_seconds_count{model="m",stage="queue",version="2"} 5.0',
        "shoal_ready 1.0",
    ],
)
def test_a_number_of_the_statistics_has_its_line(line: str) -> None:
    assert line in lines_of(STATISTICS)


@pytest.mark.parametrize("name", [*TRITON_COUNTERS, "nv_inference_request_failure"])
def test_tritons_counters_are_counters_without_a_suffix(name: str) -> None:
    lines = lines_of(STATISTICS)

    assert f"# TYPE {name} counter" in lines
    assert not any(f"{name}_total" in line for line in lines)


def test_every_version_has_its_own_samples_in_one_family() -> None:
    families = list(
        text_string_to_metric_families("\n".join(lines_of(STATISTICS, replace(STATISTICS, version=3))) + "\n")
    )

    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        if family.name in GAUGES:
            assert [sample.labels["version"] for sample in family.samples] == ["2", "3"]


def test_a_server_without_models_has_metrics_too() -> None:
    engine = Measured()
    engine.ready = False

    assert "shoal_ready 0.0" in text_of(engine)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/metrics", 200),
        ("GET", "/metrics/", 200),
        ("HEAD", "/metrics", 405),
        ("POST", "/metrics", 405),
        ("POST", "/", 405),
    ],
)
async def test_the_metrics_can_be_got_and_nothing_else(method: str, path: str, expected: int) -> None:
    transport = httpx.ASGITransport(create_metrics_app(Measured(STATISTICS)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://shoal") as client:
        answer = await client.request(method, path)

    assert answer.status_code == expected
    assert expected != 200 or answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert expected != 200 or b"nv_inference_count" in answer.content
    assert expected != 405 or method == "HEAD" or answer.json() == {"error": "Method Not Allowed"}


async def test_other_paths_of_the_port_are_empty() -> None:
    transport = httpx.ASGITransport(create_metrics_app(Measured(STATISTICS)))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://shoal") as client:
        answer = await client.get("/")

    assert (answer.status_code, answer.content) == (200, b"")
