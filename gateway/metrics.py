"""Prometheus text from the engine's statistics, made when it is asked for."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from typing_extensions import override

from backends.devices import GpuMonitor
from backends.members import MemberStatus
from backends.process.child import resident_bytes
from batching.clock import SECOND_NS
from gateway.engine import Duration, Engine, Histogram, VersionStatistics
from gateway.gpu_metrics import GpuCollector

LABELS = ("model", "version")
INSTANCE_LABELS = (*LABELS, "instance", "device")
CONTENT_TYPE = "text/plain; charset=utf-8"

_Read = Callable[[VersionStatistics], float]


def _microseconds(duration: Duration) -> float:
    return duration.ns // 1000


# Triton's names and meanings: a dashboard made for Triton works unchanged.
TRITON_COUNTERS: dict[str, tuple[str, _Read]] = {
    "nv_inference_request_success": ("Successful inference requests", lambda s: s.success.count),
    "nv_inference_count": ("Inferences performed: rows, without padding", lambda s: s.inference_count),
    "nv_inference_exec_count": ("Model executions: batches", lambda s: s.execution_count),
    "nv_inference_request_duration_us": ("Request time", lambda s: _microseconds(s.success)),
    "nv_inference_queue_duration_us": ("Time in the queue", lambda s: _microseconds(s.queue)),
    "nv_inference_compute_input_duration_us": ("Time gathering inputs", lambda s: _microseconds(s.compute_input)),
    "nv_inference_compute_infer_duration_us": ("Time executing", lambda s: _microseconds(s.compute_infer)),
    "nv_inference_compute_output_duration_us": ("Time scattering outputs", lambda s: _microseconds(s.compute_output)),
}
GAUGES: dict[str, tuple[str, _Read]] = {
    "nv_inference_pending_request_count": ("Requests awaiting execution", lambda s: s.pending_requests),
    "shoal_queue_requests": ("Requests in the queue", lambda s: s.waiting_requests),
    "shoal_queue_rows": ("Rows in the queue", lambda s: s.waiting_rows),
    "shoal_reserved_requests": ("Admitted requests that are being decoded", lambda s: s.reserved_requests),
    "shoal_running_batches": ("Batches being executed", lambda s: s.running_batches),
    "shoal_instances": ("Instances that take batches", lambda s: s.instances),
}

COUNTERS: dict[str, tuple[str, _Read]] = {
    "shoal_admitted_requests": ("Requests that were admitted", lambda s: s.admitted_requests),
    "shoal_refused_requests": ("Requests that were not admitted", lambda s: s.refused_requests),
    "shoal_expired_requests": ("Admitted requests whose deadline passed", lambda s: s.expired_requests),
    "shoal_withdrawn_requests": ("Admitted requests that were given up", lambda s: s.withdrawn_requests),
    "shoal_padding_rows": ("Rows added to reach an allowed batch size", lambda s: s.padding_rows),
    "shoal_non_finite_rows": (
        "Rows computed as NaN or infinite numbers",
        lambda s: sum(member.statistics.non_finite_rows for member in s.members),
    ),
}


class _OfInstance(NamedTuple):
    """A metric of each instance."""

    family: type[GaugeMetricFamily | CounterMetricFamily]
    text: str
    read: Callable[[MemberStatus], float]


INSTANCES: dict[str, _OfInstance] = {
    "shoal_instance_executions": _OfInstance(
        CounterMetricFamily, "Batches that it executed, failed ones too", lambda s: s.statistics.executions
    ),
    "shoal_instance_failed_executions": _OfInstance(
        CounterMetricFamily, "Batches of which a request failed", lambda s: s.statistics.failed_executions
    ),
    "shoal_instance_rows": _OfInstance(CounterMetricFamily, "Rows that it executed", lambda s: s.statistics.rows),
    "shoal_instance_busy_seconds": _OfInstance(
        CounterMetricFamily, "Time in batches", lambda s: s.statistics.busy_ns / SECOND_NS
    ),
    "shoal_instance_restarts": _OfInstance(
        CounterMetricFamily, "Worker processes that ended under it", lambda s: s.restarts
    ),
    "shoal_instance_memory_failures": _OfInstance(
        CounterMetricFamily, "Batches for which memory did not suffice", lambda s: s.statistics.memory_failures
    ),
    "shoal_instance_cap_rows": _OfInstance(
        GaugeMetricFamily, "Rows that it runs at once", lambda s: s.statistics.cap_rows
    ),
}


class Snapshot(NamedTuple):
    """The engine at one moment; taken on its loop, and made into text in a thread."""

    statistics: Sequence[VersionStatistics]
    is_ready: bool

    @staticmethod
    def of(engine: Engine) -> "Snapshot":
        """As it is now."""
        return Snapshot(engine.statistics(), engine.is_ready())


class SnapshotCollector(Collector):
    """The metrics of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @override
    def collect(self) -> Iterable[Metric]:
        statistics = self._snapshot.statistics
        yield from _triton(statistics)
        yield from _plain(GaugeMetricFamily, GAUGES, statistics)
        yield from _plain(CounterMetricFamily, COUNTERS, statistics)
        yield from _distributions(statistics)
        yield from _instances(statistics)
        yield GaugeMetricFamily("shoal_ready", "Whether the server is ready", value=float(self._snapshot.is_ready))


