"""The v2 surface over HTTP against the real Triton, in one interleaved run: ratios, and what a request costs.

Requests per second depend on who else uses the machine; the CPU time of the server's process per request hardly does.
The real Triton takes part if `make peers` has installed it, or `--triton http://127.0.0.1:8000` names a running one.
"""

import argparse
import asyncio
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
import orjson
import uvloop

from loadtest.benchmarks.processes import Server, server, shoal
from loadtest.http_load import LoadResult, Target, closed_loop
from loadtest.peers.triton import is_installed, serving

INPUT, OUTPUT = "INPUT0", "OUTPUT0"
SMALL = (16,)
PICTURE = (3, 224, 224)
CONFIG = """
backend: "{backend}"
max_batch_size: 64
input [ {{ name: "{input}" data_type: TYPE_FP32 dims: {dims} }} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: {dims} }} ]
{extra}
"""
IDENTITY = f"""
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        inputs = [triton.get_input_tensor_by_name(request, "{INPUT}").as_numpy() for request in requests]
        return [triton.InferenceResponse([triton.Tensor("{OUTPUT}", rows)]) for rows in inputs]
"""
DELAYED = "dynamic_batching { max_queue_delay_microseconds: 100 }"
MODELS = (("plain", SMALL, ""), ("delayed", SMALL, DELAYED), ("picture", PICTURE, ""))
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_TITLES = {"plain": "JSON [1,16], policy shoal ", "delayed": "JSON [1,16], policy triton"}


class Window(NamedTuple):
    """What one window of load saw."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    failures: int
    cpu_us: float = 0.0
    """CPU time of the server's process per request, all threads."""


def infer_target(
    port: int, model: str, shape: Sequence[int], *, sends_binary: bool = False, wants_binary: bool = False
) -> Target:
    """One row of FP32, as JSON or behind the JSON."""
    row = np.linspace(0.5, 15.5, math.prod(shape), dtype=np.float32)
    tensor: dict[str, object] = {"name": INPUT, "shape": [1, *shape], "datatype": "FP32"}
    body: dict[str, object] = {"inputs": [tensor]}
    if sends_binary:
        tensor["parameters"] = {"binary_data_size": row.nbytes}
    else:
        tensor["data"] = [round(float(value), 4) for value in row]
    if wants_binary:
        body["outputs"] = [{"name": OUTPUT, "parameters": {"binary_data": True}}]
    text = orjson.dumps(body)
    headers = {"Inference-Header-Content-Length": str(len(text))} if sends_binary else {}
    return Target(
        host="127.0.0.1",
        port=port,
        path=f"/v2/models/{model}/infer",
        body=text + row.tobytes() if sends_binary else text,
        headers=headers,
    )


def measure(target: Target, connections: int, duration_s: float, pid: int | None = None) -> Window:
    """One window of closed-loop load, from wrk if it is installed, else from our own loader."""
    before = _cpu_s(pid)
    with_wrk = shutil.which("wrk") is not None
    requests, window = (_wrk if with_wrk else _own_load)(target, connections, duration_s)
    return window._replace(cpu_us=(_cpu_s(pid) - before) * 1e6 / max(1, requests))


