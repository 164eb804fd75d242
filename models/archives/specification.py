"""An unpacked archive and its settings -> ModelSpec."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from models.archives.manifest import MANIFEST, Manifest, handler_of
from models.archives.settings import Settings
from models.effective import effective_tables
from models.pbtxt import parse_json, to_json
from models.provenance import DEFAULT, leaves
from models.spec import BatchingSpec, DeviceKind, ExecutionSpec, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

BACKEND = "torchserve"
INPUT = TensorSpec(name="data", data_type=DataType.BYTES, dims=(1,))
"""One request: its body, or its fields and headers in one element (models.handler_rows)."""
OUTPUT = TensorSpec(name="response", data_type=DataType.BYTES, dims=(1,))
"""The handler's answer to it."""

_MICROSECONDS = 1000  # in a millisecond
_DEFAULTS = {  # TorchServe's
    "batchSize": 1,
    "maxBatchDelay": 100,
    "jobQueueSize": 100,
    "clientTimeoutInMills": 0,
    "responseTimeout": 120,
    "startupTimeout": 120,
}
_PARAMETERS = {  # of the policy
    "batch_size": "batchSize",
    "max_batch_delay_ms": "maxBatchDelay",
    "job_queue_size": "jobQueueSize",
    "client_timeout_in_mills": "clientTimeoutInMills",
}
_FILES = {"serialized_file": "serializedFile", "model_file": "modelFile", "requirements_file": "requirementsFile"}


def model_spec(
    name: str, manifest: Manifest, directory: Path, settings: Settings, flags: Mapping[str, bool]
) -> ModelSpec:
    """The specification of one archive.

    Args:
        name: The model's, which may differ from the manifest's.
        manifest: The archive's manifest.
        directory: Where the archive is unpacked; its files are in it, MAR-INF too.
        settings: What model-config.yaml and config.properties say.
        flags: Further parameters of the handler's process.
    """
    rows = _number(settings, "batchSize")
    groups = tuple(_instance_groups(name, settings))
    parameters = {
        "handler": handler_of(manifest, directory),
        **{key: manifest.files[entry] for key, entry in _FILES.items() if entry in manifest.files},
        **{key: str(value).lower() for key, value in flags.items()},
    }
    spec = ModelSpec(
        name=name,
        version=manifest.version,
        version_name=manifest.version_name,
        platform="",
        backend=BACKEND,
        max_batch_rows=rows,
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        instance_groups=groups,
        batching=_batching(settings),
        execution=ExecutionSpec(
            step_timeout_s=float(_number(settings, "responseTimeout")),
            load_timeout_s=float(_number(settings, "startupTimeout")),
        ),
        file=directory / MANIFEST,
        parameters=parameters,
        config=_config(name, settings, groups, parameters),
    )
    return replace(spec, sources=_sources_of_all(spec, dict(_sources(manifest, settings, groups))))


def _number(settings: Settings, key: str) -> int:
    return settings.number(key, _DEFAULTS[key])


def _batching(settings: Settings) -> BatchingSpec:
    parameters: dict[str, object] = {parameter: _number(settings, key) for parameter, key in _PARAMETERS.items()}
    parameters["use_job_ticket"] = settings.value("useJobTicket", False)
    # The policy refuses what goes over job_queue_size; the limits around it must not do so before.
    room = _number(settings, "jobQueueSize") + _number(settings, "batchSize")
    base = BatchingSpec()
    return BatchingSpec(
        policy="torchserve",
        parameters=parameters,
        max_queue_requests=max(base.max_queue_requests, room),
        max_queue_rows=max(base.max_queue_rows, room),
    )


def _instance_groups(name: str, settings: Settings) -> Iterator[InstanceGroup]:
    """As many instances as workers; TorchServe spreads them over the GPUs that are named, one after the other."""
    # A version without instances could not answer; it can be unloaded instead.
    count = max(1, settings.number("minWorkers", 1))
    is_default = "minWorkers" not in settings.by_key
    kind, gpus = _kind(settings), _gpus(settings)
    if not gpus:
        yield InstanceGroup(name=name, kind=kind, count=count, is_default_count=is_default)
        return
    everywhere, rest = divmod(max(count, len(gpus)) if is_default else count, len(gpus))
    if everywhere:
        yield InstanceGroup(name=name, kind=kind, count=everywhere, gpus=gpus)
    if rest:
        yield InstanceGroup(name=f"{name}_rest" if everywhere else name, kind=kind, count=1, gpus=gpus[:rest])


