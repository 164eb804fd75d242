"""What a reload costs those who are served meanwhile, and what it leaves behind; prints figures, asserts nothing.

1. Constant traffic on the embedded model while its version is replaced again and again: failed requests; latency as a
   ratio to that before the replacements; and what a health request takes that is sent every few milliseconds, which is
   how late the event loop gets to its work, and more.
2. Many reloads without traffic: the resident memory of the server.
"""

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import uvloop

from batching.clock import MonotonicClock
from loadtest.benchmarks.processes import Server, server, shoal
from loadtest.http_load import LoadResult, Target, closed_loop
from models.zoo.embedded import MODEL_NAME, write_repository

PHOTO = Path(".cache/foolbox/foolbox/data/imagenet_10_541.jpg")
_PAGE_BYTES = 4096


class Replacer:
    """Replaces the model's version by a copy under the next number, and waits until that serves."""

    def __init__(self, port: int, root: Path) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
        self._model = root / MODEL_NAME
        self._version = 1

    def replace(self, times: int = 1) -> None:
        """One after the other."""
        for _ in range(times):
            old, self._version = self._model / str(self._version), self._version + 1
            shutil.copytree(old, self._model / str(self._version))
            self._http.post(f"/v2/repository/models/{MODEL_NAME}/load").raise_for_status()
            shutil.rmtree(old)


@contextmanager
def serving() -> Iterator[tuple[Server, Replacer]]:
    """A server of the embedded model that loads on demand."""
    with tempfile.TemporaryDirectory() as root:
        write_repository(Path(root))
        flags = ("--model-repository", root, "--model-control-mode=explicit", "--load-model=*")
        with server(shoal(*flags)) as served:
            yield served, Replacer(served.port, Path(root))


async def health_ms(port: int, until: asyncio.Event) -> list[float]:
    """What a request for the server's health takes, milliseconds, every five milliseconds."""
    clock = MonotonicClock()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    while not until.is_set():
        sent_ns = clock.now_ns()
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        found.append((clock.now_ns() - sent_ns) / 1e6)
        await asyncio.sleep(0.005)
    writer.close()
    return found


async def observed(port: int, photo: bytes, seconds: float) -> tuple[LoadResult, list[float]]:
    """One connection that classifies a photograph again and again, and the health beside it."""
    target = Target(host="127.0.0.1", port=port, path="/classify", body=photo, content_type="image/jpeg")
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        health = group.create_task(health_ms(port, over))
        load = await closed_loop(target, 1, seconds)
        over.set()
    return load, health.result()


def under_traffic(count: int, seconds: float) -> None:
    """Print the cost of `count` replacements during `seconds` of traffic, against as long without any."""
    with (
        serving() as (served, replacer),
        ThreadPoolExecutor(1) as thread,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        photo = PHOTO.read_bytes()
        runner.run(observed(served.port, photo, 2))
        quiet = runner.run(observed(served.port, photo, seconds))
        work = thread.submit(replacer.replace, count)
        busy = runner.run(observed(served.port, photo, seconds))
        at_the_end = "done" if work.done() else "not yet done"
        work.result()
    load = busy[0]
    print(
        f"{count} replacements ({at_the_end} after {seconds:g} s): {load.failures} of {len(load.latencies_ns)} failed"
    )
    for name, (result, health) in (("quiet", quiet), ("replacing", busy)):
        p50, p99, most = np.percentile(health, [50, 99, 100])
        print(
            f"  {name:9}: /classify p50 {result.percentile_ms(50):.1f}, p99 {result.percentile_ms(99):.1f} ms; "
            f"health p50 {p50:.1f}, p99 {p99:.1f}, at most {most:.1f} ms"
        )
    ratios = [load.percentile_ms(percent) / quiet[0].percentile_ms(percent) for percent in (50, 99)]
    print(f"  latency ratio: p50 {ratios[0]:.2f}, p99 {ratios[1]:.2f}")


def without_traffic(count: int) -> None:
    """Print the resident memory over `count` reloads, and its slope over the second half."""
    points: list[tuple[int, float]] = []
    every = max(1, count // 20)
    with serving() as (served, replacer):
        for number in range(every, count + 1, every):
            replacer.replace(every)
            points.append((number, _resident_bytes(served.pid) / 1e6))
    numbers, megabytes = np.array(points[len(points) // 2 :]).T
    slope = float(np.polyfit(numbers, megabytes, 1)[0]) * 100
    shown = ", ".join(f"{number}: {resident:.0f}" for number, resident in points)
    print(f"{count} reloads, resident MB after each number of them: {shown}")
    print(f"  slope over the second half: {slope:+.2f} MB per 100 reloads")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replacements", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--reloads", type=int, default=500)
    given = parser.parse_args()
    under_traffic(given.replacements, given.seconds)
    without_traffic(given.reloads)


if __name__ == "__main__":
    main()
