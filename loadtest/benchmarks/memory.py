"""Does memory stay flat, and is every batch size warm, while request sizes are random?

Requests of 1 to 32 rows make batches of at most 32, one after the other, in the real pool: ONNX Runtime in a thread of
this process and in a worker, PyTorch in a worker. Every few seconds the resident memory of both processes is printed.
"""

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import uvloop

from backends.cpu_budget import available_cores
from backends.members import Member
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Executor, Placement
from backends.registry import create_executors
from backends.sizes import executed_sizes, warm_up_sizes
from backends.workers import WorkerHouse
from batching.clock import SECOND_NS, MonotonicClock, seconds_to_ns
from models.inference import Tensors
from models.repository import scan
from models.spec import DeviceKind, ExecutionSpec, Host, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec
from models.zoo.embedded import ensure_cached

CLOCK = MonotonicClock()
LARGEST_ROWS = 32
MEBIBYTE = 1 << 20
_GROUPS = (InstanceGroup(name="m", kind=DeviceKind.CPU, count=1),)


@dataclass(slots=True)
class Subject:
    """One model under load.

    Attributes:
        member: Its only instance.
        pids: Of the processes that it occupies: this one, and its worker's if it has one.
        batches: How many batches of each size its executor was given.
    """

    member: Member
    pids: Sequence[int]
    batches: Counter[int] = field(default_factory=Counter)
    _warm_rows: Sequence[int] = ()
    _lanes: Sequence[Executor] = ()

    @property
    def unwarmed_runs(self) -> int:
        """Batches of a size that was not warmed up: as the executor counts them, or from outside if it is in a worker.

        A worker warms up exactly the sizes that it is told, and is told the size of each batch.
        """
        if self._lanes:
            return sum(cast("int", getattr(lane, "unwarmed_runs", 0)) for lane in self._lanes)
        return sum(count for rows, count in self.batches.items() if rows not in self._warm_rows)

    def resident_bytes(self) -> Sequence[int]:
        """Memory of each of the processes."""
        return [_resident_bytes(pid) for pid in self.pids]

    async def run(self, batch: Sequence[Tensors]) -> None:
        """Compute one batch. Raises the error of a request that failed."""
        result = await self.member.execute(batch)
        self.batches[result.executed_rows] += 1
        for answer in result.results:
            if isinstance(answer, Exception):
                raise answer


@asynccontextmanager
async def hosted(spec: ModelSpec) -> AsyncIterator[Subject]:
    """A model in a pool, ready."""
    lanes: list[Executor] = []

    def create(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
        instances = create_executors(spec, placement)
        lanes.extend(lane for instance in instances for lane in instance)
        return instances

    machine = Machine(gpus={}, defaults=Placement(cores=available_cores()))
    async with WorkerHouse(CLOCK) as workers:
        pool = InstancePool(spec, clock=CLOCK, machine=machine, workers=workers, factory=create)
        try:
            await pool.start()
            pids = [os.getpid(), *(status.pid for status in pool.statuses() if status.pid)]
            warm = warm_up_sizes(spec, executed_sizes(spec, is_costly=True, is_gpu=False), is_gpu=False)
            yield Subject(pool.instances[0], pids, _warm_rows=warm, _lanes=lanes)
        finally:
            await pool.aclose()


def random_batches(spec: ModelSpec, seed: int = 1) -> Iterator[Sequence[Tensors]]:
    """Batches of the model's largest size at most, of requests of 1 to as many rows, in memory of their own."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    (declared,) = spec.inputs
    noise = np.random.default_rng(seed).standard_normal((spec.max_batch_rows, *declared.dims), np.float32)
    while True:
        room_rows = spec.max_batch_rows
        batch: list[Tensors] = []
        while (rows := chance.randint(1, spec.max_batch_rows)) <= room_rows:
            batch.append({declared.name: noise[:rows].copy()})
            room_rows -= rows
        yield batch


async def measure(spec: ModelSpec, seconds: float, every_s: float) -> None:
    """Load one model for a time and print what becomes of memory."""
    async with hosted(spec) as subject:
        batches = random_batches(spec)
        began_ns = CLOCK.now_ns()
        print(
            f"{spec.backend}, {'worker process' if len(subject.pids) > 1 else 'thread'}: resident MiB of server, worker"
        )
        for sample in range(round(seconds / every_s) + 1):
            end_ns = began_ns + seconds_to_ns(sample * every_s)
            while CLOCK.now_ns() < end_ns:
                await subject.run(next(batches))
            resident = ", ".join(f"{size_bytes / MEBIBYTE:7.1f}" for size_bytes in subject.resident_bytes())
            print(
                f"  {(CLOCK.now_ns() - began_ns) / SECOND_NS:5.1f} s  {resident}  {subject.batches.total():6} batches"
            )
        print(f"  unwarmed runs: {subject.unwarmed_runs}; sizes run: {', '.join(map(str, sorted(subject.batches)))}")


def specs(directory: Path) -> Iterator[ModelSpec]:
    """The embedded model on ONNX Runtime, in both hosts, and a network of torchvision with random weights."""
    if importlib.util.find_spec("torchvision") is None:
        print("pytorch: not installed (make test-torch makes an environment with it)")
    else:
        yield _mobilenet(directory / "model.pt")
    version = scan([ensure_cached(Path.home() / ".cache" / "shoal")]).models[0].versions[0]
    lite0 = replace(version, max_batch_rows=LARGEST_ROWS, instance_groups=_GROUPS)
    yield replace(lite0, execution=ExecutionSpec(host=Host.PROCESS))
    yield lite0  # last, because this process keeps some of its memory


def _mobilenet(file: Path) -> ModelSpec:
    code = (
        "import sys, torch, torchvision; torch.save(torchvision.models.mobilenet_v3_small().state_dict(), sys.argv[1])"
    )
    # In a process of its own: PyTorch would take 600 MB of this one.
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)  # noqa: S603
    return ModelSpec(
        name="mobilenet",
        version=1,
        platform="",
        backend="pytorch",
        max_batch_rows=LARGEST_ROWS,
        inputs=(TensorSpec(name="x", data_type=DataType.FP32, dims=(3, 224, 224)),),
        outputs=(TensorSpec(name="y", data_type=DataType.FP32, dims=(1_000,)),),
        instance_groups=_GROUPS,
        file=file,
        parameters={"torchvision_model": "mobilenet_v3_small"},
    )


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure each in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines")
    parser.add_argument("--backend", choices=["onnxruntime", "pytorch"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for spec in specs(Path(directory)):
            if arguments.backend in (None, spec.backend):
                uvloop.run(measure(spec, arguments.seconds, arguments.every))


if __name__ == "__main__":
    main()