def _cpu_s(pid: int | None) -> float:
    """User and system time of all threads of a process so far."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _own_load(target: Target, connections: int, duration_s: float) -> tuple[int, Window]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result: LoadResult = runner.run(closed_loop(target, connections, duration_s))
    p50_ms, p99_ms = result.percentile_ms(50), result.percentile_ms(99)
    return len(result.latencies_ns), Window(result.requests_per_second, p50_ms, p99_ms, result.failures)


def _wrk(target: Target, connections: int, duration_s: float) -> tuple[int, Window]:
    with tempfile.TemporaryDirectory() as directory:
        body, script = Path(directory) / "body", Path(directory) / "post.lua"
        body.write_bytes(target.body)
        headers = {"Content-Type": target.content_type, **target.headers}
        lines = [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
        script.write_text("\n".join(['wrk.method = "POST"', f'wrk.body = io.open("{body}", "rb"):read("*a")', *lines]))
        seconds = max(1, round(duration_s))
        url = f"http://{target.host}:{target.port}{target.path}"
        text = subprocess.run(  # noqa: S603 - the arguments are ours
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url],  # noqa: S607
            capture_output=True, text=True, check=True, timeout=seconds + 30,
        ).stdout  # fmt: skip
    failures = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", text))
    failures += sum(
        int(number) for line in re.findall(r"Socket errors: (.*)", text) for number in re.findall(r"\d+", line)
    )
    requests = int(_found(r"(\d+) requests in", text))
    rate = float(_found(r"Requests/sec:\s*([\d.]+)", text))
    return requests, Window(rate, _milliseconds(text, 50), _milliseconds(text, 99), failures)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"wrk did not say {pattern}:\n{text}")
    return match[1]


def _milliseconds(text: str, percent: int) -> float:
    number, unit = _found(rf"{percent}%\s+([\d.]+\w+)", text), ""
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if number.endswith(unit):
            return float(number.removesuffix(unit)) * factor
    raise RuntimeError(f"unknown unit of time in {number}{unit}")


@contextmanager
def our_server() -> Iterator[Server]:
    """A Shoal with the no-op models."""
    with tempfile.TemporaryDirectory() as root:
        for name, dims, extra in MODELS:
            _write_model(Path(root), name, "fake", dims, extra)
        with server(shoal("--model-repository", root)) as ours:
            yield ours


@contextmanager
def real_triton(url: str | None) -> Iterator[Target | None]:
    """What asks the one at the URL, or one that is started, or None where none is installed."""
    if url is not None:
        yield infer_target(urlsplit(url).port or 8000, "identity", SMALL)
    elif is_installed():
        with tempfile.TemporaryDirectory() as root:
            directory = _write_model(Path(root), "identity", "python", SMALL, DELAYED)
            (directory / "1" / "model.py").write_text(IDENTITY)
            with serving(Path(root)) as triton:
                yield infer_target(triton.http_port, "identity", SMALL)
    else:
        yield None


def _write_model(root: Path, name: str, backend: str, dims: Sequence[int], extra: str) -> Path:
    directory = root / name
    (directory / "1").mkdir(parents=True)
    config = CONFIG.format(backend=backend, input=INPUT, output=OUTPUT, dims=list(dims), extra=extra)
    (directory / "config.pbtxt").write_text(config)
    return directory


def small_rows(ours: Server, triton: Target | None, arguments: argparse.Namespace) -> None:
    """Requests per second of the no-op models, and their ratio to Triton's."""
    for connections in arguments.connections:
        mine: dict[str, list[Window]] = {model: [] for model in _TITLES}
        theirs: list[Window] = []
        for _ in range(arguments.rounds):
            for model, windows in mine.items():
                target = infer_target(ours.port, model, SMALL)
                windows.append(measure(target, connections, arguments.seconds, ours.pid))
            if triton is not None:
                theirs.append(measure(triton, connections, arguments.seconds))
        for model, windows in mine.items():
            print(f"{_TITLES[model]}, {connections:2} connections: {_said(windows)}{_ratio(windows, theirs)}")
        if theirs:
            print(f"the real Triton           , {connections:2} connections: {_said(theirs)}")


def picture_rows(ours: Server, arguments: argparse.Namespace) -> None:
    """CPU time of one request with a whole picture as FP32."""
    for title, sends_binary, wants_binary in (
        ("binary both ways", True, True),
        ("JSON in, binary out", False, True),
        ("JSON both ways", False, False),
    ):
        target = infer_target(ours.port, "picture", PICTURE, sends_binary=sends_binary, wants_binary=wants_binary)
        windows = [measure(target, 1, arguments.seconds, ours.pid) for _ in range(arguments.rounds)]
        print(f"[1,3,224,224], 1 connection, {title}: {_said(windows)}")


def _said(windows: Sequence[Window]) -> str:
    median = Window(*(statistics.median(column) for column in zip(*windows, strict=True)))
    cpu = f", {median.cpu_us:.0f} us of CPU a request" if median.cpu_us else ""
    failures = sum(window.failures for window in windows)
    return (
        f"{median.requests_per_second:7.0f} req/s{cpu}, p50 {median.p50_ms:.2f} ms, p99 {median.p99_ms:.2f} ms, "
        f"{failures} failures"
    )


def _ratio(mine: Sequence[Window], theirs: Sequence[Window]) -> str:
    if not theirs:
        return ""
    pairs = zip(mine, theirs, strict=True)
    return f", ratio {statistics.median(my.requests_per_second / its.requests_per_second for my, its in pairs):.2f}"


def main() -> None:
    """Run all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one window")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--triton", help=f"URL of a running one with `identity`: FP32 {INPUT}[16] to {OUTPUT}[16]")
    parser.add_argument("--only", choices=["small", "picture"])
    arguments = parser.parse_args()
    with our_server() as ours, real_triton(arguments.triton) as triton:
        measure(infer_target(ours.port, "plain", SMALL), 4, 1.0)  # first calls
        if arguments.only != "picture":
            small_rows(ours, triton, arguments)
        if arguments.only != "small":
            picture_rows(ours, arguments)


if __name__ == "__main__":
    main()
