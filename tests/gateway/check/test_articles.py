"""Configurations for GPUs, of the kind that articles show, on a machine without any."""

from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadError
from backends.placing import Machine
from backends.pool import InstancePool
from backends.ports import Placement
from backends.workers import WorkerHouse
from batching.clock import MonotonicClock
from gateway.repository_check import check_places
from models.findings import Severity
from models.repository import Repository
from models.spec import ModelSpec
from tests.models.builders import article_model, spec_of

CLOCK = MonotonicClock()
NAMES = ["resnet50_libtorch", "resnet50_onnx", "resnet50_plan"]


def machine(tmp_path: Path, *, allow_cpu: bool) -> Machine:
    return Machine(gpus={}, defaults=Placement(cores=1, cache_dir=tmp_path / "cache"), allow_cpu=allow_cpu)


def pool(spec: ModelSpec, tmp_path: Path, workers: WorkerHouse, *, allow_cpu: bool) -> InstancePool:
    return InstancePool(spec, clock=CLOCK, machine=machine(tmp_path, allow_cpu=allow_cpu), workers=workers)


@pytest.mark.parametrize("name", NAMES)
def test_the_check_refuses_each_group_with_a_sentence_and_its_line(tmp_path: Path, name: str) -> None:
    directory = article_model(tmp_path / "models", name)
    lines = (directory / "config.pbtxt").read_text().splitlines()

    report = check_places(Repository([tmp_path / "models"]).places(), machine(tmp_path, allow_cpu=False))

    refused = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert refused
    assert all("this machine has no GPU" in error.found and "--allow-cpu" in error.fix for error in refused)
    assert all("KIND_GPU" in lines[(error.line or 0) - 1] for error in refused)


@pytest.mark.parametrize("name", ["resnet50_libtorch", "resnet50_onnx"])
def test_the_check_passes_where_the_cpu_is_allowed(tmp_path: Path, name: str) -> None:
    article_model(tmp_path / "models", name)

    report = check_places(Repository([tmp_path / "models"]).places(), machine(tmp_path, allow_cpu=True))

    assert report.count(Severity.ERROR) == 0


def test_the_check_tells_that_a_plan_runs_on_no_cpu(tmp_path: Path) -> None:
    article_model(tmp_path / "models", "resnet50_plan")

    report = check_places(Repository([tmp_path / "models"]).places(), machine(tmp_path, allow_cpu=True))

    assert [(finding.line, finding.found) for finding in report.findings if finding.severity is Severity.ERROR] == [
        (8, "backend 'tensorrt' runs on NVIDIA GPUs only, found an instance on the CPU")
    ]


@pytest.mark.parametrize(
    ("name", "allow_cpu", "sentence"),
    [
        ("resnet50_onnx", False, "has no GPU; set its kind to KIND_CPU, or start with --allow-cpu"),
        ("resnet50_plan", True, "runs on NVIDIA GPUs only, found an instance on the CPU"),
    ],
)
async def test_loading_refuses_what_the_check_refuses(
    tmp_path: Path, name: str, allow_cpu: bool, sentence: str
) -> None:
    async with WorkerHouse(CLOCK) as workers:
        instances = pool(spec_of(article_model(tmp_path, name)), tmp_path, workers, allow_cpu=allow_cpu)

        with pytest.raises(LoadError, match=sentence):
            await instances.start()


async def test_a_model_for_gpus_runs_on_the_cpu_where_that_is_allowed(tmp_path: Path) -> None:
    async with WorkerHouse(CLOCK) as workers:
        instances = pool(spec_of(article_model(tmp_path, "resnet50_onnx")), tmp_path, workers, allow_cpu=True)

        await instances.start()
        run = await instances.instances[0].execute([{"data": np.ones((2, 3, 224, 224), np.float32)}])
        devices = {instance.device for instance in instances.instances}
        await instances.aclose()

    (answer,) = run.results
    assert devices == {"cpu"}
    assert not isinstance(answer, Exception)
    assert answer["scores"].shape == (2, 1000)
