"""The v2 protocol (Triton, KServe, Open Inference Protocol) over HTTP, as a bare ASGI application.

The path, not the framework, is hot here: one dictionary or regular expression look-up, one join of the body, one parse.
The client's leaving is watched for only while a call takes long.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

from gateway import compression
from gateway.asgi import (
    Headers,
    Offload,
    Receive,
    Reply,
    Scope,
    Send,
    error_reply,
    json_reply,
    receive_body,
    send_reply,
    unless_disconnected,
)
from gateway.control_access import GuardedControl
from gateway.engine import Engine
from gateway.errors import V2_ERRORS, TokenError, UnsupportedEncodingError, explain
from gateway.v2 import metadata
from gateway.v2.body import Body, assemble, is_slow
from gateway.v2.repository import PREFIX, RepositoryVerbs
from gateway.v2.request import Decoded, decode_json, decode_raw, with_request_id
from gateway.v2.response import is_slow_to_render, render
from gateway.versions import parse_version
from models.errors import InvalidRequestError, ModelUnavailableError
from models.inference import InferResponse
from models.spec import ModelSpec

_MODEL_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(infer|ready|config|stats))?")
_MAX_CACHED_PATH = 256  # characters
_FixedAnswers = Mapping[str, Callable[[], Reply]]
_ModelAnswers = Mapping[str | None, Callable[[str, int | None], Reply]]
_NOT_FOUND = error_reply(404, "Not Found")
_WRONG_METHOD = error_reply(405, "Method Not Allowed")
_HEADERS: Mapping[type[Exception], tuple[tuple[bytes, bytes], ...]] = {
    UnsupportedEncodingError: ((b"accept-encoding", b"gzip, deflate"),),
    TokenError: ((b"www-authenticate", b"Bearer"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Limits:
    """Limits of the surface.

    Attributes:
        max_body_bytes: Largest request body, as sent and unpacked, and largest tensor sent as JSON.
        inline_bytes: Largest JSON part that is parsed, and largest reply that is compressed, on the event loop.
        inline_elements: Most elements that are rendered as JSON, strings or classes on the event loop.
    """

    max_body_bytes: int = 64 << 20
    inline_bytes: int = 256 << 10
    inline_elements: int = 16384


class V2Surface:
    """The ASGI application for ``/v2`` and everything below it.

    Args:
        engine: What answers.
        limits: Sizes.
        offload: Runs slow decoding and rendering in a thread.
        server_name: What ``GET /v2`` calls the server.
        server_version: Likewise.
        control: Loads and unloads models; None: they stay as they are.
    """

    def __init__(
        self,
        engine: Engine,
        limits: V2Limits,
        *,
        offload: Offload,
        server_name: str = "shoal",
        server_version: str,
        control: GuardedControl | None = None,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._offload = offload
        self._repository = RepositoryVerbs(
            engine, control, offload=offload, max_body_bytes=limits.max_body_bytes, inline_bytes=limits.inline_bytes
        )
        server = json_reply(metadata.server_metadata(server_name, server_version))
        self._fixed: _FixedAnswers = {
            "/v2": lambda: server,
            "/v2/health/live": lambda: _health(engine.is_live()),
            "/v2/health/ready": lambda: _health(engine.is_ready()),
            "/v2/models/stats": lambda: json_reply(metadata.statistics(engine.statistics())),
        }
        self._of_model: _ModelAnswers = {
            None: self._metadata,
            "ready": self._ready,
            "config": self._config,
            "stats": self._statistics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        reply: Reply | None
        try:
            if scope["path"].startswith(PREFIX):
                reply = await self._repository.answer(scope, receive)
            else:
                found = self._route(scope["path"], scope["method"])
                reply = found if isinstance(found, Reply) else await self._infer(*found, scope, receive)
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            reply = _refusal(error)
        if reply is not None:
            await send_reply(send, reply)

    def _route(self, path: str, method: str) -> Reply | tuple[ModelSpec, int | None]:
        """The answer, or which version shall infer."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed() if method == "GET" else _WRONG_METHOD
        target = _parse_path(path) if len(path) <= _MAX_CACHED_PATH else _parse_path.__wrapped__(path)
        if target is None:
            return _NOT_FOUND
        model, version_text, action = target
        if method != ("POST" if action == "infer" else "GET"):
            return _WRONG_METHOD
        version = None if version_text is None else parse_version(self._engine, model, version_text)
        if action == "infer":
            return self._engine.model(model, version), version
        return self._of_model[action](model, version)

    async def _infer(self, spec: ModelSpec, version: int | None, scope: Scope, receive: Receive) -> Reply | None:
        headers: Headers = dict(scope["headers"])
        chunks = await receive_body(receive, headers, self._limits.max_body_bytes, self._offload)
        if chunks is None:
            return None
        decoded = self._decode(spec, version, assemble(chunks, headers.get(b"inference-header-content-length")))
        if not isinstance(decoded, Decoded):
            decoded = await self._offload(decoded)
        try:
            response = await unless_disconnected(self._engine.infer(decoded.request), receive)
        except InvalidRequestError as error:
            raise with_request_id(error, decoded.request.request_id) from None
        if response is None:
            return None
        reply = self._render(spec, decoded, response)
        if not isinstance(reply, Reply):
            reply = await self._offload(reply)
        accepted = headers.get(b"accept-encoding")
        return reply if accepted is None else await self._compress(reply, compression.response_coding(accepted))

    def _decode(self, spec: ModelSpec, version: int | None, body: Body) -> Decoded | Callable[[], Decoded]:
        """The request, or what reads it in a thread if that takes long."""
        if body.is_raw:
            return decode_raw(version, body, spec)
        if is_slow(body, self._limits.inline_bytes):
            return partial(decode_json, spec.name, version, body, self._limits.max_body_bytes)
        return decode_json(spec.name, version, body, self._limits.max_body_bytes)

    def _render(self, spec: ModelSpec, decoded: Decoded, response: InferResponse) -> Reply | Callable[[], Reply]:
        """The reply, or what renders it in a thread if that takes long."""
        if spec.version != response.version:  # the default version has changed since the spec was fetched
            with suppress(ModelUnavailableError):  # and the one that answered may be gone by now
                spec = self._engine.model(response.model, response.version)
        if is_slow_to_render(decoded, response, self._limits.inline_elements):
            return partial(render, decoded, response, spec)
        return render(decoded, response, spec)

    async def _compress(self, reply: Reply, coding: str) -> Reply:
        if coding == "identity":
            return reply
        pack = partial(compression.deflate, reply.body, coding)
        body = pack() if len(reply.body) <= self._limits.inline_bytes else await self._offload(pack)
        return Reply(reply.status, body, (*reply.headers, (b"content-encoding", coding.encode())))

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


@lru_cache(1024)  # a server is asked for the same few paths again and again
def _parse_path(path: str) -> tuple[str, str | None, str | None] | None:
    """Model, version and action of a path below ``/v2/models``, or None."""
    match = _MODEL_PATH.fullmatch(path)
    return None if match is None else (match[1], match[2], match[3])


def _health(is_well: bool) -> Reply:
    # Triton answers 400, not 503, and clients look at nothing but the status.
    return Reply(200 if is_well else 400)


def _refusal(error: Exception) -> Reply:
    row, text = explain(V2_ERRORS, error)
    return error_reply(row.status, text, _HEADERS.get(type(error), ()))
