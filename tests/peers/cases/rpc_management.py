"""Everything over gRPC that is no inference."""

from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.peers.cases.rpc_infer import one
from tests.peers.grpc_cases import Call, Cases

MODELS = ("versions", "nothing", "spare", "broken", "")
VERSIONS = ("", "1", "3", "x", "-1", "1.0", "1x", "99999999999999999999")
QUESTIONS = {
    "ModelReady": pb.ModelReadyRequest, "ModelMetadata": pb.ModelMetadataRequest, "ModelConfig": pb.ModelConfigRequest,
    "ModelStatistics": pb.ModelStatisticsRequest,
}  # fmt: skip
DESCRIBED = ("echo_string", "pair", "optional", "grid", "single", "labelled", "ranks", "slow")
TRACE, LOG = pb.TraceSettingRequest, pb.LogSettingsRequest


def load(model: str = "lent", **parameters: Any) -> Call:
    """A load with parameters."""
    values = {name: pb.ModelRepositoryParameter(**value) for name, value in parameters.items()}
    return Call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=model, parameters=values))


def unload(model: str = "lent", **fields: Any) -> Call:
    """An unload."""
    return Call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=model, **fields))


def trace(model: str = "", **settings: list[str]) -> Call:
    """A change of trace settings."""
    values = {name: TRACE.SettingValue(value=value) for name, value in settings.items()}
    return Call("TraceSetting", TRACE(model_name=model, settings=values))


def log(**settings: Any) -> Call:
    """A change of log settings."""
    return Call("LogSettings", LOG(settings={name: LOG.SettingValue(**value) for name, value in settings.items()}))


def memory(method: str, **fields: Any) -> Call:
    """A call about shared memory."""
    return Call(method, getattr(pb, f"{method}Request")(**fields))


CASES: Cases = {
    "ServerLive": Call("ServerLive", pb.ServerLiveRequest()),
    "ServerReady": Call("ServerReady", pb.ServerReadyRequest()),
    "ServerMetadata": Call("ServerMetadata", pb.ServerMetadataRequest()),
    **{
        f"{method} of {model!r} {version!r}": Call(method, kind(name=model, version=version))
        for method, kind in QUESTIONS.items()
        for model in MODELS
        for version in (VERSIONS if model == "versions" else ("", "1"))
        if (method, model) not in {("ModelStatistics", "versions"), ("ModelStatistics", "")}
    },
    **{
        f"ModelStatistics of 'versions' {version!r}": Call(
            "ModelStatistics", pb.ModelStatisticsRequest(name="versions", version=version)
        )
        for version in ("3", "x", "-1")
    },
    **{f"ModelMetadata of {name}": Call("ModelMetadata", pb.ModelMetadataRequest(name=name)) for name in DESCRIBED},
    **{f"ModelConfig of {name}": Call("ModelConfig", pb.ModelConfigRequest(name=name)) for name in DESCRIBED},
    "index": Call("RepositoryIndex", pb.RepositoryIndexRequest()),
    "index of what is ready": Call("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)),
    "index of a repository": Call("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="r")),
    "load from a repository": Call(
        "RepositoryModelLoad", pb.RepositoryModelLoadRequest(repository_name="r", model_name="lent")
    ),
    "load with an unknown parameter": load(what={"string_param": "y"}),
    "load with a configuration that is a boolean": load(config={"bool_param": True}),
    "load with a file that is a text": load(**{"file:1/x": {"string_param": "y"}}),
    "unload of an unknown model": unload("nothing"),
    "unload of no model": unload(""),
    "unload from a repository": unload(repository_name="r"),
    "unload with dependents as a text": unload(
        "nothing", parameters={"unload_dependents": pb.ModelRepositoryParameter(string_param="x")}
    ),
    "unload with an unknown parameter": unload(
        "nothing", parameters={"what": pb.ModelRepositoryParameter(string_param="x")}
    ),
    "statistics": (
        Call("ModelStatistics", pb.ModelStatisticsRequest(name="counted_grpc")),
        one(model="counted_grpc"),
        one((2, 1), model="counted_grpc"),
        one(datatype="INT32", model="counted_grpc"),
        Call("ModelStatistics", pb.ModelStatisticsRequest(name="counted_grpc", version="1")),
    ),
    "trace settings": trace(),
    "trace settings of an unknown model": trace("nothing"),
    "a trace level": trace(trace_level=["MIN"]),
    "a trace level beside OFF": trace(trace_level=["OFF", "TIMESTAMPS"]),
    "a trace rate that is no number": trace(trace_rate=["x"]),
    "two trace rates": trace(trace_rate=["1", "2"]),
    "a trace file": trace(trace_file=["x"]),
    "an unknown trace setting": trace(what=["x"]),
    "trace settings that change": (
        trace(trace_rate=["11"]), trace("single", trace_rate=["5"]), trace(), trace("single", trace_rate=[]),
        trace(trace_rate=[], trace_level=[]),
    ),
    "log settings": log(),
    "log settings that change": (
        log(log_warning={"bool_param": False}), log(log_verbose_level={"uint32_param": 1}), log(),
        log(log_warning={"bool_param": True}, log_verbose_level={"uint32_param": 0}),
    ),
    "a log setting of another type": log(log_info={"uint32_param": 1}),
    "a log level that is a boolean": log(log_verbose_level={"bool_param": True}),
    "a log format": (log(log_format={"string_param": "ISO8601"}), log(log_format={"string_param": "default"})),
    "an unknown log format": log(log_format={"string_param": "x"}),
    "a log file": log(log_file={"string_param": "x"}),
    "an unknown log setting": log(what={"string_param": "x"}),
    "a log setting without a value": log(log_info={}),
    "the status of regions": memory("SystemSharedMemoryStatus"),
    "the status of an unknown region": memory("SystemSharedMemoryStatus", name="r"),
    "a region of nothing": memory("SystemSharedMemoryRegister", name="r", key="/nothing_at_all", byte_size=8),
    "a region without anything": memory("SystemSharedMemoryRegister"),
    "an unknown region leaves": memory("SystemSharedMemoryUnregister", name="r"),
    "all regions leave": memory("SystemSharedMemoryUnregister"),
    "the status of GPU regions": memory("CudaSharedMemoryStatus"),
    "the status of an unknown GPU region": memory("CudaSharedMemoryStatus", name="r"),
    "a GPU region": memory("CudaSharedMemoryRegister", name="r", raw_handle=b"a" * 64, byte_size=8),
    "an unknown GPU region leaves": memory("CudaSharedMemoryUnregister", name="r"),
    "all GPU regions leave": memory("CudaSharedMemoryUnregister"),
}  # fmt: skip
