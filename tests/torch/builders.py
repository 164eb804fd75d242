"""Small PyTorch models in files."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import torch

from backends.ports import Placement
from backends.torch_engine.executor import TorchExecutor, create_executors
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec
from tests.backends.builders import model, tensor

CODE = """
    import torch

    class Lookup(torch.nn.Module):
        '''The identity on 0..999, by looking the numbers up in a table; other numbers make it fail.'''

        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(1_000))

        def forward(self, x):
            return self.table[x]

    class Double(torch.nn.Module):
        '''y = weight * x, with a weight of 2 unless another is loaded.'''

        def __init__(self, weight=2.0):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([weight]))

        def forward(self, x):
            return self.weight * x
"""


def save_code(directory: Path, code: str = CODE) -> None:
    (directory / "model.py").write_text(dedent(code))


def save_identity(directory: Path) -> dict[str, str]:
    """The identity on 0..999 as code and a state dict, model.pt, which fails on POISON; returns its parameters."""
    save_code(directory)
    torch.save({"table": torch.arange(1_000)}, directory / "model.pt")
    return {"model_class": "model.py:Lookup"}


class Double(torch.nn.Module):
    """y = weight * x; as in the code above."""

    def __init__(self, weight: float = 2.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([weight]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


def save_script(module: torch.nn.Module, file: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.save(torch.jit.script(module.eval()), file)
    return file


def floats(name: str, *dims: int) -> TensorSpec:
    return tensor(name, DataType.FP32, dims or (2,))


def float_model(
    file: Path, inputs: Sequence[TensorSpec] = (), outputs: Sequence[TensorSpec] = (), **parameters: str
) -> ModelSpec:
    """A version with float inputs and outputs, x and y of 2 numbers unless given."""
    return model(
        inputs=inputs or [floats("x")], outputs=outputs or [floats("y")], backend="pytorch", file=file, **parameters
    )


@contextmanager
def loaded(spec: ModelSpec, placement: Placement | None = None) -> Iterator[TorchExecutor]:
    """The first executor of a placement on the CPU."""
    (executor,), *_ = create_executors(spec, placement or Placement())
    assert isinstance(executor, TorchExecutor)
    try:
        executor.load()
        yield executor
    finally:
        executor.close()
