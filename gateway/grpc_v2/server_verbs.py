"""Health, metadata, configuration and statistics: the bodies of HTTP as messages."""

from collections.abc import Sequence

import orjson
from google.protobuf import json_format  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2

from gateway.engine import Engine, VersionStatistics
from gateway.grpc_v2.calls import Context
from gateway.grpc_v2.errors import ServerExitingError
from gateway.grpc_v2.parameters import Message
from gateway.grpc_v2.versions import parse_version
from gateway.v2 import metadata
from models.errors import MalformedRequestError


class ServerVerbs:
    """What is asked about the server and its models.

    Args:
        engine: What answers.
        server: The server's name and version.
    """

    def __init__(self, engine: Engine, server: metadata.Json) -> None:
        self._engine = engine
        self._server = _message(server, service_pb2.ServerMetadataResponse())

    async def live(self, _request: Message, _context: Context) -> Message:
        """ServerLive."""
        self._check_running()
        return service_pb2.ServerLiveResponse(live=self._engine.is_live())

    async def ready(self, _request: Message, _context: Context) -> Message:
        """ServerReady."""
        self._check_running()
        return service_pb2.ServerReadyResponse(ready=self._engine.is_ready())

    def _check_running(self) -> None:
        if self._engine.is_stopping():
            raise ServerExitingError

    async def model_ready(self, request: Message, _context: Context) -> Message:
        """ModelReady."""
        version = parse_version(self._engine, request.name, request.version)
        return service_pb2.ModelReadyResponse(ready=self._engine.is_model_ready(request.name, version))

    async def server_metadata(self, _request: Message, _context: Context) -> Message:
        """ServerMetadata."""
        return self._server

    async def model_metadata(self, request: Message, _context: Context) -> Message:
        """ModelMetadata."""
        version = parse_version(self._engine, request.name, request.version)
        spec = self._engine.model(request.name, version)
        versions = self._engine.ready_versions(request.name) if version is None else (version,)
        return _message(metadata.model_metadata(spec, versions), service_pb2.ModelMetadataResponse())

    async def model_config(self, request: Message, _context: Context) -> Message:
        """ModelConfig."""
        version = parse_version(self._engine, request.name, request.version)
        return _message({"config": self._engine.model(request.name, version).config}, service_pb2.ModelConfigResponse())

    async def statistics(self, request: Message, _context: Context) -> Message:
        """ModelStatistics."""
        version = parse_version(self._engine, request.name, request.version)
        entries = self._engine.statistics()
        if request.name:
            entries = _of_model(entries, request.name, version)
        return _message(metadata.statistics(entries), service_pb2.ModelStatisticsResponse())


def _of_model(entries: Sequence[VersionStatistics], model: str, version: int | None) -> Sequence[VersionStatistics]:
    found = [entry for entry in entries if entry.model == model]
    if not found:
        raise MalformedRequestError(f"requested model '{model}' is not available")
    if version is None:
        return found
    found = [entry for entry in found if entry.version == version]
    if not found:
        raise MalformedRequestError(f"requested model version is not available for model '{model}'")
    return found


def _message(value: metadata.Json, message: Message) -> Message:
    """A message of its JSON form; the names are those of the fields."""
    return json_format.Parse(orjson.dumps(value, default=dict), message)
