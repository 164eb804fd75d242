"""From an ONNX file to a plan, with a made-up TensorRT."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import LoadError
from backends.tensorrt_engine.build_process import build_in_process
from backends.tensorrt_engine.building import build_plan, run_build
from backends.tensorrt_engine.fake_api import FakeTensorRt
from backends.tensorrt_engine.fake_models import FakeBuilderFlag, FakeModel, FakeTensor
from backends.tensorrt_engine.keys import installed_version
from backends.tensorrt_engine.messages import with_logger
from backends.tensorrt_engine.store import EngineState, EngineStore
from batching.clock import MonotonicClock
from models.tensors import DataType
from tests.backends.builders import tensor
from tests.backends.tensorrt_builders import MACHINE, job, saved, version


def test_an_engine_takes_all_sizes_up_to_the_largest_and_is_tuned_for_one(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, onnx=FakeModel()), max_batch_rows=32)

    plan, _ = build_plan(with_logger(FakeTensorRt()), job(spec, tmp_path), b"")

    (profile,) = FakeModel.from_bytes(plan).profiles
    assert profile == {"x": [[1, 2], [32, 2], [32, 2]]}


def test_a_model_with_fixed_shapes_needs_no_profile(tmp_path: Path) -> None:
    static = FakeModel(inputs=(FakeTensor(name="x", shape=(4, 2)),), outputs=(FakeTensor(name="y", shape=(4, 2)),))

    plan, _ = build_plan(with_logger(FakeTensorRt()), job(version(saved(tmp_path, onnx=static)), tmp_path), b"")

    assert FakeModel.from_bytes(plan).profiles == ()


def test_the_networks_element_types_are_those_of_the_file(tmp_path: Path) -> None:
    api = FakeTensorRt()

    build_plan(with_logger(api), job(version(saved(tmp_path, onnx=FakeModel())), tmp_path), b"")

    assert api.network_flags == [1 << 1]


def test_options_reach_the_builder(tmp_path: Path) -> None:
    api = FakeTensorRt()
    spec = version(saved(tmp_path, onnx=FakeModel()), workspace_bytes="1000", allow_tf32="false")

    build_plan(with_logger(api), job(spec, tmp_path), b"")

    assert (api.configs[0].workspace_bytes, api.configs[0].cleared) == (1000, [FakeBuilderFlag.TF32])


def test_a_build_is_kept_and_not_done_again(tmp_path: Path) -> None:
    api = FakeTensorRt()
    wanted = job(version(saved(tmp_path, onnx=FakeModel())), tmp_path)

    run_build(with_logger(api), wanted, MonotonicClock())
    run_build(with_logger(api), wanted, MonotonicClock())

    assert api.builds == 1
    assert EngineStore(wanted.cache_dir, MACHINE).state(wanted.key) is EngineState.READY


def test_a_build_begins_with_the_timings_of_those_before(tmp_path: Path) -> None:
    api = FakeTensorRt()
    file = saved(tmp_path, onnx=FakeModel())

    for rows in (4, 8):
        run_build(with_logger(api), job(version(file, max_batch_rows=rows), tmp_path), MonotonicClock())

    assert EngineStore(tmp_path / "cache", MACHINE).load_timings() == b"2"


def test_a_file_that_cannot_be_read_is_refused_without_our_directories(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("no model")

    with pytest.raises(LoadError) as caught:
        build_plan(with_logger(FakeTensorRt()), job(version(tmp_path / "model.onnx"), tmp_path), b"")

    assert str(caught.value) == (
        "model 'm' version 1: TensorRT cannot read 'model.onnx': Failed to parse the file model.onnx"
    )


def test_a_failed_build_says_why(tmp_path: Path) -> None:
    api = FakeTensorRt(build_failure="[builder.cpp::build::9] Error Code 10: Could not find any implementation")

    with pytest.raises(LoadError, match=r"cannot build an engine of 'model\.onnx': Error Code 10: Could not find any"):
        build_plan(with_logger(api), job(version(saved(tmp_path, onnx=FakeModel())), tmp_path), b"")


def test_variable_dims_are_refused(tmp_path: Path) -> None:
    spec = replace(version(saved(tmp_path, onnx=FakeModel())), inputs=(tensor("x", DataType.FP32, (-1,)),))

    with pytest.raises(LoadError, match=r"input 'x' is declared with variable dims \[-1\], expected fixed ones"):
        build_plan(with_logger(FakeTensorRt()), job(spec, tmp_path), b"")


def test_inputs_that_are_not_declared_are_refused(tmp_path: Path) -> None:
    two = FakeModel(inputs=(FakeTensor(name="x"), FakeTensor(name="mask")))

    with pytest.raises(LoadError, match=r"'model\.onnx' has inputs mask that the configuration does not declare"):
        build_plan(with_logger(FakeTensorRt()), job(version(saved(tmp_path, onnx=two)), tmp_path), b"")


def test_a_cache_that_cannot_be_written_fails_the_build_without_our_directories(tmp_path: Path) -> None:
    wanted = job(version(saved(tmp_path, onnx=FakeModel())), tmp_path)
    (tmp_path / "cache").write_text("no directory")

    with pytest.raises(LoadError, match="cannot write to the engine cache") as caught:
        run_build(with_logger(FakeTensorRt()), wanted, MonotonicClock())

    assert str(tmp_path) not in str(caught.value)


def test_progress_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run_build(
            with_logger(FakeTensorRt()), job(version(saved(tmp_path, onnx=FakeModel())), tmp_path), MonotonicClock()
        )

    assert "model 'm' version 1: building a TensorRT engine: it was asked for" in caplog.text
    assert "built a TensorRT engine of 0.0 MB in" in caplog.text


def children() -> set[str]:
    """Ids of this process's children, zombies included."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.mark.slow
async def test_a_build_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    before = children()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):  # the process has not even read its job
            await build_in_process(job(version(saved(tmp_path, onnx=FakeModel())), tmp_path), {})

    assert children() <= before


@pytest.mark.slow
@pytest.mark.skipif(installed_version() is not None, reason="TensorRT is installed: tests/gpu builds for real")
async def test_a_build_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="TensorRT cannot be imported"):
        await build_in_process(job(version(saved(tmp_path, onnx=FakeModel())), tmp_path), {})
