"""The method ModelInfer, and what one request of a stream shares with it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from tritonclient.grpc import service_pb2

from batching.core.errors import QueueFullError
from gateway.asgi import Offload
from gateway.engine import Engine
from gateway.grpc_v2.calls import Context, metadata_of, parse
from gateway.grpc_v2.effort import check_effort
from gateway.grpc_v2.inputs import read_plain_inputs
from gateway.grpc_v2.parameters import Message
from gateway.grpc_v2.request import decode
from gateway.grpc_v2.response import is_slow_to_render, render
from gateway.grpc_v2.versions import parse_version
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.request import Decoded, with_request_id
from gateway.v2.shared_memory import SharedMemory
from models.errors import InvalidRequestError, ModelUnavailableError
from models.inference import InferResponse, Parameter
from models.spec import ModelSpec

_INLINE_BYTES = 1 << 20
"""Larger messages are looked at and parsed in a thread."""

_INLINE_LIST_BYTES = 32 << 10
"""Larger ones in a thread, if their elements are looked at one by one."""

_INLINE_ELEMENTS = 16384
"""Most strings or classes that are rendered on the event loop."""


class Inference:
    """Answers infer requests.

    Args:
        engine: What answers.
        memory: The shared memory of clients.
        offload: Runs slow decoding and rendering in a thread.
        forwarding: Which metadata models see as parameters; None: none.
    """

    def __init__(
        self, engine: Engine, memory: SharedMemory, offload: Offload, forwarding: HeaderForwarding | None
    ) -> None:
        self._engine = engine
        self._memory = memory
        self._offload = offload
        self._forwarding = forwarding

    async def infer(self, data: bytes, context: Context) -> bytes:
        """ModelInfer: one request and its answer, as bytes of the messages."""
        message = await self.read(data)
        return await self.answer(data, message, self.forwarded(context))

    async def read(self, data: bytes) -> Message:
        """The request's message. Raises UnreadableMessageError."""
        if len(data) <= _INLINE_BYTES:
            return parse(service_pb2.ModelInferRequest, data)
        return await self._offload(partial(_parse_large, data))

    def forwarded(self, context: Context) -> Mapping[str, Parameter] | None:
        """The parameters that came as metadata."""
        if self._forwarding is None:
            return None
        return self._forwarding.parameters(
            (key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in metadata_of(context)
        )

    async def answer(
        self, data: bytes, message: Message, forwarded: Mapping[str, Parameter] | None, *, is_streamed: bool = False
    ) -> bytes:
        """The `ModelInferResponse` to a request.

        Args:
            data: The request's bytes.
            message: What they say.
            forwarded: The parameters that came as metadata.
            is_streamed: Mark the answer as the last one, as on a stream.

        Raises:
            Exception: What `CODES` lists.
        """
        spec, decoded = await self._decode(data, message, forwarded)
        try:
            response = await self._engine.infer(decoded.request)
        except (InvalidRequestError, QueueFullError) as error:
            raise with_request_id(error, decoded.request.request_id) from None
        answer = self._render(spec, decoded, response, is_streamed=is_streamed)
        return answer if isinstance(answer, bytes) else await self._offload(answer)

    async def _decode(
        self, data: bytes, message: Message, forwarded: Mapping[str, Parameter] | None
    ) -> tuple[ModelSpec, Decoded]:
        model: str = message.model_name
        version = parse_version(self._engine, model, message.model_version)
        spec = self._engine.model(model, version)
        plain = read_plain_inputs(message)
        # Shared memory is copied, however small the message is.
        is_slow = len(data) > _INLINE_LIST_BYTES or self._memory.is_slow
        if is_slow and (plain is None or message.parameters or message.outputs):
            slow = partial(decode, spec, version, message, plain, self._memory, forwarded)
            return spec, await self._offload(slow)
        return spec, decode(spec, version, message, plain, self._memory, forwarded)

    def _render(
        self, spec: ModelSpec, decoded: Decoded, response: InferResponse, *, is_streamed: bool
    ) -> bytes | Callable[[], bytes]:
        """The answer, or what renders it in a thread if that takes long."""
        if spec.version != response.version:  # the default version has changed since the spec was fetched
            with suppress(ModelUnavailableError):  # and the one that answered may be gone by now
                spec = self._engine.model(response.model, response.version)
        if is_slow_to_render(decoded, response, _INLINE_ELEMENTS):
            return partial(render, decoded, response, spec, is_final=is_streamed)
        return render(decoded, response, spec, is_final=is_streamed)


def _parse_large(data: bytes) -> Message:
    check_effort(data)
    return parse(service_pb2.ModelInferRequest, data)
