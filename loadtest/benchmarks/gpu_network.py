"""The network that the GPU benchmark runs, bare and through executors."""

import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backends.ports import Executor, Placement
from backends.registry import create_executors
from batching.clock import SECOND_NS, MonotonicClock, seconds_to_ns
from models.inference import Tensors
from models.spec import DeviceKind, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

CLOCK = MonotonicClock()
Rates = dict[int, float]
"""Images a second by batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is measured, and for how long.

    Attributes:
        directory: Of the model's files and caches.
        placement: One instance on the device.
        window_s: Length of one measurement.
        batches: Sizes.
        compiled_batches: Sizes of compiled variants.
        network: Name of torchvision's model.
    """

    directory: Path
    placement: Placement
    window_s: float
    batches: Sequence[int]
    compiled_batches: Sequence[int]
    network: str

    def spec(self, backend: str, file: str, sizes: Sequence[int], parameters: Mapping[str, str]) -> ModelSpec:
        """The network as one backend runs it."""
        return ModelSpec(
            name=self.network,
            version=1,
            platform="",
            backend=backend,
            max_batch_rows=max(sizes, default=1),
            inputs=(TensorSpec(name="x", data_type=DataType.FP32, dims=(3, 224, 224)),),
            outputs=(TensorSpec(name="y", data_type=DataType.FP32, dims=(1_000,)),),
            instance_groups=(InstanceGroup(name=self.network, kind=DeviceKind.GPU, count=1),),
            file=self.directory / file,
            parameters=parameters,
        )

    def torch_spec(self, sizes: Sequence[int], parameters: Mapping[str, str]) -> ModelSpec:
        """The network as PyTorch runs it; its weights are random, so half precision is not held against fp32."""
        ours = {"torchvision_model": self.network, "precision_check": "off"}
        return self.spec("pytorch", "model.pt", sizes, ours | dict(parameters))


def images(rows: int) -> Tensors:
    """A batch of noise."""
    return {"x": np.random.default_rng(rows).standard_normal((rows, 3, 224, 224), np.float32)}


def rate(work: Sequence[Callable[[], object]], rows: int, window_s: float) -> float:
    """Images a second of several threads that repeat their work for a time; each piece is `rows` images."""
    warm = threading.Barrier(len(work))

    def repeat(piece: Callable[[], object]) -> tuple[int, int, int]:
        try:
            for _ in range(2):
                piece()
            warm.wait()
        except BaseException:
            warm.abort()  # or the others would wait for good
            raise
        began_ns, count = CLOCK.now_ns(), 0
        while CLOCK.now_ns() - began_ns < seconds_to_ns(window_s):
            piece()
            count += 1
        return count, began_ns, CLOCK.now_ns()

    with ThreadPoolExecutor(len(work)) as threads:
        runs = list(threads.map(repeat, work))
    length_ns = max(ended_ns for _, _, ended_ns in runs) - min(began_ns for _, began_ns, _ in runs)
    return sum(count for count, _, _ in runs) * rows * SECOND_NS / length_ns


def bare_loop(bench: Bench, device: str) -> Rates:
    """Without any of our code."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing

    model = network_of(bench).to(device)

    def once(batch: Tensors) -> object:
        with torch.inference_mode():
            return model(torch.from_numpy(batch["x"]).to(device)).cpu().numpy()

    return {rows: rate([partial(once, images(rows))], rows, bench.window_s) for rows in bench.batches}


@contextmanager
def ready(spec: ModelSpec, placement: Placement, sizes: Sequence[int]) -> Iterator[Sequence[Executor]]:
    """All lanes of all instances, loaded and warmed up."""
    lanes = [lane for instance in create_executors(spec, placement) for lane in instance]
    try:
        for lane in lanes:
            lane.load()
            lane.warm_up(sizes)
        yield lanes
    finally:
        for lane in lanes:
            lane.close()
        collect()


def rates_of(lanes: Sequence[Executor], sizes: Sequence[int], window_s: float) -> Rates:
    """With every lane in a thread of its own."""
    rates: Rates = {}
    for rows in sizes:
        batch = images(rows)
        rates[rows] = rate([partial(lane.run, batch, rows) for lane in lanes], rows, window_s)
    return rates


def used_bytes(bench: Bench) -> int:
    """Memory of the GPU in use by anybody, without PyTorch's reserve."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing

    collect()
    if not bench.placement.is_gpu:
        return 0
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return int(total_bytes - free_bytes)


def collect() -> None:
    """Give memory that nobody uses back to the GPU."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def network_of(bench: Bench) -> Any:
    """The network as a module on the CPU, with the weights in model.pt."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing
    import torchvision  # noqa: PLC0415 - likewise

    network = torchvision.models.get_model(bench.network, weights=None).eval()
    network.load_state_dict(torch.load(bench.directory / "model.pt", weights_only=True))
    return network


def export(bench: Bench) -> str:
    """Write model.onnx; returns why it cannot be, or nothing."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing

    axes = {"x": {0: "rows"}, "y": {0: "rows"}}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # this exporter is deprecated; the new one needs another package
            sample = (torch.zeros(2, 3, 224, 224),)
            torch.onnx.export(network_of(bench), sample, str(bench.directory / "model.onnx"), dynamo=False, **names)
    except Exception as error:  # noqa: BLE001 - whatever an exporter raises, the rest can be measured
        return f"PyTorch cannot export the model: {type(error).__name__}"
    return ""


def save(bench: Bench) -> None:
    """Write model.pt with random weights, the same in every run."""
    import torch  # noqa: PLC0415 - takes seconds, and may be missing
    import torchvision  # noqa: PLC0415 - likewise

    torch.manual_seed(0)
    torch.save(torchvision.models.get_model(bench.network, weights=None).state_dict(), bench.directory / "model.pt")
