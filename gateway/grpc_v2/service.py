"""All methods of Triton's service, each with the category by which it can be restricted."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
from tritonclient.grpc import service_pb2

from gateway.asgi import Offload
from gateway.control_access import GuardedControl
from gateway.engine import Engine
from gateway.grpc_v2.calls import HEADER_PREFIX, Answer, Header, answering, typed
from gateway.grpc_v2.health import Health
from gateway.grpc_v2.inference import Inference
from gateway.grpc_v2.repository_verbs import RepositoryVerbs
from gateway.grpc_v2.server_verbs import ServerVerbs
from gateway.grpc_v2.settings_verbs import SettingsVerbs
from gateway.grpc_v2.shared_memory_verbs import SharedMemoryVerbs
from gateway.grpc_v2.stream import Streams
from gateway.v2.metadata import server_metadata
from gateway.v2.restricted import RestrictedFeatures
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.surface_settings import SurfaceSettings

Handler = Any
"""`grpc.RpcMethodHandler`, which has no types."""


class _Method(NamedTuple):
    category: str
    answer: Answer[Any]


class V2Service:
    """Triton's gRPC service over an engine; the health service too.

    Args:
        engine: What answers.
        offload: Runs slow decoding and rendering in a thread.
        server_version: What ServerMetadata says.
        control: Loads and unloads models; None: they stay as they are.
        memory: The shared memory of clients; None: one that they cannot register anything in.
        settings: What can be set; by default nothing is restricted or forwarded.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        offload: Offload,
        server_version: str,
        control: GuardedControl | None = None,
        memory: SharedMemory | None = None,
        settings: SurfaceSettings | None = None,
    ) -> None:
        settings = settings or SurfaceSettings()
        memory = memory or SharedMemory(is_enabled=False)
        inference = Inference(engine, memory, offload, settings.forwarding)
        self._restricted = settings.restricted
        self._streams = Streams(inference)
        self._health = Health(engine)
        self._methods = {
            "ModelInfer": _Method("inference", inference.infer),
            **_server_methods(ServerVerbs(engine, server_metadata(settings.server_name, server_version))),
            **_repository_methods(RepositoryVerbs(engine, control)),
            **_memory_methods(SharedMemoryVerbs(memory)),
            **_settings_methods(SettingsVerbs(engine, settings.trace, settings.logs)),
        }

    def handlers(self) -> tuple[Handler, Handler]:
        """What a `grpc.aio.Server` is given. Messages come and go as bytes."""
        methods = {name: self._unary(method) for name, method in self._methods.items()}
        stream = answering(self._streams.infer, _header(self._restricted, "inference"))
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(_of_stream(stream))
        health = {"Check": self._unary(_Method("health", self._health.check))}
        return (
            grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
        )

    def stop(self) -> None:
        """End the streams once what has come on them is answered."""
        self._streams.stop()

    def _unary(self, method: _Method) -> Handler:
        header = _header(self._restricted, method.category)
        return grpc.unary_unary_rpc_method_handler(answering(method.answer, header))


def _header(restricted: RestrictedFeatures, category: str) -> Header | None:
    header = restricted.header_for(category)
    return None if header is None else (HEADER_PREFIX + header[0], header[1])


def _of_stream(answer: Answer[None]) -> Answer[None]:
    async def answer_stream(requests: object, context: object) -> None:
        await answer(requests, context)

    return answer_stream


def _server_methods(verbs: ServerVerbs) -> Mapping[str, _Method]:
    pb = service_pb2
    return {
        "ServerLive": _Method("health", typed(pb.ServerLiveRequest, verbs.live)),
        "ServerReady": _Method("health", typed(pb.ServerReadyRequest, verbs.ready)),
        "ModelReady": _Method("health", typed(pb.ModelReadyRequest, verbs.model_ready)),
        "ServerMetadata": _Method("metadata", typed(pb.ServerMetadataRequest, verbs.server_metadata)),
        "ModelMetadata": _Method("metadata", typed(pb.ModelMetadataRequest, verbs.model_metadata)),
        "ModelConfig": _Method("model-config", typed(pb.ModelConfigRequest, verbs.model_config)),
        "ModelStatistics": _Method("statistics", typed(pb.ModelStatisticsRequest, verbs.statistics)),
    }


def _repository_methods(verbs: RepositoryVerbs) -> Mapping[str, _Method]:
    pb, category = service_pb2, "model-repository"
    return {
        "RepositoryIndex": _Method(category, typed(pb.RepositoryIndexRequest, verbs.index)),
        "RepositoryModelLoad": _Method(category, typed(pb.RepositoryModelLoadRequest, verbs.load)),
        "RepositoryModelUnload": _Method(category, typed(pb.RepositoryModelUnloadRequest, verbs.unload)),
    }


def _memory_methods(verbs: SharedMemoryVerbs) -> Mapping[str, _Method]:
    pb = service_pb2
    answers = {
        "SystemSharedMemoryStatus": typed(pb.SystemSharedMemoryStatusRequest, verbs.status),
        "SystemSharedMemoryRegister": typed(pb.SystemSharedMemoryRegisterRequest, verbs.register),
        "SystemSharedMemoryUnregister": typed(pb.SystemSharedMemoryUnregisterRequest, verbs.unregister),
        "CudaSharedMemoryStatus": typed(pb.CudaSharedMemoryStatusRequest, verbs.cuda_status),
        "CudaSharedMemoryRegister": typed(pb.CudaSharedMemoryRegisterRequest, verbs.cuda_register),
        "CudaSharedMemoryUnregister": typed(pb.CudaSharedMemoryUnregisterRequest, verbs.cuda_unregister),
    }
    return {name: _Method("shared-memory", answer) for name, answer in answers.items()}


def _settings_methods(verbs: SettingsVerbs) -> Mapping[str, _Method]:
    return {
        "TraceSetting": _Method("trace", typed(service_pb2.TraceSettingRequest, verbs.trace)),
        "LogSettings": _Method("logging", typed(service_pb2.LogSettingsRequest, verbs.logs)),
    }
