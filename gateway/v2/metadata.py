"""What the v2 surface says about the server and its models, as JSON-ready values."""

from collections.abc import Mapping, Sequence

from gateway.engine import BatchSizeStatistics, Duration, VersionStatistics
from models.spec import ModelSpec
from models.tensors import TensorSpec

Json = Mapping[str, object]

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""What is really served; perf_analyzer and others switch features by this list."""


def server_metadata(name: str, version: str) -> Json:
    """The answer to ``GET /v2``."""
    return {"name": name, "version": version, "extensions": EXTENSIONS}


def model_metadata(spec: ModelSpec, versions: Sequence[int]) -> Json:
    """Names, types and shapes; shapes begin with -1 when the model has a batch dimension."""
    return {
        "name": spec.name,
        "versions": [str(version) for version in versions],
        "platform": spec.platform or spec.backend,
        "inputs": [_tensor(spec, tensor) for tensor in spec.inputs],
        "outputs": [_tensor(spec, tensor) for tensor in spec.outputs],
    }


def _tensor(spec: ModelSpec, tensor: TensorSpec) -> Json:
    shape = (-1, *tensor.dims) if spec.has_batch_dimension else tensor.dims
    return {"name": tensor.name, "datatype": tensor.data_type.value, "shape": shape}


def statistics(entries: Sequence[VersionStatistics]) -> Json:
    """Counters as Triton names them; all eight `inference_stats` are there because perf_analyzer looks each up."""
    return {"model_stats": [_version_statistics(entry) for entry in entries]}


def _version_statistics(entry: VersionStatistics) -> Json:
    return {
        "name": entry.model,
        "version": str(entry.version),
        "last_inference": entry.last_inference_ms,
        "inference_count": entry.inference_count,
        "execution_count": entry.execution_count,
        "inference_stats": {
            "success": _duration(entry.success),
            "fail": _duration(entry.fail),
            "queue": _duration(entry.queue),
            "compute_input": _duration(entry.compute_input),
            "compute_infer": _duration(entry.compute_infer),
            "compute_output": _duration(entry.compute_output),
            "cache_hit": _duration(Duration()),
            "cache_miss": _duration(Duration()),
        },
        "response_stats": {},
        "batch_stats": [_batch_statistics(batch) for batch in entry.batches],
        "memory_usage": [],
    }


def _batch_statistics(batch: BatchSizeStatistics) -> Json:
    return {
        "batch_size": batch.rows,
        "compute_input": _duration(batch.compute_input),
        "compute_infer": _duration(batch.compute_infer),
        "compute_output": _duration(batch.compute_output),
    }


def _duration(duration: Duration) -> Json:
    return {"count": duration.count, "ns": duration.ns}