def _kind(settings: Settings) -> DeviceKind:
    if "deviceIds" in settings.by_key:
        return DeviceKind.GPU
    word = str(settings.value("deviceType", "")).lower()
    return {"cpu": DeviceKind.CPU, "gpu": DeviceKind.GPU}.get(word, DeviceKind.AUTO)


def _gpus(settings: Settings) -> tuple[int, ...]:
    value = settings.value("deviceIds", ())
    return tuple(value) if isinstance(value, list) else ()


def _config(
    name: str, settings: Settings, groups: tuple[InstanceGroup, ...], parameters: Mapping[str, str]
) -> Mapping[str, object]:
    """What ``/config`` shows: the same in the words of Triton's schema, as far as it has words for it."""
    rows = _number(settings, "batchSize")
    config = {
        "name": name,
        "backend": BACKEND,
        "version_policy": {"all": {}},
        "max_batch_size": rows,
        "input": [_tensor(INPUT)],
        "output": [_tensor(OUTPUT)],
        "instance_group": [_group(group) for group in groups],
        "dynamic_batching": {
            "preferred_batch_size": [rows],
            "max_queue_delay_microseconds": _number(settings, "maxBatchDelay") * _MICROSECONDS,
        },
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    return to_json(parse_json(json.dumps(config), name).message)


def _tensor(tensor: TensorSpec) -> Mapping[str, object]:
    return {"name": tensor.name, "data_type": tensor.data_type.config_name, "dims": list(tensor.dims)}


def _group(group: InstanceGroup) -> Mapping[str, object]:
    kind = DeviceKind.CPU if group.kind is DeviceKind.AUTO else group.kind  # as for other models without a kind
    return {"name": group.name, "kind": kind.value, "count": group.count, "gpus": list(group.gpus)}


def _sources_of_all(spec: ModelSpec, known: Mapping[str, str]) -> Mapping[str, str]:
    """The source of each value that is shown, as other models have them: what is not known is a default."""
    paths = [path for path, _ in leaves(spec.config)]
    paths += [f"shoal.{path}" for path, _ in leaves(effective_tables(spec))]
    return {path: next((known[field] for field in known if _is_in(field, path)), DEFAULT) for path in paths}


def _is_in(field: str, path: str) -> bool:
    return path == field or path.startswith((f"{field}.", f"{field}["))


def _sources(manifest: Manifest, settings: Settings, groups: tuple[InstanceGroup, ...]) -> Iterator[tuple[str, str]]:
    yield "name", manifest.place_of("modelName")
    yield "parameters.handler", manifest.place_of("handler")
    for parameter, entry in _FILES.items():
        if entry in manifest.files:
            yield f"parameters.{parameter}", manifest.place_of(entry)
    yield "max_batch_size", settings.source("batchSize")
    yield "dynamic_batching.preferred_batch_size", settings.source("batchSize")
    yield "dynamic_batching.max_queue_delay_microseconds", settings.source("maxBatchDelay")
    for index in range(len(groups)):
        yield f"instance_group[{index}].count", settings.source("minWorkers")
        is_given = "deviceIds" in settings.by_key
        yield f"instance_group[{index}].kind", settings.source("deviceIds" if is_given else "deviceType")
        yield f"instance_group[{index}].gpus", settings.source("deviceIds")
    for parameter, key in (*_PARAMETERS.items(), ("use_job_ticket", "useJobTicket")):
        yield f"shoal.batching.parameters.{parameter}", settings.source(key)
    yield "shoal.execution.step_timeout_s", settings.source("responseTimeout")
    yield "shoal.execution.load_timeout_s", settings.source("startupTimeout")
