"""The metrics of GPUs, from readings of made-up ones to the text."""

from backends.devices import GpuMonitor
from backends.members import MemberState, MemberStatus
from backends.nvml import FakeGpu, FakeMemory, FakeNvml, FakeProcess
from batching.ports import InstanceStatistics
from batching.virtual_time import VirtualClock
from gateway.engine import VersionStatistics
from gateway.metrics import Snapshot, render_metrics


def text(*gpus: FakeGpu, workers: dict[int, str] | None = None) -> str:
    members = tuple(member(pid, device) for pid, device in (workers or {}).items())
    statistics = VersionStatistics(model="m", version=1, members=members)
    return render_metrics(
        Snapshot([statistics], is_ready=True), GpuMonitor(VirtualClock(), FakeNvml(gpus=gpus), {})
    ).decode()


def member(pid: int, device: str) -> MemberStatus:
    counters = InstanceStatistics(
        name=f"i{pid}", device=device, executions=0, failed_executions=0, rows=0, padding_rows=0, busy_ns=0
    )
    return MemberStatus(statistics=counters, state=MemberState.READY, since_ns=0, reason="", restarts=0, pid=pid)


def test_a_gpu_is_reported_under_tritons_names() -> None:
    gpu = FakeGpu(
        uuid="GPU-aa11",
        memory=FakeMemory(total=2048, used=1024),
        utilization_percent=50,
        power_mw=70_000,
        power_limit_mw=700_000,
        energy_mj=9_000,
    )

    lines = text(gpu).splitlines()

    assert 'nv_gpu_utilization{gpu_uuid="GPU-aa11"} 0.5' in lines
    assert 'nv_gpu_power_usage{gpu_uuid="GPU-aa11"} 70.0' in lines
    assert 'nv_gpu_power_limit{gpu_uuid="GPU-aa11"} 700.0' in lines
    assert 'nv_gpu_memory_total_bytes{gpu_uuid="GPU-aa11"} 2048.0' in lines
    assert 'nv_gpu_memory_used_bytes{gpu_uuid="GPU-aa11"} 1024.0' in lines
    assert 'nv_energy_consumption{gpu_uuid="GPU-aa11"} 9.0' in lines
    assert "# TYPE nv_energy_consumption counter" in lines


def test_a_value_that_a_gpu_cannot_tell_is_left_out() -> None:
    lines = text(FakeGpu(uuid="MIG-1"), FakeGpu(uuid="GPU-2", utilization_percent=0)).splitlines()

    assert [line for line in lines if line.startswith("nv_gpu_utilization{")] == [
        'nv_gpu_utilization{gpu_uuid="GPU-2"} 0.0'
    ]


def test_a_machine_without_gpus_has_no_gpu_metrics() -> None:
    assert "gpu" not in text()


def test_gpu_memory_is_reported_for_our_own_workers_only() -> None:
    processes = [FakeProcess(pid=7, usedGpuMemory=300), FakeProcess(pid=8, usedGpuMemory=400)]

    lines = text(FakeGpu(uuid="GPU-aa11", processes=processes), workers={7: "gpu0"}).splitlines()

    assert [line for line in lines if line.startswith("shoal_worker_gpu_memory_bytes{")] == [
        'shoal_worker_gpu_memory_bytes{gpu_uuid="GPU-aa11",worker="gpu0"} 300.0'
    ]
