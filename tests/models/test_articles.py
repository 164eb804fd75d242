"""Configurations of the kind that articles show: read without problems, with all that they say."""

from pathlib import Path

import pytest

from models.model_directory import read_model
from models.spec import Accelerator, BatchingSpec, DeviceKind, InstanceGroup
from tests.models.builders import FIXTURES, article_model, spec_of

NAMES = sorted(path.name for path in FIXTURES.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_without_problems(tmp_path: Path, name: str) -> None:
    entry = read_model(article_model(tmp_path, name))

    assert entry.problems == ()
    assert [spec.version for spec in entry.versions] == [1]


def test_a_torchscript_model_says_what_it_takes_and_how_it_is_batched(tmp_path: Path) -> None:
    spec = spec_of(article_model(tmp_path, "resnet50_libtorch"))

    assert (spec.backend, spec.max_batch_rows) == ("pytorch", 32)
    assert [(tensor.name, tensor.dims) for tensor in (*spec.inputs, *spec.outputs)] == [
        ("input__0", (3, 224, 224)),
        ("output__0", (1000,)),
    ]
    assert spec.batching == BatchingSpec(
        policy="triton", parameters={"preferred_batch_size": [8, 16, 32], "max_queue_delay_microseconds": 5000}
    )
    assert spec.instance_groups == (InstanceGroup(name="resnet50_libtorch_0", kind=DeviceKind.GPU, count=2),)


def test_an_onnx_model_keeps_its_accelerator_and_its_parameters(tmp_path: Path) -> None:
    spec = spec_of(article_model(tmp_path, "resnet50_onnx"))

    assert spec.execution.gpu_accelerators == (
        Accelerator(name="tensorrt", parameters={"precision_mode": "FP16", "max_workspace_size_bytes": "1073741824"}),
    )
    assert spec.parameters == {"execution_mode": "0", "intra_op_thread_count": "2"}
    assert len(spec.outputs[0].labels) == 1000


def test_a_plan_on_several_gpus_serves_the_versions_that_its_policy_names(tmp_path: Path) -> None:
    entry = read_model(article_model(tmp_path, "resnet50_plan", "1", "2", "3"))

    assert [spec.version for spec in entry.versions] == [1, 3]
    assert [(group.count, group.gpus) for group in entry.versions[0].instance_groups] == [(2, (0,)), (1, (1, 2))]
    assert entry.versions[0].execution.cuda_graphs
