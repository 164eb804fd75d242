"""A PyTorch model that overflows in half precision, and is asked again in single precision."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadError
from backends.ports import Placement
from models.spec import ExecutionSpec, NonFinite
from tests.backends.builders import started

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from backends.torch_engine.executor import create_executors  # noqa: E402 - needs torch
from tests.torch.builders import float_model, save_script  # noqa: E402

pytestmark = pytest.mark.torch

LARGE = 40_000.0  # twice that is above 65 504


class Doubling(torch.nn.Module):
    """y = 2 x as a matrix product, which autocast computes in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, bias=False)
        self.linear.weight.data = 2 * torch.eye(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


async def test_the_guilty_row_is_computed_in_single_precision(tmp_path: Path) -> None:
    spec = float_model(save_script(Doubling(), tmp_path / "model.pt"), precision="fp16", optimize="none")
    spec = replace(spec, execution=ExecutionSpec(non_finite=NonFinite.RETRY_FP32))
    (executor,), *_ = create_executors(spec, Placement())

    async with started(spec, executor) as instance:
        result = await instance.execute([{"x": np.full((1, 2), value, np.float32)} for value in (1, LARGE)])
        statistics = instance.statistics()

    assert [answer["y"][0, 0] for answer in result.results if not isinstance(answer, Exception)] == [2, 2 * LARGE]
    assert statistics.non_finite_rows == 1


def test_a_model_that_computes_in_single_precision_is_refused(tmp_path: Path) -> None:
    spec = float_model(tmp_path / "model.pt")

    with pytest.raises(LoadError, match="needs parameter precision to be fp16 or bf16: the model computes in fp32"):
        create_executors(replace(spec, execution=ExecutionSpec(non_finite=NonFinite.RETRY_FP32)), Placement())
