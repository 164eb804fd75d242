"""What the GPUs do, in Prometheus' words; nothing at all where there is no GPU."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from backends.devices import GpuMonitor, GpuReading

_Read = Callable[[GpuReading], float | None]

# Triton's names and units. A value that the GPU cannot tell is left out, not 0.
GPU_METRICS: dict[str, tuple[str, str, _Read]] = {
    "nv_gpu_utilization": ("gauge", "Share of the time in which the GPU computed, 0 to 1", lambda r: r.utilization),
    "nv_gpu_power_usage": ("gauge", "Power draw of the GPU, in watts", lambda r: r.power_w),
    "nv_gpu_power_limit": ("gauge", "Power limit of the GPU, in watts", lambda r: r.power_limit_w),
    "nv_gpu_memory_total_bytes": ("gauge", "Memory of the GPU, in bytes", lambda r: r.memory_total_bytes),
    "nv_gpu_memory_used_bytes": ("gauge", "Memory of the GPU in use, in bytes", lambda r: r.memory_used_bytes),
    "nv_energy_consumption": (
        "counter",
        "Energy of the GPU since the driver was loaded, in joules",
        lambda r: r.energy_j,
    ),
}


class GpuCollector(Collector):
    """Reads the GPUs once a scrape, at most once a second.

    Args:
        monitor: Reads them; closed by its owner.
        workers: Names of this server's worker processes by process id, asked at each scrape.
    """

    def __init__(self, monitor: GpuMonitor, workers: Callable[[], Mapping[int, str]] = dict) -> None:
        self._monitor = monitor
        self._workers = workers

    @override
    def collect(self) -> Iterable[Metric]:
        readings = self._monitor.read()
        if readings:
            yield from gpu_metrics(readings)
            yield worker_memory(readings, self._workers())


def gpu_metrics(readings: Sequence[GpuReading]) -> Iterator[Metric]:
    """One family for each of `GPU_METRICS`."""
    for name, (kind, text, read) in GPU_METRICS.items():
        metric = Metric(name, text, kind)
        for reading in readings:
            value = read(reading)
            if value is not None:
                metric.add_sample(name, {"gpu_uuid": reading.gpu.uuid}, value)
        yield metric


def worker_memory(readings: Sequence[GpuReading], workers: Mapping[int, str]) -> Metric:
    """GPU memory of each worker process that NVML reports under the id that it has here."""
    family = GaugeMetricFamily(
        "shoal_worker_gpu_memory_bytes", "GPU memory of a worker process", labels=("gpu_uuid", "worker")
    )
    for reading in readings:
        for pid, memory_bytes in reading.process_memory_bytes.items():
            if pid in workers:
                family.add_metric([reading.gpu.uuid, workers[pid]], memory_bytes)
    return family
