"""Models for a real GPU, in files. Nothing here imports an engine: `create_executors` does."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
from onnx import TensorProto, helper

from backends.ports import Executor, Placement
from backends.registry import create_executors
from models.inference import Array, Tensors
from models.spec import ExecutionSpec, ModelSpec
from models.tensors import DataType
from tests.backends.builders import model, save_onnx, tensor

IMAGE = (3, 64, 64)
SIZES = (1, 2, 4, 8, 16, 32)
MIB = 1 << 20

CODE = """
    import torch

    class Convolutions(torch.nn.Module):
        '''A small network of images, (3, 64, 64) to 16 scores.'''

        def __init__(self):
            super().__init__()
            channels = (3, 16, 32, 16)
            self.layers = torch.nn.ModuleList(
                torch.nn.Conv2d(before, after, 3, padding=1) for before, after in zip(channels, channels[1:])
            )

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x.mean(dim=(2, 3))

    class Wide(torch.nn.Module):
        '''512 MiB of weights for rows of 4096 numbers.'''

        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4096, 4096, bias=False) for _ in range(8))

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    class Deep(torch.nn.Module):
        '''Hundreds of kernels that each fill a small part of a GPU.'''

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64, bias=False)

        def forward(self, x):
            for _ in range(400):
                x = torch.tanh(self.layer(x))
            return x

    class Sums(torch.nn.Module):
        '''Large inputs, of which `repeats` passes are made.'''

        def __init__(self, repeats=1):
            super().__init__()
            self.repeats = repeats
            self.register_buffer("zero", torch.zeros(1))

        def forward(self, x):
            total = x.sum(dim=1, keepdim=True)
            for _ in range(self.repeats - 1):
                total = total + self.zero * x.sum(dim=1, keepdim=True)
            return total

    class Greedy(torch.nn.Module):
        '''The identity, with 64 MiB of scratch memory for each row.'''

        def __init__(self):
            super().__init__()
            self.register_buffer("zero", torch.zeros(1))

        def forward(self, x):
            scratch = x[:, :1].expand(-1, 16 << 20).contiguous()
            return x + self.zero * scratch[:, : x.shape[1]]

    class Waiting(torch.nn.Module):
        '''The identity, if nothing records it: it asks the device for a number.'''

        def __init__(self):
            super().__init__()
            self.register_buffer("zero", torch.zeros(1))

        def forward(self, x):
            return x + self.zero.item()

    class Lookup(torch.nn.Module):
        '''The identity on 0..999; other numbers trip an assertion on the device.'''

        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(1_000))

        def forward(self, x):
            return self.table[x]
"""


def torch_version(
    directory: Path, name: str, dims: Sequence[int], out_dims: Sequence[int], *, graphs: bool = False, **parameters: str
) -> ModelSpec:
    """A version of one of the classes above, with weights that are the same in every process and run."""
    file = directory / f"{name}.pt"
    if not file.exists():
        _save_weights(directory, name, file)
    data_type = DataType.INT64 if name == "Lookup" else DataType.FP32
    spec = model(
        inputs=[tensor("x", data_type, tuple(dims))],
        outputs=[tensor("y", data_type, tuple(out_dims))],
        allowed_rows=SIZES,
        backend="pytorch",
        file=file,
        model_class=f"model.py:{name}",
        **parameters,
    )
    return replace(spec, execution=ExecutionSpec(cuda_graphs=graphs))


def _save_weights(directory: Path, name: str, file: Path) -> None:
    import torch

    code = dedent(CODE)
    (directory / "model.py").write_text(code)
    namespace: dict[str, type] = {}
    exec(code, namespace)  # noqa: S102 - the constant above
    torch.manual_seed(0)
    torch.save(namespace[name]().state_dict(), file)


def onnx_version(directory: Path, backend: str, *, graphs: bool = False, **parameters: str) -> ModelSpec:
    """An ONNX file of a convolution, (3, 64, 64) to 16 scores, for ONNX Runtime or TensorRT."""
    file = directory / "model.onnx"
    if not file.exists():
        weights = np.random.default_rng(0).normal(0, 0.1, (16, 3, 3, 3)).astype(np.float32)
        save_onnx(
            file,
            [
                helper.make_node("Conv", ["x", "weights"], ["convolved"], pads=[1, 1, 1, 1]),
                helper.make_node("Relu", ["convolved"], ["positive"]),
                helper.make_node("GlobalAveragePool", ["positive"], ["averaged"]),
                helper.make_node("Flatten", ["averaged"], ["y"]),
            ],
            x=(TensorProto.FLOAT, ("N", *IMAGE)),
            y=(TensorProto.FLOAT, ("N", 16)),
            constants=[("weights", weights)],
        )
    spec = model(
        inputs=[tensor("x", DataType.FP32, IMAGE)],
        outputs=[tensor("y", DataType.FP32, (16,))],
        allowed_rows=SIZES,
        backend=backend,
        file=file,
        **parameters,
    )
    return replace(spec, execution=ExecutionSpec(cuda_graphs=graphs))


def images(rows: int, seed: int = 1) -> Tensors:
    """A batch for the networks of images."""
    return {"x": np.random.default_rng(seed).normal(size=(rows, *IMAGE)).astype(np.float32)}


def gpu_placement(directory: Path, instances: int = 1) -> Placement:
    return Placement(device="gpu0", instances=instances, cores=2, cache_dir=directory / "cache")


@contextmanager
def loaded(spec: ModelSpec, placement: Placement, sizes: Sequence[int] = ()) -> Iterator[Sequence[Sequence[Executor]]]:
    """All executors of a placement, loaded and warmed up."""
    executors = create_executors(spec, placement)
    every = [lane for lanes in executors for lane in lanes]
    try:
        for lane in every:
            lane.load()
            lane.warm_up(sizes)
        yield executors
    finally:
        for lane in every:
            lane.close()


def output(executor: Executor, inputs: Tensors) -> Array:
    """What the only output is."""
    rows = len(inputs["x"])
    return executor.run(inputs, rows)["y"]
