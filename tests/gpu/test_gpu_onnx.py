"""ONNX Runtime's CUDA provider on a real GPU."""

import logging
from pathlib import Path

import numpy as np
import pytest

from backends.gather import padded_rows
from backends.ports import Placement
from batching.clock import MonotonicClock
from tests.gpu.builders import MIB, SIZES, gpu_placement, images, loaded, onnx_version, output
from tests.gpu.requirements import require_gpu, require_onnxruntime_gpu

require_onnxruntime_gpu()
require_gpu()
logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(120)]


def used_bytes() -> int:
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def test_the_gpu_answers_as_the_cpu_does_for_every_size(tmp_path: Path) -> None:
    spec = onnx_version(tmp_path, "onnxruntime")

    with (
        loaded(spec, gpu_placement(tmp_path), SIZES) as ((on_gpu, *_),),
        loaded(spec, Placement()) as ((on_cpu,),),
    ):
        for rows in SIZES:
            np.testing.assert_allclose(output(on_gpu, images(rows)), output(on_cpu, images(rows)), rtol=1e-2, atol=1e-3)


def test_memory_is_flat_and_no_size_is_slow_over_random_sizes(tmp_path: Path) -> None:
    clock, sizes = MonotonicClock(), np.random.default_rng(0).integers(1, 33, 500)
    times_ns: list[int] = []
    with loaded(onnx_version(tmp_path, "onnxruntime"), gpu_placement(tmp_path), SIZES) as ((lane, *_),):
        warm_bytes = used_bytes()
        for rows in sizes:
            batch = images(padded_rows(int(rows), SIZES))
            began_ns = clock.now_ns()
            output(lane, batch)
            times_ns.append(clock.now_ns() - began_ns)
        grown_bytes = used_bytes() - warm_bytes

    slowest, middle = np.percentile(times_ns, 99), np.percentile(times_ns, 50)
    logger.info("500 batches: %.0f MiB more, p50 %.2f ms, p99 %.2f ms", grown_bytes / MIB, middle / 1e6, slowest / 1e6)
    assert grown_bytes < 64 * MIB
    assert slowest < 20 * middle  # a search for algorithms takes hundreds of times as long
