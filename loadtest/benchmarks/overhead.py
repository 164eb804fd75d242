"""What the gateway costs: ratios from one interleaved run, no assertions.

1. Requests per second of a model that does nothing, over v2 JSON, against a bare ASGI echo of the same body on the same
   uvicorn: one server process each, one load process.
2. ``/classify`` at saturation against the bare pipeline (decode, then ONNX Runtime) in as many threads as there are
   cores, in a process without any server.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import orjson
import uvloop

from backends.cpu_budget import available_cores
from batching.clock import SECOND_NS, MonotonicClock
from loadtest.benchmarks.processes import server, shoal
from loadtest.http_load import LoadResult, Target, closed_loop
from models.images.decode import decode
from models.images.header import ImageLimits
from models.repository import scan
from models.zoo.embedded import ensure_cached

PHOTOS = Path(".cache/foolbox/foolbox/data")
CONFIG = """
backend: "fake"
max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: 16 }
output { name: "y" data_type: TYPE_FP32 dims: 16 }
"""


def measure(target: Target, connections: int, duration_s: float) -> LoadResult:
    """One window of closed-loop load."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(closed_loop(target, connections, duration_s))


def no_op_over_echo(rounds: int, duration_s: float) -> None:
    """Print requests per second of both servers and their ratio."""
    data = [round(0.1 * index, 1) for index in range(16)]
    body = orjson.dumps({"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": data}]})
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "noop"
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(CONFIG)
        with (
            server(["loadtest.benchmarks.echo_server"]) as bare,
            server(shoal("--model-repository", root)) as ours,
        ):
            echo = Target(host="127.0.0.1", port=bare.port, path="/", body=body)
            model = Target(host="127.0.0.1", port=ours.port, path="/v2/models/noop/infer", body=body)
            for connections in (1, 16, 64):
                pairs = [
                    (measure(model, connections, duration_s), measure(echo, connections, duration_s))
                    for _ in range(rounds)
                ]
                _print_pairs(f"v2 JSON, no-op model, {connections:2} connections", pairs)


def _print_pairs(title: str, pairs: Sequence[tuple[LoadResult, LoadResult]]) -> None:
    ratios = [ours.requests_per_second / bare.requests_per_second for ours, bare in pairs]
    ours = statistics.median(pair[0].requests_per_second for pair in pairs)
    bare = statistics.median(pair[1].requests_per_second for pair in pairs)
    added_us = statistics.median((pair[0].percentile_ms(50) - pair[1].percentile_ms(50)) * 1000 for pair in pairs)
    failures = sum(pair[0].failures for pair in pairs)
    print(
        f"{title}: {ours:8.0f} req/s of {bare:8.0f} bare: ratio {statistics.median(ratios):.2f} "
        f"(of {', '.join(f'{ratio:.2f}' for ratio in ratios)}), p50 +{added_us:.0f} us, {failures} failures"
    )


def bare_pipeline(photo: bytes, duration_s: float) -> float:
    """Photographs per second of decode + ONNX Runtime, batch 1, one thread a core, no server."""
    spec = scan([ensure_cached(Path.home() / ".cache" / "shoal")]).models[0].versions[0]
    how = spec.preprocessing
    assert how is not None  # noqa: S101 - the embedded model declares it
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(spec.file), options, providers=["CPUExecutionProvider"])
    clock = MonotonicClock()
    limits = ImageLimits()
    counts = []
    started_ns = clock.now_ns()
    end_ns = started_ns + round(duration_s * SECOND_NS)

    def work() -> None:
        count = 0
        while clock.now_ns() < end_ns:
            row = decode(photo, how, limits)
            session.run(None, {spec.inputs[0].name: row[np.newaxis]})
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=work) for _ in range(available_cores())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) * SECOND_NS / (clock.now_ns() - started_ns)


def classify_over_pipeline(rounds: int, duration_s: float) -> None:
    """Print photographs per second of the server and of the bare pipeline, and their ratio."""
    photo = min(PHOTOS.glob("imagenet_*.jpg")).read_bytes()
    with server(shoal()) as served:
        target = Target(host="127.0.0.1", port=served.port, path="/classify", body=photo, content_type="image/jpeg")
        measure(target, 4, 0.5)  # first calls
        for connections in (1, 4, 16, 64):
            results, bare = [], []
            for _ in range(rounds):
                results.append(measure(target, connections, duration_s))
                bare.append(bare_pipeline(photo, duration_s))
            ratios = [result.requests_per_second / rate for result, rate in zip(results, bare, strict=True)]
            median = statistics.median
            print(
                f"/classify, {connections:2} connections: "
                f"{median(result.requests_per_second for result in results):6.0f} photographs/s "
                f"of {median(bare):6.0f} bare: ratio {median(ratios):.2f} "
                f"(of {', '.join(f'{ratio:.2f}' for ratio in ratios)}), "
                f"p50 {median(result.percentile_ms(50) for result in results):.1f} ms, "
                f"p99 {median(result.percentile_ms(99) for result in results):.1f} ms, "
                f"{sum(result.failures for result in results)} failures"
            )


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one window")
    parser.add_argument("--only", choices=["noop", "classify"])
    arguments = parser.parse_args()
    if arguments.only != "classify":
        no_op_over_echo(arguments.rounds, arguments.seconds)
    if arguments.only != "noop":
        classify_over_pipeline(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
