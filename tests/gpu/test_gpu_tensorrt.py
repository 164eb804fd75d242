"""TensorRT on a real GPU: building, the cache, plans, graphs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadError
from backends.ports import Placement
from backends.registry import create_executors
from backends.tensorrt_engine.bindings import load_tensorrt
from backends.tensorrt_engine.build_process import build_in_process
from backends.tensorrt_engine.building import build_plan
from backends.tensorrt_engine.jobs import BuildJob, needs_build
from models.inference import Array, Tensors
from models.spec import ModelSpec
from tests.gpu.builders import SIZES, gpu_placement, images, loaded, onnx_version, output
from tests.gpu.requirements import require_gpu, require_tensorrt

require_tensorrt()
require_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(240)]

EXACT = {"allow_tf32": "false"}


def job(spec: ModelSpec, directory: Path) -> BuildJob:
    due = needs_build(spec, gpu_placement(directory))
    assert due is not None
    return due


def expected(directory: Path, batch: Tensors) -> Array:
    """What ONNX Runtime computes on the CPU."""
    with loaded(onnx_version(directory, "onnxruntime"), Placement()) as ((on_cpu,),):
        return output(on_cpu, batch)


async def test_an_engine_is_built_once_in_a_process_of_its_own_and_serves_every_size(tmp_path: Path) -> None:
    spec = onnx_version(tmp_path, "tensorrt", **EXACT)

    await build_in_process(job(spec, tmp_path), {})
    (entry,) = (tmp_path / "cache" / "tensorrt").glob("*.engine")
    built_ns = entry.stat().st_mtime_ns
    with loaded(spec, gpu_placement(tmp_path), SIZES) as (lanes,):
        answers = {rows: [output(lane, images(rows)) for lane in lanes] for rows in range(1, 33)}

    assert needs_build(spec, gpu_placement(tmp_path)) is None
    assert entry.stat().st_mtime_ns == built_ns
    for rows, (first, second) in answers.items():
        np.testing.assert_allclose(first, expected(tmp_path, images(rows)), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(second, first, rtol=1e-5, atol=1e-6)


async def test_recorded_graphs_answer_as_the_engine_does_for_every_size(tmp_path: Path) -> None:
    eager = onnx_version(tmp_path, "tensorrt")
    await build_in_process(job(eager, tmp_path), {})
    graphs = onnx_version(tmp_path, "tensorrt", graphs=True)

    with (
        loaded(eager, gpu_placement(tmp_path), SIZES) as ((model, _),),
        loaded(graphs, gpu_placement(tmp_path), SIZES) as (lanes,),
    ):
        for lane in lanes:
            for rows in (*SIZES, *reversed(SIZES)):
                np.testing.assert_allclose(
                    output(lane, images(rows)), output(model, images(rows)), rtol=1e-5, atol=1e-6
                )


def test_a_version_is_served_before_its_engine_is_built(tmp_path: Path) -> None:
    spec = onnx_version(tmp_path, "tensorrt")

    with loaded(spec, gpu_placement(tmp_path), [1]) as ((lane, *_),):
        answer = output(lane, images(2))

    np.testing.assert_allclose(answer, expected(tmp_path, images(2)), rtol=1e-2, atol=1e-3)


async def test_a_damaged_engine_is_due_again(tmp_path: Path) -> None:
    spec = onnx_version(tmp_path, "tensorrt")
    first = job(spec, tmp_path)
    await build_in_process(first, {})
    (entry,) = (tmp_path / "cache" / "tensorrt").glob("*.engine")

    entry.write_bytes(entry.read_bytes()[:-1])

    assert job(spec, tmp_path).key == first.key


def test_a_plan_file_serves_and_a_damaged_one_says_what_to_do(tmp_path: Path) -> None:
    wanted = job(onnx_version(tmp_path, "tensorrt", **EXACT), tmp_path)
    plan, _ = build_plan(load_tensorrt(), wanted, b"")
    alone = tmp_path / "plan"
    alone.mkdir()
    (alone / "model.plan").write_bytes(plan)

    spec = replace(onnx_version(tmp_path, "tensorrt"), file=alone / "model.plan")

    with loaded(spec, gpu_placement(tmp_path), [4]) as ((lane, _),):
        np.testing.assert_allclose(output(lane, images(4)), expected(tmp_path, images(4)), rtol=1e-3, atol=1e-4)
    (alone / "model.plan").write_bytes(plan[: len(plan) // 2])

    with pytest.raises(LoadError, match=r"put the ONNX file beside it as model\.onnx"):
        create_executors(spec, gpu_placement(tmp_path))
