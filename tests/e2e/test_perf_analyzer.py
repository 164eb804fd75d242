"""Triton's own load generator, the unmodified program, against the whole server: no error, statistics that it accepts.

`make peers` installs it into .peers; SHOAL_PERF_ANALYZER names another one.
"""

import csv
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client_models import add_echo
from tests.e2e.server import ROOT, Server

PROGRAM = Path(os.environ.get("SHOAL_PERF_ANALYZER") or ROOT / ".peers/bin/perf_analyzer")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not PROGRAM.is_file(), reason=f"no perf_analyzer at {PROGRAM}: run `make peers`"),
]

PROTOCOLS = ("http", "grpc")
SENT = 150
WINDOWS = (
    "--measurement-mode=count_windows",
    f"--measurement-request-count={SENT}",
    "--max-trials=3",
    "--stability-percentage=999",
)
"""For several loads: three short windows of each, content with any figures, as it is not speed that is tested."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("perf-analyzer")
    add_echo(root, "identity", "TYPE_FP32", max_batch_size=64, elements=16)
    add_echo(root, "single", "TYPE_FP32", max_batch_size=0, elements=16)
    add_echo(root, "texts", "TYPE_STRING", elements=1)
    with Server(f"--model-repository={root}", "--allow-client-shm=true") as server:
        yield server


class Report:
    """What the program has measured: a line for each load."""

    def __init__(self, file: Path) -> None:
        self.lines = list(csv.DictReader(file.read_text().splitlines()))

    def has_server_times(self) -> bool:
        """Whether it could make sense of the server's statistics."""
        stages = ("Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output")
        return all(float(line[stage]) >= 0 for line in self.lines for stage in stages)

    def loads(self, column: str = "Concurrency") -> list[float]:
        """In ascending order; the program writes them by their throughput."""
        return sorted(float(line[column]) for line in self.lines)

    def are_answered(self) -> bool:
        return all(float(line["Inferences/Second"]) > 0 for line in self.lines)


def measure(
    server: Server, directory: Path, *flags: str, protocol: str = "http", model: str = "identity", loads: int = 1
) -> Report:
    """Let it send at least `SENT` requests for each load; it ends with an error if only one of them fails."""
    port = server.grpc_port if protocol == "grpc" else server.port
    file = directory / "report.csv"
    before = server.stats(model)["inference_stats"]["success"]["count"]
    command = [str(PROGRAM), "-m", model, "-i", protocol, "-u", f"127.0.0.1:{port}", "-f", str(file), *flags]
    how_long = WINDOWS if loads > 1 else (f"--request-count={SENT}",)
    done = subprocess.run([*command, *how_long], check=False, capture_output=True, text=True, timeout=90)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert not any(word in said.lower() for word in ("failed", "error", "unable")), said
    report = Report(file)
    assert len(report.lines) == loads
    after = server.stats(model)["inference_stats"]
    assert after["success"]["count"] - before >= SENT * len(report.lines)
    assert after["fail"]["count"] == 0
    assert report.has_server_times()
    assert report.are_answered()
    return report


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_concurrent_clients(server: Server, tmp_path: Path, protocol: str) -> None:
    report = measure(server, tmp_path, "--concurrency-range=1:16:5", protocol=protocol, loads=4)
    assert report.loads() == [1, 6, 11, 16]


FLAGS = {
    "batches": ["-b", "4"],
    "asynchronous": ["--async", "--concurrency-range=16"],
    "synchronous": ["--sync", "--concurrency-range=4"],
    "system memory": ["--shared-memory=system", "--concurrency-range=2"],
    "zeros": ["--input-data=zero"],
    "a version": ["-x", "1"],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_ways_of_asking(server: Server, tmp_path: Path, flags: list[str], protocol: str) -> None:
    measure(server, tmp_path, *flags, protocol=protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rate_of_requests(server: Server, tmp_path: Path, protocol: str) -> None:
    report = measure(server, tmp_path, "--request-rate-range=100:200:100", protocol=protocol, loads=2)
    assert report.loads("Request Rate") == [100, 200]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_of_a_file(server: Server, tmp_path: Path, protocol: str) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"x": [float(number)] * 16} for number in range(3)]}))
    measure(server, tmp_path, f"--input-data={data}", protocol=protocol, model="single")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_texts(server: Server, tmp_path: Path, protocol: str) -> None:
    measure(server, tmp_path, "--string-length=40", "-b", "2", protocol=protocol, model="texts")


def test_tensors_in_json(server: Server, tmp_path: Path) -> None:
    measure(server, tmp_path, "--input-tensor-format=json", "--output-tensor-format=json")


def test_a_stream(server: Server, tmp_path: Path) -> None:
    flags = ("--streaming", "--async", "--concurrency-range=4")
    measure(server, tmp_path, *flags, protocol="grpc")


def test_compressed_messages_with_parameters(server: Server, tmp_path: Path) -> None:
    flags = ("--grpc-compression-algorithm=gzip", "--request-parameter=colour:red:string")
    measure(server, tmp_path, *flags, protocol="grpc")
