"""ResNet-50 on a GPU: what each way of running it gives, as a ratio to the bare loop of PyTorch.

The bare loop is what one would write without a server: copy a numpy batch to the GPU, run the model in fp32 and
inference mode, copy the scores back. Executors are called as their instances call them, every lane in a thread, with
batches in ordinary memory, so their copies count too. Prints Markdown; takes less than five minutes.

Without a GPU it says so in one sentence and ends with status 0: there is nothing to measure, and nothing is wrong.
``--device cpu`` is a rehearsal of the script itself, whose figures mean nothing.
"""

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backends.devices import GpuMonitor, gpus
from backends.errors import BackendError
from backends.ports import Placement
from backends.tensorrt_engine.bindings import load_tensorrt
from backends.tensorrt_engine.building import run_build
from backends.tensorrt_engine.jobs import needs_build
from loadtest.benchmarks.gpu_network import (
    CLOCK,
    Bench,
    Rates,
    bare_loop,
    collect,
    export,
    rates_of,
    ready,
    save,
    used_bytes,
)
from models.spec import ModelSpec

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
COMPILED_BATCHES = (32,)  # each takes tens of seconds to compile
INSTANCE_BATCHES = (1, 8, 32, 128)
INSTANCES = (1, 2, 4)
MIB = 1 << 20

TORCH_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "eager": {},
    "eager, channels_last": {"channels_last": "true"},
    "CUDA graphs": {"cuda_graphs": "true"},
    "fp16": {"precision": "fp16"},
    "fp16, channels_last": {"precision": "fp16", "channels_last": "true"},
    "fp16, channels_last, CUDA graphs": {"precision": "fp16", "channels_last": "true", "cuda_graphs": "true"},
}
COMPILED_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "compile": {"compile": "true"},
    "fp16, channels_last, compile, CUDA graphs": {**list(TORCH_VARIANTS.values())[-1], "compile": "true"},
}


def variants(bench: Bench) -> Iterator[tuple[str, Rates | str]]:
    """Each way of running the network: its rates, or why there are none."""
    for name, parameters in TORCH_VARIANTS.items():
        yield name, _attempt(bench, bench.torch_spec(bench.batches, parameters), bench.batches)
    sizes = bench.compiled_batches
    for name, parameters in COMPILED_VARIANTS.items() if sizes else ():
        yield name, _attempt(bench, bench.torch_spec(sizes, parameters), sizes)
    reason = export(bench)
    onnx = bench.spec("onnxruntime", "model.onnx", bench.batches, {})
    yield "ONNX Runtime", reason or _attempt(bench, onnx, bench.batches)
    yield "TensorRT", reason or _tensorrt(bench, replace(onnx, backend="tensorrt"))


def _tensorrt(bench: Bench, spec: ModelSpec) -> Rates | str:
    if importlib.util.find_spec("tensorrt") is None:
        return "TensorRT is not installed"
    try:
        job = needs_build(spec, bench.placement)
        if job is not None:
            run_build(load_tensorrt(), job, CLOCK)
    except BackendError as error:
        return str(error)
    return _attempt(bench, spec, bench.batches)


def _attempt(bench: Bench, spec: ModelSpec, sizes: Sequence[int]) -> Rates | str:
    try:
        with ready(spec, bench.placement, sizes) as lanes:
            return rates_of(lanes, sizes, bench.window_s)
    except BackendError as error:
        return str(error)


def instances(bench: Bench, monitor: GpuMonitor) -> Iterator[Sequence[str]]:
    """For 1, 2, 4 instances: rates and utilisation by batch, and memory."""
    parameters = list(TORCH_VARIANTS.values())[-1]
    sizes = [rows for rows in INSTANCE_BATCHES if rows in bench.batches]
    for count in INSTANCES:
        free_bytes = used_bytes(bench)
        cells: list[str] = []
        spec = bench.torch_spec(sizes, parameters)
        with ready(spec, replace(bench.placement, instances=count), sizes) as lanes:
            used = f"{(used_bytes(bench) - free_bytes) / MIB:.0f} MiB"
            for rows in sizes:
                rates = rates_of(lanes, [rows], max(bench.window_s, 1.2))  # NVML looks back for up to a second
                cells.append(f"{rates[rows]:.0f} ({_utilization(monitor)})")
        yield [str(count), used, *cells]


def _utilization(monitor: GpuMonitor) -> str:
    readings = monitor.read()
    value = readings[0].utilization if readings else None
    return "n/a" if value is None else f"{value:.0%}"


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    """Print Markdown, each row as soon as it is there."""
    print(f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def compared(bench: Bench, bare: Rates) -> Iterator[Sequence[str]]:
    """The bare loop, and each variant with its ratios."""
    yield ["bare loop", *(f"{bare[rows]:.0f}" for rows in bench.batches)]
    for name, found in variants(bench):
        if isinstance(found, str):
            yield [name, f"skipped: {found}", *([""] * (len(bench.batches) - 1))]
            continue
        yield [name, *(_cell(found.get(rows), bare[rows]) for rows in bench.batches)]


def _cell(found: float | None, bare: float) -> str:
    return "" if found is None else f"{found:.0f} ({found / bare:.2f})"


def missing() -> str:
    """Why nothing can be measured on a GPU; empty if it can."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchvision") is None:
        return "PyTorch and torchvision are not installed (make setup-gpu)"
    import torch  # noqa: PLC0415 - takes seconds

    return "" if torch.cuda.is_available() else "there is no GPU that PyTorch can use"


def run(bench: Bench) -> None:
    """Print the tables."""
    save(bench)
    device = "cuda:0" if bench.placement.is_gpu else "cpu"
    card = next((gpu.name for gpu in gpus()), "unknown GPU") if bench.placement.is_gpu else "a rehearsal on the CPU"
    print(f"# {bench.network} on {card}\n\nImages a second by batch size; in brackets the ratio to the bare loop.")
    bare = bare_loop(bench, device)
    collect()
    table(["variant", *map(str, bench.batches)], compared(bench, bare))
    monitor = GpuMonitor(CLOCK)
    try:
        print(f"\nInstances ({list(TORCH_VARIANTS)[-1]}): images a second, in brackets the GPU's utilisation.")
        sizes = [str(rows) for rows in INSTANCE_BATCHES if rows in bench.batches]
        table(["instances", "memory", *sizes], instances(bench, monitor))
    finally:
        monitor.close()


def main() -> None:
    """Measure, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["gpu0", "cpu"], default="gpu0")
    parser.add_argument("--window-s", type=float, default=0.5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--compiled-batches", type=int, nargs="*", default=COMPILED_BATCHES)
    parser.add_argument("--network", default="resnet50")
    arguments = parser.parse_args()
    reason = missing() if arguments.device != "cpu" else ""
    if reason:
        print(f"Nothing is measured: {reason}.")
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        cores = len(os.sched_getaffinity(0))
        placement = Placement(device=arguments.device, cores=cores, cache_dir=directory / "cache")
        run(
            Bench(
                directory=directory,
                placement=placement,
                window_s=arguments.window_s,
                batches=arguments.batches,
                compiled_batches=arguments.compiled_batches,
                network=arguments.network,
            )
        )


if __name__ == "__main__":
    main()
