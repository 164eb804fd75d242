"""Inference of the v2 protocol over HTTP: body to request, engine, response to reply.

Plain requests take these steps without a task: the engine calls when it has the answer. All others take them in one.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from contextlib import suppress
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
from gateway.engine import Engine
from gateway.errors import V2_ERRORS, TokenError, UnsupportedEncodingError, explain
from gateway.v2.body import Body, assemble, is_slow
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.limits import V2Limits
from gateway.v2.paths import ModelPath
from gateway.v2.raw import decode_raw
from gateway.v2.request import Decoded, decode_json, with_request_id
from gateway.v2.response import is_slow_to_render, render
from gateway.v2.shared_memory import SharedMemory
from gateway.versions import parse_version
from models.errors import InvalidRequestError, ModelUnavailableError
from models.inference import InferResponse
from models.spec import ModelSpec

_HEADERS: Mapping[type[BaseException], tuple[tuple[bytes, bytes], ...]] = {
    UnsupportedEncodingError: ((b"accept-encoding", b"gzip, deflate"),),
    TokenError: ((b"www-authenticate", b"Bearer"),),
}


class InferVerb:
    """``POST /v2/models/M/infer``.

    Args:
        engine: What answers.
        limits: Sizes.
        offload: Runs slow decoding and rendering in a thread.
        memory: The shared memory of clients.
        forwarding: The headers that models see; None: they see none.
    """

    def __init__(
        self,
        engine: Engine,
        limits: V2Limits,
        *,
        offload: Offload,
        memory: SharedMemory,
        forwarding: HeaderForwarding | None,
    ) -> None:
        self._engine = engine
        self._offload = offload
        self._limits = limits
        self._memory = memory
        self._forwarding = forwarding

    async def answer(self, target: ModelPath, scope: Scope, receive: Receive) -> Reply | None:
        """Answer any request; None when the client left."""
        spec, version = self._find(target)
        headers: Headers = dict(scope["headers"])
        chunks = await receive_body(receive, headers, self._limits.max_body_bytes, self._offload)
        if chunks is None:
            return None
        decoded = self._decode(spec, version, assemble(chunks, headers.get(b"inference-header-content-length")))
        if not isinstance(decoded, Decoded):
            decoded = await self._offload(decoded)
        if self._forwarding is not None:
            decoded = _with_headers(decoded, self._forwarding, scope)
        reply = await self._infer(spec, decoded, receive)
        accepted = headers.get(b"accept-encoding")
        if reply is None or accepted is None:
            return reply
        return await self._compress(reply, compression.response_coding(accepted))

    def plan(self, target: ModelPath, scope: Scope) -> Begin | None:
        """How requests with this head are answered without a task; None for all that are not plain.

        Plain is what is small, sent and wanted as it is, and looked at by nobody before the engine.
        """
        headers: Headers = dict(scope["headers"])
        is_packed = b"content-encoding" in headers
        wanted = compression.response_coding(headers.get(b"accept-encoding", b""))
        body_bytes = int(headers.get(b"content-length", b"0"))
        if (
            is_packed
            or wanted != "identity"
            or body_bytes > min(self._limits.inline_bytes, self._limits.max_body_bytes)
        ):
            return None
        if self._forwarding is not None:
            return None
        return partial(self._begin, target, headers.get(b"inference-header-content-length"))

    def _find(self, target: ModelPath) -> tuple[ModelSpec, int | None]:
        version = None if target.version is None else parse_version(self._engine, target.model, target.version)
        return self._engine.model(target.model, version), version

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

    # In a task

    async def _infer(self, spec: ModelSpec, decoded: Decoded, receive: Receive) -> Reply | None:
        try:
            response = await unless_disconnected(self._engine.infer(decoded.request), receive)
        except (InvalidRequestError, QueueFullError) as error:
            raise with_request_id(error, decoded.request.request_id) from None
        if response is None:
            return None
        reply = self._render(spec, decoded, response)
        return reply if isinstance(reply, Reply) else await self._offload(reply)

    async def _compress(self, reply: Reply, coding: str) -> Reply:
        if coding == "identity":
            return reply
        pack = partial(compression.deflate, reply.body, coding)
        body = pack() if len(reply.body) <= self._limits.inline_bytes else await self._offload(pack)
        return Reply(reply.status, body, (*reply.headers, (b"content-encoding", coding.encode())))

    # Without a task

    def _begin(self, target: ModelPath, header_length: bytes | None, exchange: Exchange) -> bool:
        """See `Begin`. What turns out to need a task gets one."""
        try:
            spec, version = self._find(target)
            decoded = self._decode(spec, version, assemble(exchange.pieces, header_length))
            if not isinstance(decoded, Decoded):
                return False
            exchange.pieces = []
            call = self._submit(exchange, spec, decoded)
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            exchange.finish(refusal(error))
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
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            reply = refusal(error)
        if isinstance(reply, Reply):
            exchange.finish(reply)
        else:
            exchange.hand_over(partial(self._render_in_thread, reply))

    def _reply(
        self, spec: ModelSpec, decoded: Decoded, outcome: InferResponse | BaseException
    ) -> Reply | Callable[[], Reply]:
        # Errors are not raised here: that would tie them to the frames, and these hold the request and the error.
        if isinstance(outcome, InvalidRequestError | QueueFullError):
            return refusal(with_request_id(outcome, decoded.request.request_id))
        return refusal(outcome) if isinstance(outcome, BaseException) else self._render(spec, decoded, outcome)

    async def _infer_decoded(
        self, spec: ModelSpec, decoded: Decoded, _scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            reply = await self._infer(spec, decoded, receive)
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            reply = refusal(error)
        if reply is not None:
            await send_reply(send, reply)

    async def _render_in_thread(
        self, render_reply: Callable[[], Reply], _scope: Scope, _receive: Receive, send: Send
    ) -> None:
        try:
            reply = await self._offload(render_reply)
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            reply = refusal(error)
        await send_reply(send, reply)


def _with_headers(decoded: Decoded, forwarding: HeaderForwarding, scope: Scope) -> Decoded:
    """The request with the headers that its model shall see; they win over parameters of the same name."""
    forwarded = forwarding.parameters(scope["headers"])
    if not forwarded:
        return decoded
    request = decoded.request
    return decoded._replace(request=request._replace(parameters={**request.parameters, **forwarded}))


def refusal(error: BaseException) -> Reply:
    """The answer to a request that met an error."""
    row, text = explain(V2_ERRORS, error)
    return error_reply(row.status, text, _HEADERS.get(type(error), ()))
