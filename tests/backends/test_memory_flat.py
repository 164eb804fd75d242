"""Random request sizes: memory that does not grow, and no batch of a size that was not warmed up."""

import gc
from dataclasses import replace
from itertools import islice
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from onnx import TensorProto, helper

from loadtest.benchmarks.memory import MEBIBYTE, Subject, hosted, random_batches
from models.spec import ExecutionSpec, Host, ModelSpec
from models.tensors import DataType
from tests.backends.builders import model, save_onnx, tensor

WIDTH = 4_096
BATCHES = 400
INPUT_MEBIBYTES = BATCHES * 16 * WIDTH * 4 / MEBIBYTE  # of all batches, if they were kept: about 100


def onnx_model(directory: Path, host: Host) -> ModelSpec:
    weights = np.zeros((WIDTH, 8), np.float32)
    file = save_onnx(
        directory / "model.onnx",
        [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("MatMul", ["z", "w"], ["y"])],
        x=(TensorProto.FLOAT, ("N", WIDTH)),
        y=(TensorProto.FLOAT, ("N", 8)),
        constants=[("w", weights)],
    )
    return replace(wide("onnxruntime", file), execution=ExecutionSpec(host=host))


def torch_model(directory: Path) -> ModelSpec:
    torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")
    code = """
        import torch

        class Wide(torch.nn.Linear):
            def __init__(self):
                super().__init__(4096, 8)
    """
    (directory / "model.py").write_text(dedent(code))
    torch.save(torch.nn.Linear(WIDTH, 8).state_dict(), directory / "model.pt")
    return wide("pytorch", directory / "model.pt", model_class="model.py:Wide")


def wide(backend: str, file: Path, **parameters: str) -> ModelSpec:
    return model(
        inputs=[tensor("x", DataType.FP32, (WIDTH,))],
        outputs=[tensor("y", DataType.FP32, (8,))],
        backend=backend,
        file=file,
        **parameters,
    )


async def grown_mebibytes(spec: ModelSpec, subject: Subject) -> float:
    """By how much the memory of all its processes grows, after each size has been seen."""
    batches = random_batches(spec)
    for batch in islice(batches, BATCHES // 2):
        await subject.run(batch)
    gc.collect()
    before_bytes = sum(subject.resident_bytes())
    for batch in islice(batches, BATCHES):
        await subject.run(batch)
    gc.collect()
    return (sum(subject.resident_bytes()) - before_bytes) / MEBIBYTE


@pytest.mark.slow
@pytest.mark.parametrize("host", [Host.THREAD, Host.PROCESS], ids=["thread", "worker"])
async def test_onnx_runtime_keeps_nothing_of_batches_of_random_sizes(tmp_path: Path, host: Host):
    spec = onnx_model(tmp_path, host)
    async with hosted(spec) as subject:
        grown = await grown_mebibytes(spec, subject)

        assert (len(subject.pids), subject.unwarmed_runs) == (1 if host is Host.THREAD else 2, 0)
        assert len(subject.batches) > 10
        assert grown < INPUT_MEBIBYTES / 5


@pytest.mark.slow
@pytest.mark.torch
async def test_pytorch_keeps_nothing_of_batches_of_random_sizes(tmp_path: Path):
    spec = torch_model(tmp_path)
    async with hosted(spec) as subject:
        grown = await grown_mebibytes(spec, subject)

        assert (len(subject.pids), subject.unwarmed_runs) == (2, 0)
        assert len(subject.batches) > 10
        assert grown < INPUT_MEBIBYTES / 5
