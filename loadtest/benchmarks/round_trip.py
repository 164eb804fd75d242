"""What a request costs between the surface and the executor and back: runner, scheduler, pool, thread; no-op model.

CPU of the event loop's thread and of all others, and how long callers wait who come again at once.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import uvloop

from batching.clock import MICROSECOND_NS, SECOND_NS, MonotonicClock
from batching.runner import Runner
from loadtest.soak import serving
from models.inference import Tensors
from models.spec import BatchingSpec, DeviceKind, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

CLIENTS = (1, 16, 64)
POLICIES: dict[str, dict[str, object]] = {"shoal": {}, "triton": {"max_queue_delay_microseconds": 100}}
DURATION_S = 1.0
ROUNDS = 3
PATIENCE_NS = 60 * SECOND_NS  # what a server gives requests that bring no timeout
CLOCK = MonotonicClock()


def noop(policy: str) -> ModelSpec:
    """A fake model of batches of up to 64 rows of 16 numbers."""
    return ModelSpec(
        name="noop",
        version=1,
        platform="",
        backend="fake",
        max_batch_rows=64,
        inputs=(TensorSpec(name="x", data_type=DataType.FP32, dims=(16,)),),
        outputs=(TensorSpec(name="y", data_type=DataType.FP32, dims=(16,)),),
        instance_groups=(InstanceGroup(name="noop", kind=DeviceKind.CPU, count=1),),
        batching=BatchingSpec(policy=policy, parameters=POLICIES[policy]),
        file=Path("model"),
    )


class Bill:
    """CPU time of a block: of the thread that runs it, and of all others."""

    own_s = others_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time of the block."""
        process_s, own_s = time.process_time(), time.thread_time()
        yield
        self.own_s = time.thread_time() - own_s
        self.others_s = time.process_time() - process_s - self.own_s


async def measure(policy: str, clients: int) -> tuple[float, float, float]:
    """CPU us a request on the loop and elsewhere, and the median time of one, us."""
    waits_ns: list[int] = []
    bill = Bill()
    async with serving(noop(policy)) as (runner, _):
        await _load(runner, clients, DURATION_S / 5, [])
        with bill.running():
            await _load(runner, clients, DURATION_S, waits_ns)
    requests = len(waits_ns)
    return (
        bill.own_s / requests * 1e6,
        bill.others_s / requests * 1e6,
        statistics.median(waits_ns) / MICROSECOND_NS,
    )


async def _load(runner: Runner[Tensors, Tensors], clients: int, duration_s: float, waits_ns: list[int]) -> None:
    inputs = {"x": np.zeros((1, 16), np.float32)}
    end_ns = CLOCK.now_ns() + round(duration_s * SECOND_NS)

    async def call() -> None:
        began_ns = CLOCK.now_ns()
        while began_ns < end_ns:
            await runner.execute(inputs, 1, expires_ns=began_ns + PATIENCE_NS)
            began_ns, before_ns = CLOCK.now_ns(), began_ns
            waits_ns.append(began_ns - before_ns)

    async with asyncio.TaskGroup() as callers:
        for _ in range(clients):
            callers.create_task(call())


def main() -> None:
    """One line a policy and number of callers: the round with the least CPU time, as others disturb it."""
    for policy in POLICIES:
        for clients in CLIENTS:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                own_us, others_us, wait_us = min(loop.run(measure(policy, clients)) for _ in range(ROUNDS))
            print(
                f"{policy:8} {clients:3} callers: {own_us:6.1f} us of CPU a request on the loop, "
                f"{others_us:5.1f} us in threads; a call takes {wait_us:6.0f} us"
            )


if __name__ == "__main__":
    main()
