"""NVML on a real GPU."""

import logging

import pytest

from backends.devices import GpuMonitor, driver_version, gpus
from batching.clock import MonotonicClock
from batching.virtual_time import VirtualClock
from tests.gpu.requirements import require_gpu, require_nvml

require_nvml()
require_gpu()
logger = logging.getLogger(__name__)
pytestmark = pytest.mark.gpu


def test_the_gpus_are_those_that_cuda_sees() -> None:
    import torch

    assert len(gpus()) == torch.cuda.device_count()
    assert gpus()[0].name == torch.cuda.get_device_name(0)
    assert gpus()[0].compute_capability == torch.cuda.get_device_capability(0)
    assert driver_version() is not None


def test_readings_are_plausible_and_quick() -> None:
    clock = MonotonicClock()
    monitor = GpuMonitor(VirtualClock())  # whose time stands: one reading, made now
    began_ns = clock.now_ns()

    readings = monitor.read()
    took_ms = (clock.now_ns() - began_ns) / 1e6
    monitor.close()

    logger.info("first reading of %d GPUs: %.1f ms; %s", len(readings), took_ms, readings[0])
    for reading in readings:
        assert reading.utilization is None or 0 <= reading.utilization <= 1
        assert reading.power_w is None or 0 < reading.power_w < 5_000
        assert reading.memory_total_bytes is None or (reading.memory_used_bytes or 0) <= reading.memory_total_bytes
