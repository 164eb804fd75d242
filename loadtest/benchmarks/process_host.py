"""What a worker process costs per batch over a thread: the same instance with the same fake, in turns.

A batch is 8 requests of one 224 x 224 picture (602 KB of float32 each), an answer 1000 scores. Half of the rounds begin
with the one, half with the other.
"""

import asyncio
import gc
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from backends.fake import FakeExecutor
from backends.ports import Executor, Placement
from backends.process.worker_process import WorkerProcess
from backends.thread_host import ThreadInstance
from batching.clock import MILLISECOND_NS, MonotonicClock
from models.inference import Tensors
from models.spec import DeviceKind, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

REQUESTS = 8
ROUNDS = 100
BATCHES = 10  # of each, in one round
CLOCK = MonotonicClock()

SPEC = ModelSpec(
    name="fake",
    version=1,
    platform="",
    backend="fake",
    max_batch_rows=REQUESTS,
    inputs=(TensorSpec(name="image", data_type=DataType.FP32, dims=(3, 224, 224)),),
    outputs=(TensorSpec(name="scores", data_type=DataType.FP32, dims=(1_000,)),),
    instance_groups=(InstanceGroup(name="fake", kind=DeviceKind.CPU, count=1),),
    file=Path("model.fake"),
)


def instance(name: str, lanes: Sequence[Executor]) -> ThreadInstance:
    """The same host for both."""
    return ThreadInstance(name=name, device="cpu", spec=SPEC, lanes=lanes, clock=CLOCK)


async def timed(subject: ThreadInstance, batch: Sequence[Tensors]) -> list[float]:
    """Milliseconds of each batch, from the call until the answer."""
    times_ms: list[float] = []
    for _ in range(BATCHES):
        began_ns = CLOCK.now_ns()
        await subject.execute(batch)
        times_ms.append((CLOCK.now_ns() - began_ns) / MILLISECOND_NS)
    return times_ms


async def compare(thread: ThreadInstance, process: ThreadInstance) -> tuple[list[float], list[float]]:
    """Milliseconds of all batches of each."""
    random = np.random.default_rng(0)
    batch = [{"image": random.standard_normal((1, 3, 224, 224), np.float32)} for _ in range(REQUESTS)]
    times_ms: dict[ThreadInstance, list[float]] = {thread: [], process: []}
    for round_number in range(ROUNDS):
        for subject in (thread, process) if round_number % 2 else (process, thread):
            times_ms[subject] += await timed(subject, batch)
    return times_ms[thread], times_ms[process]


def report(label: str, times_ms: Sequence[float]) -> None:
    """Least, median and 95 % of a host's batches."""
    deciles = statistics.quantiles(times_ms, n=20)
    print(f"{label:<20} {min(times_ms):7.3f} {statistics.median(times_ms):7.3f} {deciles[-1]:7.3f}")


async def main() -> None:
    """Run the comparison and print it."""
    worker = WorkerProcess("benchmark", clock=CLOCK)
    hosts: list[ThreadInstance] = []
    try:
        await worker.start()
        (lanes,) = await worker.assign(SPEC, Placement())
        hosts = [instance("thread", [FakeExecutor(SPEC)]), instance("process", lanes)]
        for host in hosts:
            await host.start((REQUESTS,))
        gc.freeze()
        thread_ms, process_ms = await compare(*hosts)
    finally:
        for host in hosts:
            await host.aclose()
        await worker.aclose()
    print(f"{ROUNDS * BATCHES} batches of {REQUESTS} x 602 KB, ms      min     p50     p95")
    report("thread", thread_ms)
    report("worker process", process_ms)
    cost_ms = statistics.median(process_ms) - statistics.median(thread_ms)
    ratio = statistics.median(process_ms) / statistics.median(thread_ms)
    print(f"cost of the process: {cost_ms:+.3f} ms a batch (p50; wanted: below 0.3), {ratio:.2f} times the thread")


if __name__ == "__main__":
    asyncio.run(main())
