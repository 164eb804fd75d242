"""What a worker process costs per batch over a thread: the same instance with the same fake, in turns.

A batch is 8 requests of one 224 x 224 picture (602 KB of float32 each), an answer 1000 scores. Half of the rounds begin
with the one, half with the other, on the event loop that the server uses.

Where the time goes is printed by stage. Of a process, "compute" is the way there and back: two wake-ups on another core
(about 50 us each where a virtual machine's core has gone to sleep), and what the caches lost while rows were copied.
"""

import gc
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop

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


class Stages(NamedTuple):
    """Of one batch, ms."""

    wake: float  # until the instance's thread begins
    gather: float
    compute: float
    scatter: float
    answer: float  # until the caller goes on
    total: float


def instance(name: str, lanes: Sequence[Executor]) -> ThreadInstance:
    """The same host for both."""
    return ThreadInstance(name=name, device="cpu", spec=SPEC, lanes=lanes, clock=CLOCK)


async def timed(subject: ThreadInstance, batch: Sequence[Tensors]) -> Stages:
    """Run one batch."""
    called_ns = CLOCK.now_ns()
    times = (await subject.execute(batch)).times
    marks_ns = (called_ns, times.started_ns, times.gathered_ns, times.computed_ns, times.ended_ns, CLOCK.now_ns())
    stages_ns = [end_ns - begin_ns for begin_ns, end_ns in itertools.pairwise(marks_ns)]
    return Stages(*(stage_ns / MILLISECOND_NS for stage_ns in (*stages_ns, sum(stages_ns))))


async def compare(thread: ThreadInstance, process: ThreadInstance) -> tuple[list[Stages], list[Stages]]:
    """All batches of each."""
    random = np.random.default_rng(0)
    batch = [{"image": random.standard_normal((1, 3, 224, 224), np.float32)} for _ in range(REQUESTS)]
    runs: dict[ThreadInstance, list[Stages]] = {thread: [], process: []}
    for round_number in range(ROUNDS):
        for subject in (thread, process) if round_number % 2 else (process, thread):
            runs[subject] += [await timed(subject, batch) for _ in range(BATCHES)]
    return runs[thread], runs[process]


def report(label: str, runs: Sequence[Stages]) -> float:
    """Print least, median and 95 % of a host's batches and the medians of the stages; returns the median, ms."""
    totals_ms = [run.total for run in runs]
    median_ms = statistics.median(totals_ms)
    stages = "".join(f"{statistics.median(stage):9.3f}" for stage in list(zip(*runs, strict=True))[:-1])
    print(
        f"{label:<20} {min(totals_ms):7.3f} {median_ms:7.3f} {statistics.quantiles(totals_ms, n=20)[-1]:7.3f} {stages}"
    )
    return median_ms


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
        thread_runs, process_runs = await compare(*hosts)
    finally:
        for host in hosts:
            await host.aclose()
        await worker.aclose()
    names = "".join(f"{name:>9}" for name in Stages._fields[:-1])
    print(f"{ROUNDS * BATCHES} batches of {REQUESTS} x 602 KB, ms      min     p50     p95 {names}")
    thread_ms = report("thread", thread_runs)
    process_ms = report("worker process", process_runs)
    cost_ms = process_ms - thread_ms
    print(
        f"cost of the process: {cost_ms:+.3f} ms a batch (p50; wanted: below 0.3), "
        f"{process_ms / thread_ms:.2f} times the thread"
    )


if __name__ == "__main__":
    uvloop.run(main())