def _labels(entry: VersionStatistics) -> list[str]:
    return [entry.model, str(entry.version)]


def _triton(statistics: Sequence[VersionStatistics]) -> Iterator[Metric]:
    for name, (text, read) in TRITON_COUNTERS.items():
        metric = Metric(name, text, "counter")
        for entry in statistics:
            metric.add_sample(name, dict(zip(LABELS, _labels(entry), strict=True)), read(entry))
        yield metric
    failures = Metric("nv_inference_request_failure", "Failed inference requests by reason", "counter")
    for entry in statistics:
        for reason, count in entry.failures.items():
            labels = {**dict(zip(LABELS, _labels(entry), strict=True)), "reason": reason}
            failures.add_sample("nv_inference_request_failure", labels, count)
    yield failures


def _plain(
    family: type[GaugeMetricFamily | CounterMetricFamily],
    table: Mapping[str, tuple[str, _Read]],
    statistics: Sequence[VersionStatistics],
) -> Iterator[Metric]:
    """The metrics of a table: one number a version."""
    for name, (text, read) in table.items():
        metric = family(name, text, labels=LABELS)
        for entry in statistics:
            metric.add_metric(_labels(entry), read(entry))
        yield metric


def _distributions(statistics: Sequence[VersionStatistics]) -> Iterator[Metric]:
    closed = CounterMetricFamily("shoal_batches_closed", "Batches by why they were closed", labels=(*LABELS, "reason"))
    dropped = CounterMetricFamily(
        "shoal_dropped_requests", "Requests that the policy dropped", labels=(*LABELS, "reason")
    )
    sizes = HistogramMetricFamily("shoal_batch_rows", "Rows per executed batch", labels=LABELS)
    stages = HistogramMetricFamily("shoal_stage_seconds", "Time of a request by stage", labels=(*LABELS, "stage"))
    for entry in statistics:
        for reason, count in entry.close_reasons.items():
            closed.add_metric([*_labels(entry), reason], count)
        for reason, count in entry.drop_reasons.items():
            dropped.add_metric([*_labels(entry), reason], count)
        sizes.add_metric(_labels(entry), _buckets(entry.batch_rows), entry.batch_rows.total)
        for stage, histogram in entry.stages.items():
            stages.add_metric([*_labels(entry), stage], _buckets(histogram), histogram.total)
    yield from (closed, dropped, sizes, stages)


def _instances(statistics: Sequence[VersionStatistics]) -> Iterator[Metric]:
    members = [
        ([*_labels(entry), member.statistics.name, member.statistics.device], member)
        for entry in statistics
        for member in entry.members
    ]
    states = GaugeMetricFamily("shoal_instance_state", "1 for its state", labels=(*INSTANCE_LABELS, "state"))
    for labels, member in members:
        states.add_metric([*labels, member.state.value], 1)
    yield states
    for name, (family, text, read) in INSTANCES.items():
        metric = family(name, text, labels=INSTANCE_LABELS)
        for labels, member in members:
            metric.add_metric(labels, read(member))
        yield metric
    yield _resident_bytes(members)


def _resident_bytes(members: Sequence[tuple[list[str], MemberStatus]]) -> Metric:
    metric = GaugeMetricFamily(
        "shoal_instance_resident_bytes", "Memory of its worker process, 0 if it has none", labels=INSTANCE_LABELS
    )
    of_process = {pid: resident_bytes(pid) if pid else 0 for pid in {member.pid for _, member in members}}
    for labels, member in members:
        metric.add_metric(labels, of_process[member.pid])
    return metric


def worker_names(statistics: Sequence[VersionStatistics]) -> Mapping[int, str]:
    """What each worker process is called, by process id: the device if versions share it there."""
    return {
        member.pid: member.statistics.device if member.statistics.device != "cpu" else f"{entry.model}:{entry.version}"
        for entry in statistics
        for member in entry.members
        if member.pid
    }


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' cumulative buckets."""
    buckets = []
    below = 0.0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), below))
    return buckets


_TRITON_HEADER = re.compile(rb"^(# (?:HELP|TYPE) nv_\w+)_total ", re.MULTILINE)


def render_metrics(snapshot: Snapshot, gpus: GpuMonitor | None = None) -> bytes:
    """The text. May take milliseconds: it asks the operating system and the GPUs' driver."""
    registry = CollectorRegistry()  # of this scrape alone
    registry.register(SnapshotCollector(snapshot))
    if gpus is not None:
        registry.register(GpuCollector(gpus, lambda: worker_names(snapshot.statistics)))
    # The client library gives every counter the suffix `_total`, which Triton's names do not have.
    return _TRITON_HEADER.sub(rb"\1 ", generate_latest(registry))
