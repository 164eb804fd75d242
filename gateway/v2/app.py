"""The v2 protocol (Triton, KServe, Open Inference Protocol) over HTTP, as a bare ASGI application.

The path, not the framework, is hot here: one dictionary or regular expression look-up, one join of the body, one parse.
The client's leaving is watched for only while a call takes long.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from batching.core.errors import QueueFullError
from batching.submissions import Call
from gateway import compression
from gateway.asgi import (
    Begin,
    Exchange,
    Headers,
    Offload,
    Receive,
    Reply,
    Scope,
    Send,
    error_reply,
    receive_body,
    send_reply,
    unless_disconnected,
)
from gateway.control_access import GuardedControl
from gateway.engine import Engine
from gateway.errors import V2_ERRORS, TokenError, UnsupportedEncodingError, explain
from gateway.v2.body import Body, assemble, is_slow
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.generate_verbs import GenerateVerbs
from gateway.v2.paths import NOT_FOUND, WRONG_METHOD, ModelPath, category_of, parse_path, path_of
from gateway.v2.questions import Questions
from gateway.v2.raw import decode_raw
from gateway.v2.repository import PREFIX, RepositoryVerbs
from gateway.v2.request import Decoded, decode_json, with_request_id
from gateway.v2.response import is_slow_to_render, render
from gateway.v2.settings_verbs import SettingsVerbs
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.shared_memory_verbs import PREFIXES as SHARED_MEMORY_PREFIXES
from gateway.v2.shared_memory_verbs import SharedMemoryVerbs
from gateway.v2.surface_settings import SurfaceSettings
from gateway.versions import parse_version
from models.errors import InvalidRequestError, ModelUnavailableError
from models.inference import InferResponse
from models.spec import ModelSpec

_MAX_CACHED_PATH = 256  # characters
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
        server_version: What ``GET /v2`` tells.
        control: Loads and unloads models; None: they stay as they are.
        memory: The shared memory of clients; None: one that they cannot register anything in.
        settings: What else can be set; None: nothing is.
    """

    def __init__(
        self,
        engine: Engine,
        limits: V2Limits,
        *,
        offload: Offload,
        server_version: str,
        control: GuardedControl | None = None,
        memory: SharedMemory | None = None,
        settings: SurfaceSettings | None = None,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._offload = offload
        self._repository = RepositoryVerbs(
            engine, control, offload=offload, max_body_bytes=limits.max_body_bytes, inline_bytes=limits.inline_bytes
        )
        self._memory = memory or SharedMemory(is_enabled=False)
        self._shared_memory = SharedMemoryVerbs(self._memory, offload=offload)
        settings = settings or SurfaceSettings()
        self._questions = Questions(engine, settings.server_name, server_version)
        self._settings = SettingsVerbs(engine, settings.trace, settings.logs)
        self._generate = GenerateVerbs(
            engine,
            offload=offload,
            max_body_bytes=limits.max_body_bytes,
            inline_bytes=limits.inline_bytes,
            inline_elements=limits.inline_elements,
        )
        self._restricted = settings.restricted or None
        self._forwarding = settings.forwarding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        reply: Reply | None
        try:
            path = path_of(scope)
            if self._restricted is not None:
                self._restricted.check(category_of(path), scope["headers"])
            target = parse_path(path) if len(path) <= _MAX_CACHED_PATH else parse_path.__wrapped__(path)
            if target is None or target.action != "infer" or target.is_labelled:
                reply = await self._answer(path, target, scope, receive)
            else:
                reply = await self._infer(target, scope, receive)
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            reply = _refusal(error)
        if reply is not None:
            await send_reply(send, reply)

    def plan(self, scope: Scope) -> Begin | None:
        """How a request with this head is answered without a task; None for all but plain inference.

        Plain is what is small, sent and wanted as it is, and looked at by nobody before the engine.
        """
        path, headers = path_of(scope), dict(scope["headers"])
        if self._restricted is not None or self._forwarding is not None or len(path) > _MAX_CACHED_PATH:
            return None
        target = parse_path(path)
        if scope["method"] != "POST" or target is None or target.action != "infer" or target.is_labelled:
            return None
        if b"content-encoding" in headers or compression.response_coding(headers.get(b"accept-encoding", b"")) != (
            "identity"
        ):
            return None
        if int(headers.get(b"content-length", b"0")) > min(self._limits.inline_bytes, self._limits.max_body_bytes):
            return None
        return partial(self._begin, target, headers.get(b"inference-header-content-length"))

    def _begin(self, target: ModelPath, header_length: bytes | None, exchange: Exchange) -> bool:
        """The way of `_infer` for a plain request: the engine calls when it has the answer."""
        try:
            version = None if target.version is None else parse_version(self._engine, target.model, target.version)
            spec = self._engine.model(target.model, version)
            decoded = self._decode(spec, version, assemble(exchange.pieces, header_length))
            if not isinstance(decoded, Decoded):
                return False
            exchange.pieces = []
            call = self._submit(exchange, spec, decoded)
        except Exception as error:  # noqa: BLE001 - as in `__call__`
            exchange.finish(_refusal(error))
            return True
        if call is None:
            exchange.hand_over(partial(self._infer_decoded, spec, decoded))
        else:
            exchange.withdraw = call.cancel
        return True

    def _submit(self, exchange: Exchange, spec: ModelSpec, decoded: Decoded) -> Call | None:
        try:
            return self._engine.submit(decoded.request, partial(self._answered, exchange, spec, decoded))
        except (InvalidRequestError, QueueFullError) as error:
            raise with_request_id(error, decoded.request.request_id) from None

    def _answered(
        self, exchange: Exchange, spec: ModelSpec, decoded: Decoded, outcome: InferResponse | BaseException
    ) -> None:
        """The end of a plain request."""
        if isinstance(outcome, CancelledError):
            return  # its client has left
        try:
            reply = self._reply(spec, decoded, outcome)
        except Exception as error:  # noqa: BLE001 - as in `__call__`
            reply = _refusal(error)
        if isinstance(reply, Reply):
            exchange.finish(reply)
        else:
            exchange.hand_over(partial(self._finish_in_thread, reply))

    def _reply(
        self, spec: ModelSpec, decoded: Decoded, outcome: InferResponse | BaseException
    ) -> Reply | Callable[[], Reply]:
        # Nothing is raised here: a raised error would keep the frames, and they the request, until the collector runs.
        if isinstance(outcome, InvalidRequestError | QueueFullError):
            return _refusal(with_request_id(outcome, decoded.request.request_id))
        return _refusal(outcome) if isinstance(outcome, BaseException) else self._render(spec, decoded, outcome)

    async def _infer_decoded(
        self, spec: ModelSpec, decoded: Decoded, _scope: Scope, receive: Receive, send: Send
    ) -> None:
        """What is left to do of a plain request that needs a task after all."""
        reply: Reply | None
        try:
            reply = await self._run(spec, decoded, receive)
        except Exception as error:  # noqa: BLE001 - as in `__call__`
            reply = _refusal(error)
        if reply is not None:
            await send_reply(send, reply)

    async def _finish_in_thread(
        self, render: Callable[[], Reply], _scope: Scope, _receive: Receive, send: Send
    ) -> None:
        try:
            reply = await self._offload(render)
        except Exception as error:  # noqa: BLE001 - as in `__call__`
            reply = _refusal(error)
        await send_reply(send, reply)

    async def _answer(self, path: str, target: ModelPath | None, scope: Scope, receive: Receive) -> Reply | None:
        """The answer to everything but inference."""
        if self._questions.has(path):
            return self._questions.answer(path) if scope["method"] == "GET" else WRONG_METHOD
        if target is not None:
            return await self._answer_of_model(target, scope, receive)
        if path.startswith(PREFIX):
            return await self._repository.answer(path, scope, receive)
        if path.startswith(SHARED_MEMORY_PREFIXES):
            return await self._shared_memory.answer(scope, receive)
        return await self._settings.answer(path, scope, receive)

    async def _answer_of_model(self, target: ModelPath, scope: Scope, receive: Receive) -> Reply | None:
        if target.action == "trace/setting":
            return await self._settings.trace(target.model, scope, receive)
        if target.is_labelled and not self._has_label(target):
            return NOT_FOUND
        if target.action == "infer":
            return await self._infer(target, scope, receive)
        streams = target.action == "generate_stream"
        generates = streams or target.action == "generate"
        if scope["method"] != ("POST" if generates else "GET"):
            return WRONG_METHOD
        version = None if target.version is None else parse_version(self._engine, target.model, target.version)
        if not generates:
            return self._questions.answer_of_model(target.action, target.model, version)
        spec = self._engine.model(target.model, version)
        return await self._generate.answer(spec, version, scope, receive, streams=streams)

    def _has_label(self, target: ModelPath) -> bool:
        """Whether the model knows the word; to Triton such a path is none at all."""
        try:
            parse_version(self._engine, target.model, target.version or "")
        except ModelUnavailableError:
            return False
        return True

    async def _infer(self, target: ModelPath, scope: Scope, receive: Receive) -> Reply | None:
        if scope["method"] != "POST":
            return WRONG_METHOD
        version = None if target.version is None else parse_version(self._engine, target.model, target.version)
        spec = self._engine.model(target.model, version)
        headers: Headers = dict(scope["headers"])
        chunks = await receive_body(receive, headers, self._limits.max_body_bytes, self._offload)
        if chunks is None:
            return None
        decoded = self._decode(spec, version, assemble(chunks, headers.get(b"inference-header-content-length")))
        if not isinstance(decoded, Decoded):
            decoded = await self._offload(decoded)
        if self._forwarding is not None:
            decoded = _with_headers(decoded, self._forwarding, scope)
        reply = await self._run(spec, decoded, receive)
        accepted = headers.get(b"accept-encoding")
        if reply is None or accepted is None:
            return reply
        return await self._compress(reply, compression.response_coding(accepted))

    async def _run(self, spec: ModelSpec, decoded: Decoded, receive: Receive) -> Reply | None:
        try:
            response = await unless_disconnected(self._engine.infer(decoded.request), receive)
        except (InvalidRequestError, QueueFullError) as error:
            raise with_request_id(error, decoded.request.request_id) from None
        if response is None:
            return None
        reply = self._render(spec, decoded, response)
        return reply if isinstance(reply, Reply) else await self._offload(reply)

    def _decode(self, spec: ModelSpec, version: int | None, body: Body) -> Decoded | Callable[[], Decoded]:
        """The request, or what reads it in a thread if that takes long."""
        if body.is_raw:
            return decode_raw(version, body, spec)
        if is_slow(body, self._limits.inline_bytes, has_large_regions=self._memory.is_slow):
            return partial(decode_json, spec, version, body, self._limits.max_body_bytes, self._memory)
        return decode_json(spec, version, body, self._limits.max_body_bytes, self._memory)

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


def _with_headers(decoded: Decoded, forwarding: HeaderForwarding, scope: Scope) -> Decoded:
    """The request with the headers that its model shall see; they win over parameters of the same name."""
    forwarded = forwarding.parameters(scope["headers"])
    if not forwarded:
        return decoded
    request = decoded.request
    return decoded._replace(request=request._replace(parameters={**request.parameters, **forwarded}))


def _refusal(error: BaseException) -> Reply:
    row, text = explain(V2_ERRORS, error)
    return error_reply(row.status, text, _HEADERS.get(type(error), ()))
