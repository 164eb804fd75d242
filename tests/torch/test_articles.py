"""The configuration of a TorchScript model for GPUs, on the CPU."""

from pathlib import Path

import numpy as np
import pytest

from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from tests.models.builders import article_model, spec_of

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from tests.torch.builders import save_script  # noqa: E402 - needs torch

pytestmark = pytest.mark.torch


class Scores(torch.nn.Module):
    """A thousand times the mean of a picture."""

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return picture.mean(dim=(1, 2, 3)).unsqueeze(1).expand(-1, 1000)


async def test_a_torchscript_model_for_gpus_runs_on_the_cpu_where_that_is_allowed(tmp_path: Path) -> None:
    directory = article_model(tmp_path, "resnet50_libtorch")
    save_script(Scores(), directory / "1" / "model.pt")
    machine = Machine(gpus={}, defaults=Placement(cores=1, cache_dir=tmp_path / "cache"), allow_cpu=True)
    clock = MonotonicClock()

    async with WorkerHouse(clock) as workers:
        instances = InstancePool(spec_of(directory), clock=clock, machine=machine, workers=workers)
        await instances.start()
        run = await instances.instances[0].execute([{"input__0": np.full((2, 3, 224, 224), 0.5, np.float32)}])
        await instances.aclose()

    (answer,) = run.results
    assert not isinstance(answer, Exception)
    assert np.array_equal(answer["output__0"], np.full((2, 1000), 0.5, np.float32))
