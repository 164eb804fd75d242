"""What is asked with GET: health, metadata, configuration and statistics."""

from gateway.asgi import Reply, error_reply, json_reply
from gateway.engine import Engine
from gateway.v2 import metadata

_EXITING = error_reply(503, "Server exiting")


class Questions:
    """Answers about the server and its models.

    Args:
        engine: What is asked about.
        server_name: What ``GET /v2`` calls the server.
        server_version: Likewise.
    """

    def __init__(self, engine: Engine, server_name: str, server_version: str) -> None:
        self._engine = engine
        server = json_reply(metadata.server_metadata(server_name, server_version))
        self._fixed = {
            "/v2": lambda: server,
            "/v2/health/live": lambda: self._health(engine.is_live()),
            "/v2/health/ready": lambda: self._health(engine.is_ready()),
            "/v2/models/stats": lambda: json_reply(metadata.statistics(engine.statistics())),
        }
        self._of_model = {
            None: self._metadata,
            "ready": self._ready,
            "config": self._config,
            "stats": self._statistics,
        }

    def has(self, path: str) -> bool:
        """Whether the path is one of those that name no model."""
        return path in self._fixed

    def answer(self, path: str) -> Reply:
        """The answer to one of the paths that `has` says yes to."""
        return self._fixed[path]()

    def answer_of_model(self, action: str | None, model: str, version: int | None) -> Reply:
        """The answer about a model. Raises ModelUnavailableError."""
        return self._of_model[action](model, version)

    def _health(self, is_well: bool) -> Reply:
        if self._engine.is_stopping():
            return _EXITING
        # Triton answers 400, not 503, and clients look at nothing but the status.
        return Reply(200 if is_well else 400)

    def _metadata(self, model: str, version: int | None) -> Reply:
        spec = self._engine.model(model, version)
        versions = self._engine.ready_versions(model) if version is None else (version,)
        return json_reply(metadata.model_metadata(spec, versions))

    def _ready(self, model: str, version: int | None) -> Reply:
        if self._engine.is_model_ready(model, version):
            return Reply(200)
        return error_reply(400, "Model version not ready")

    def _config(self, model: str, version: int | None) -> Reply:
        return json_reply(self._engine.model(model, version).config)

    def _statistics(self, model: str, version: int | None) -> Reply:
        entries = [entry for entry in self._engine.statistics() if entry.model == model]
        if not entries:
            return error_reply(400, f"requested model '{model}' is not available")
        if version is not None:
            entries = [entry for entry in entries if entry.version == version]
        if not entries:
            return error_reply(400, f"requested model version is not available for model '{model}'")
        return json_reply(metadata.statistics(entries))
