"""ModelInfer of one small row against a bare grpc.aio server that echoes the same messages: ratios, interleaved.

The load is made in Python as well and takes as much of a core as the server does, so the ratio of CPU times of the
servers' processes per request says more than that of requests per second.
"""

import argparse
import asyncio
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import uvloop
from tritonclient.grpc import service_pb2

from loadtest.benchmarks.processes import server, shoal

METHOD = "/inference.GRPCInferenceService/ModelInfer"
CONFIG = """
backend: "fake"
max_batch_size: 64
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Peer(NamedTuple):
    """A server, and its process if that is here."""

    title: str
    port: int
    pid: int | None = None
    model: str = "plain"


class Window(NamedTuple):
    """What one window of load saw."""

    requests_per_second: float
    cpu_us: float
    """Of the server's process per request; 0 if unknown."""


def message(model: str) -> bytes:
    """A request of one row."""
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP32", shape=(1, 16))
    raw = np.arange(16, dtype=np.float32).tobytes()
    request = service_pb2.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[raw])
    return bytes(request.SerializeToString())


async def load(peer: Peer, callers: int, duration_s: float) -> Window:
    """A closed loop: each caller asks again as soon as it is answered."""
    request, answered = message(peer.model), 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{peer.port}") as channel:
        infer = channel.unary_unary(METHOD)
        await infer(request)
        before_s, started_s = _cpu_s(peer.pid), time.perf_counter()

        async def caller() -> None:
            nonlocal answered
            while time.perf_counter() - started_s < duration_s:
                await infer(request)
                answered += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(caller())
        elapsed_s = time.perf_counter() - started_s
        return Window(answered / elapsed_s, (_cpu_s(peer.pid) - before_s) * 1e6 / max(1, answered))


def _cpu_s(pid: int | None) -> float:
    """User and system time of all threads of a process so far."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def compare(peers: Sequence[Peer], arguments: argparse.Namespace) -> None:
    """All numbers of callers, a window of each peer in turn."""
    for callers in arguments.callers:
        windows: dict[str, list[Window]] = {peer.title: [] for peer in peers}
        for _ in range(arguments.rounds):
            for peer in peers:
                windows[peer.title].append(uvloop.run(load(peer, callers, arguments.seconds)))
        ours, *_ = windows.values()
        for title, theirs in windows.items():
            pairs = list(zip(ours, theirs, strict=True))
            rate = statistics.median(mine.requests_per_second / other.requests_per_second for mine, other in pairs)
            said = f"ours is {rate:.2f} of it"
            if all(other.cpu_us for other in theirs):
                said += f", {statistics.median(other.cpu_us / mine.cpu_us for mine, other in pairs):.2f} by CPU"
            median = Window(*map(statistics.median, zip(*theirs, strict=True)))
            shown = f"{median.requests_per_second:6.0f} req/s, {median.cpu_us:4.0f} us"
            print(f"{callers:2} callers, {title:6}: {shown}; {said}")


def free_port() -> int:
    """One that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one window")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--triton-grpc-port", type=int, help="of a running one")
    parser.add_argument("--triton-model", default="identity", help="its no-op: FP32 INPUT0[16] to OUTPUT0[16]")
    arguments = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "plain" / "1").mkdir(parents=True)
        (Path(root) / "plain" / "config.pbtxt").write_text(CONFIG)
        with (
            server(shoal("--model-repository", root, f"--grpc-port={port}")) as ours,
            server(("loadtest.benchmarks.grpc_echo",)) as echo,
        ):
            peers = [Peer("ours", port, ours.pid), Peer("echo", echo.port, echo.pid)]
            if arguments.triton_grpc_port:
                peers.append(Peer("Triton", arguments.triton_grpc_port, None, arguments.triton_model))
            compare(peers, arguments)


if __name__ == "__main__":
    main()
