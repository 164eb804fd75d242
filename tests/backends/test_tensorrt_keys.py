"""What an engine's name in the cache depends on, and which sizes it is built for."""

from dataclasses import replace
from pathlib import Path

import pytest

from backends.devices import gpus
from backends.errors import LoadError
from backends.nvml import FakeGpu, FakeNvml
from backends.ports import Placement
from backends.tensorrt_engine.fake_models import FakeModel
from backends.tensorrt_engine.jobs import BuildJob
from backends.tensorrt_engine.keys import BuildOptions, Machine, RowRange, build_options, choose_gpu, row_range
from models.spec import BatchingSpec
from tests.backends.tensorrt_builders import MACHINE, job, saved, version


def test_a_worker_that_sees_one_gpu_means_that_one_whatever_its_number() -> None:
    first, second = gpus(FakeNvml(gpus=[FakeGpu(uuid="GPU-1"), FakeGpu(uuid="GPU-2")]), {})
    on_second = Placement(device="gpu1")

    assert choose_gpu([first, second], on_second) == second
    assert choose_gpu([first], on_second) == first
    assert choose_gpu([], on_second) is None


def test_the_same_model_on_the_same_machine_has_the_same_key(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, onnx=FakeModel()))

    assert job(spec, tmp_path).key == job(spec, tmp_path).key


@pytest.mark.parametrize(
    "machine",
    [
        replace(MACHINE, tensorrt_version="10.9.0"),
        replace(MACHINE, gpu_name="Fake 2000"),
        replace(MACHINE, compute_capability="8.6"),
        replace(MACHINE, driver_major="580"),
    ],
    ids=["TensorRT", "GPU", "compute capability", "driver"],
)
def test_another_machine_needs_another_engine(tmp_path: Path, machine: Machine) -> None:
    spec = version(saved(tmp_path, onnx=FakeModel()))

    assert job(spec, tmp_path, machine).key != job(spec, tmp_path).key


def test_other_weights_sizes_or_options_need_another_engine(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, onnx=FakeModel()))
    keys = {
        job(spec, tmp_path).key,
        job(version(spec.file, max_batch_rows=16), tmp_path).key,
        job(version(spec.file, allow_tf32="false"), tmp_path).key,
    }

    (tmp_path / "weights.bin").write_bytes(b"of the same ONNX file")
    keys.add(job(spec, tmp_path).key)

    assert len(keys) == 4


def test_a_job_crosses_the_border_to_another_process_unchanged(tmp_path: Path) -> None:
    sent = job(version(saved(tmp_path, onnx=FakeModel())), tmp_path)

    assert BuildJob.from_json(sent.to_json()) == sent


def test_an_engine_is_tuned_for_the_largest_preferred_size(tmp_path: Path) -> None:
    spec = replace(
        version(tmp_path / "model.onnx", max_batch_rows=32),
        batching=BatchingSpec(parameters={"preferred_batch_size": [4, 16, 64]}),
    )

    assert row_range(spec) == RowRange(least=1, best=16, most=32)


def test_without_preferred_sizes_an_engine_is_tuned_for_full_batches(tmp_path: Path) -> None:
    assert row_range(version(tmp_path / "model.onnx", allowed_rows=(2, 6))) == RowRange(least=1, best=6, most=6)


def test_an_engine_without_batch_dimension_has_no_range_of_sizes(tmp_path: Path) -> None:
    assert row_range(version(tmp_path / "model.onnx", max_batch_rows=0)) is None


def test_build_options_come_from_the_models_parameters(tmp_path: Path) -> None:
    spec = version(tmp_path / "model.onnx", workspace_bytes="1000", allow_tf32="false")

    assert build_options(spec) == BuildOptions(workspace_bytes=1000, allow_tf32=False)


@pytest.mark.parametrize(("name", "text"), [("workspace_bytes", "1G"), ("allow_tf32", "yes")])
def test_a_bad_build_option_is_named(tmp_path: Path, name: str, text: str) -> None:
    spec = version(tmp_path / "model.onnx", **{name: text})

    with pytest.raises(LoadError, match=f"'{name}' is '{text}', expected"):
        build_options(spec)
