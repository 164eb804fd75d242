"""``/generate`` and ``/generate_stream`` over HTTP. Models answer once here, so a stream has one event."""

from functools import partial

from backends.errors import BackendError
from batching.core.errors import DeadlineExceededError, QueueFullError
from gateway.asgi import JSON_TYPE, Headers, Offload, Receive, Reply, Scope, error_reply, read_body, unless_disconnected
from gateway.engine import Engine
from gateway.errors import V2_ERRORS, explain
from gateway.v2.generate import read_generate, render_generate
from gateway.v2.limits import V2Limits
from gateway.v2.request import with_request_id
from models.errors import InvalidRequestError
from models.inference import InferRequest, InferResponse
from models.spec import ModelSpec

_EVENT_TYPE = (b"content-type", b"text/event-stream; charset=utf-8")
_PLAIN = frozenset((b"", b"identity"))
_WRONG_CODING = error_reply(400, "Unsupported content-encoding, only 'identity' is supported.")


class GenerateVerbs:
    """Answers the generate extension.

    Args:
        engine: What answers.
        limits: Sizes.
        offload: Runs slow parsing and rendering in a thread.
    """

    def __init__(self, engine: Engine, limits: V2Limits, *, offload: Offload) -> None:
        self._engine = engine
        self._offload = offload
        self._limits = limits

    async def answer(
        self, spec: ModelSpec, version: int | None, scope: Scope, receive: Receive, *, streams: bool
    ) -> Reply | None:
        """One request's answer, None when the client left before it was there. Raises what V2_ERRORS lists.

        Args:
            spec: The model of the path.
            version: Version of the path, if any.
            scope: ASGI's.
            receive: ASGI's.
            streams: The answer shall be an event.
        """
        headers: Headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"") not in _PLAIN:
            return _WRONG_CODING
        chunks = await read_body(receive, headers, self._limits.max_body_bytes)
        if chunks is None:
            return None
        body = b"".join(chunks)
        read = partial(read_generate, spec, version, body, self._limits.max_body_bytes)
        request = read() if len(body) <= self._limits.inline_bytes else await self._offload(read)
        try:
            response = await self._infer(request, receive)
            if response is None:
                return None
            status, text = 200, await self._render(response)
        except (BackendError, DeadlineExceededError) as error:  # of the model: always 400 here, whatever it is
            status, text = 400, error_reply(400, explain(V2_ERRORS, error)[1]).body
        return Reply(status, b"data: %b\n\n" % text, (_EVENT_TYPE,)) if streams else Reply(status, text, (JSON_TYPE,))

    async def _infer(self, request: InferRequest, receive: Receive) -> InferResponse | None:
        try:
            return await unless_disconnected(self._engine.infer(request), receive)
        except (InvalidRequestError, QueueFullError) as error:
            raise with_request_id(error, request.request_id) from None

    async def _render(self, response: InferResponse) -> bytes:
        if sum(array.size for array in response.outputs.values()) <= self._limits.inline_elements:
            return render_generate(response)
        return await self._offload(partial(render_generate, response))
