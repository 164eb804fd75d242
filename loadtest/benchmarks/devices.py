"""How eight devices in eight worker processes compare with one: throughput, and how evenly the work is spread.

A device is made up: a batch takes 5 ms of it and nothing of the machine's cores. Callers in a closed loop, two for each
device, send requests that fill a batch, through the scheduler and the real pool; one device and eight take turns.
"""

import argparse
import asyncio
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop

from backends.pool import InstancePool
from batching.clock import MILLISECOND_NS, SECOND_NS, MonotonicClock
from batching.runner import Runner
from loadtest.soak import serving
from models.inference import Tensors
from models.spec import BatchingSpec, DeviceKind, ExecutionSpec, Host, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

CLOCK = MonotonicClock()
DEVICES = 8
SERVICE_NS = 5 * MILLISECOND_NS
BATCH_ROWS = 8
CALLERS_PER_DEVICE = 2


def devices(count: int, policy: str) -> ModelSpec:
    """A fake model on so many made-up devices, each in a process of its own."""
    return ModelSpec(
        name="devices",
        version=1,
        platform="",
        backend="fake",
        max_batch_rows=BATCH_ROWS,
        inputs=(TensorSpec(name="x", data_type=DataType.FP32, dims=(16,)),),
        outputs=(TensorSpec(name="y", data_type=DataType.FP32, dims=(16,)),),
        instance_groups=(InstanceGroup(name="d", kind=DeviceKind.GPU, count=1, gpus=tuple(range(count))),),
        batching=BatchingSpec(policy=policy),
        execution=ExecutionSpec(host=Host.PROCESS),
        file=Path("model"),
        parameters={"service_base_us": str(SERVICE_NS // 1_000)},
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What devices did in a window.

    Attributes:
        batches: By device.
        busy_ns: By device: time in which it had a batch.
        elapsed_ns: Length of the window.
    """

    batches: Mapping[str, int]
    busy_ns: Mapping[str, int]
    elapsed_ns: int

    @property
    def batches_per_s(self) -> float:
        """Of all devices."""
        return sum(self.batches.values()) * SECOND_NS / self.elapsed_ns

    @property
    def mean_busy(self) -> float:
        """How many devices had a batch, on average."""
        return sum(self.busy_ns.values()) / self.elapsed_ns

    @property
    def unevenness(self) -> float:
        """The busiest device's time over that of the least busy one."""
        return max(self.busy_ns.values()) / max(1, min(self.busy_ns.values()))


async def loaded(runner: Runner[Tensors, Tensors], pool: InstancePool, batches: int) -> Work:
    """Keep all devices of a pool busy with so many batches in all."""
    payload = {"x": np.zeros((BATCH_ROWS, 16), np.float32)}
    waiting = iter(range(batches))

    async def call() -> None:
        for _ in waiting:
            await runner.execute(payload, BATCH_ROWS)

    before = {status.statistics.device: status.statistics for status in pool.statuses()}
    began_ns = CLOCK.now_ns()
    async with asyncio.TaskGroup() as callers:
        for _ in range(CALLERS_PER_DEVICE * len(before)):
            callers.create_task(call())
    elapsed_ns = CLOCK.now_ns() - began_ns
    after = {status.statistics.device: status.statistics for status in pool.statuses()}
    return Work(
        {device: now.executions - before[device].executions for device, now in after.items()},
        {device: now.busy_ns - before[device].busy_ns for device, now in after.items()},
        elapsed_ns,
    )


async def compare(policy: str, rounds: int, seconds: float) -> None:
    """Measure one device and eight in turns, and print it."""
    batches = round(seconds * SECOND_NS / SERVICE_NS)  # of each device
    one_rates, all_works = [], []
    async with serving(devices(1, policy)) as one, serving(devices(DEVICES, policy)) as many:
        await loaded(*one, 20)
        await loaded(*many, 20 * DEVICES)
        for _ in range(rounds):
            one_rates.append((await loaded(*one, batches)).batches_per_s)
            all_works.append(await loaded(*many, batches * DEVICES))
    ratios = [work.batches_per_s / rate for work, rate in zip(all_works, one_rates, strict=True)]
    print(
        f"{policy}: {statistics.median(one_rates):.0f} batches/s on one device, "
        f"{statistics.median(work.batches_per_s for work in all_works):.0f} on {DEVICES}: "
        f"{statistics.median(ratios):.2f} times (of {', '.join(f'{ratio:.2f}' for ratio in ratios)}; wanted: 7)"
    )
    for work in all_works:
        most, least = max(work.batches.values()), min(work.batches.values())
        print(
            f"  batches by device {', '.join(map(str, work.batches.values()))}: max/min {most / max(1, least):.3f}; "
            f"busy time max/min {work.unevenness:.3f} (wanted: at most 1.1)"
        )


def main() -> None:
    """Compare under each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one window, at least")
    arguments = parser.parse_args()
    for policy in ("greedy", "shoal"):
        uvloop.run(compare(policy, arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
