"""Which GPUs there are, and what they do, on machines with made-up ones."""

import pytest

from backends.devices import LEAST_INTERVAL_NS, GpuMonitor, driver_version, gpus
from backends.nvml import FakeGpu, FakeMemory, FakeNvml, FakeProcess, load_nvml
from batching.virtual_time import VirtualClock

TWO = (FakeGpu(uuid="GPU-aa11"), FakeGpu(uuid="GPU-bb22", name="NVIDIA L4", compute_capability=(8, 9)))


def uuids(nvml: FakeNvml, visible: str | None = None) -> list[str]:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return [gpu.uuid for gpu in gpus(nvml, environment)]


def test_every_gpu_is_found_with_its_properties() -> None:
    first, second = gpus(FakeNvml(gpus=TWO), {})

    assert (first.index, first.uuid, first.memory_bytes) == (0, "GPU-aa11", 1 << 30)
    assert (second.index, second.name, second.compute_capability) == (1, "NVIDIA L4", (8, 9))


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    nvml = FakeNvml(gpus=TWO, is_broken=True)

    assert uuids(nvml) == []
    assert driver_version(nvml) is None
    assert list(GpuMonitor(VirtualClock(), nvml, {}).read()) == []


def test_the_installed_library_answers_without_raising_whatever_this_machine_has() -> None:
    found = gpus()

    assert [gpu.index for gpu in found] == list(range(len(found)))
    assert load_nvml() or not found


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["GPU-bb22"]),
        ("1,0", ["GPU-bb22", "GPU-aa11"]),
        ("GPU-bb", ["GPU-bb22"]),
        ("GPU-", []),
        ("", []),
        ("-1", []),
        ("0,7,1", ["GPU-aa11"]),
        ("0,0,1", ["GPU-aa11"]),
        (" 0 , 1 ", ["GPU-aa11", "GPU-bb22"]),
    ],
    ids=["number", "order", "uuid", "ambiguous", "empty", "none", "until a flaw", "until a repetition", "spaces"],
)
def test_cuda_visible_devices_chooses_and_orders_the_gpus(visible: str, expected: list[str]) -> None:
    assert uuids(FakeNvml(gpus=TWO), visible) == expected


def test_of_a_gpu_in_slices_only_the_slices_can_be_used() -> None:
    cut = FakeGpu(
        uuid="GPU-cc33",
        compute_capability=(9, 0),
        slices=[FakeGpu(uuid="MIG-1", compute_capability=None), FakeGpu(uuid="MIG-2", compute_capability=None)],
    )

    found = gpus(FakeNvml(gpus=[cut, TWO[0]]), {})

    assert [gpu.uuid for gpu in found] == ["MIG-1", "MIG-2", "GPU-aa11"]
    assert found[0].compute_capability == (9, 0)


def test_a_reading_has_the_units_it_says() -> None:
    gpu = FakeGpu(
        uuid="GPU-aa11",
        memory=FakeMemory(total=1000, used=400),
        utilization_percent=25,
        power_mw=70_500,
        power_limit_mw=700_000,
        energy_mj=1_500,
        processes=[FakeProcess(pid=7, usedGpuMemory=300), FakeProcess(pid=8, usedGpuMemory=None)],
    )

    (reading,) = GpuMonitor(VirtualClock(), FakeNvml(gpus=[gpu]), {}).read()

    assert (reading.utilization, reading.power_w, reading.power_limit_w, reading.energy_j) == (0.25, 70.5, 700.0, 1.5)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (400, 1000)
    assert reading.process_memory_bytes == {7: 300}


def test_what_a_gpu_cannot_tell_is_none() -> None:
    mute = FakeGpu(uuid="MIG-1", memory=None, compute_capability=None)

    (reading,) = GpuMonitor(VirtualClock(), FakeNvml(gpus=[mute]), {}).read()

    assert (reading.utilization, reading.power_w, reading.power_limit_w, reading.energy_j) == (None,) * 4
    assert (reading.memory_used_bytes, reading.memory_total_bytes, reading.gpu.memory_bytes) == (None,) * 3


def test_the_gpus_are_read_at_most_once_a_second() -> None:
    clock, nvml = VirtualClock(), FakeNvml(gpus=[FakeGpu(uuid="GPU-aa11", utilization_percent=1)])
    monitor = GpuMonitor(clock, nvml, {})

    monitor.read()
    monitor.read()
    clock.advance(LEAST_INTERVAL_NS)
    monitor.read()

    assert nvml.calls["utilization"] == 2


def test_a_closed_monitor_lets_go_of_the_library_and_reads_nothing() -> None:
    nvml = FakeNvml(gpus=TWO)
    monitor = GpuMonitor(VirtualClock(), nvml, {})
    monitor.read()

    monitor.close()
    monitor.close()

    assert not nvml.is_open
    assert list(monitor.read()) == []
