"""The method ModelStreamInfer: requests and answers on one stream, answers in the order of the requests."""

import asyncio
from collections.abc import AsyncIterator

from backends.errors import BackendError
from gateway.grpc_v2.calls import Context, metadata_of, refuse
from gateway.grpc_v2.errors import ServerExitingError, UnreadableMessageError, explain_status
from gateway.grpc_v2.inference import Inference
from gateway.grpc_v2.response import render_error, render_streamed

MAX_PENDING_REQUESTS = 1024
"""Of one stream; with more than that, nothing more is read until some are answered."""

MAX_PENDING_BYTES = 64 << 20
"""Likewise of their messages and answers; a larger one is alone."""

FIRST_REQUESTS = 32
"""As many are read of a new stream, and one more for each that is answered: until then nobody knows how large answers
are, nor whether the client takes them."""


class Streams:
    """All streams of a server.

    Args:
        inference: Answers the requests.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._reading: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def infer(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """ModelStreamInfer. An error of one request is told on the stream, which goes on."""
        stream = _Stream(self._inference, context)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(stream.read(requests, tasks))
            self._reading.add(reading)
            if self._stopping:
                reading.cancel()
            try:
                failure = await stream.write()
            finally:
                self._reading.discard(reading)
                reading.cancel()
        if failure is None and self._stopping:
            failure = ServerExitingError()
        if failure is not None:
            await refuse(context, failure)

    def stop(self) -> None:
        """Read nothing more; what has been read is answered, then the streams end."""
        self._stopping = True
        for reading in self._reading:
            reading.cancel()


class _Call:
    """One request of a stream, until its answer has been taken."""

    __slots__ = ("held_bytes", "task")

    task: "asyncio.Task[bytes | Exception]"

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes


class _Stream:
    """One of them. Raises what `Inference.forwarded` raises."""

    def __init__(self, inference: Inference, context: Context) -> None:
        self._inference = inference
        self._context = context
        self._forwarded = inference.forwarded(context)
        self._ends_at_errors = ("triton_grpc_error", "true") in metadata_of(context)
        self._pending: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._unanswered = self._answered = 0
        self._held_bytes = 0
        self._largest_answer_bytes = 0
        self._room = asyncio.Event()

    async def read(self, requests: AsyncIterator[bytes], tasks: asyncio.TaskGroup) -> None:
        """Start a task for each request, until there are no more."""
        try:
            async for data in requests:
                expected_bytes = len(data) + self._largest_answer_bytes
                while self._unanswered and not self._has_room(expected_bytes):
                    self._room.clear()
                    await self._room.wait()
                self._unanswered += 1
                self._held_bytes += expected_bytes
                call = _Call(expected_bytes)
                call.task = tasks.create_task(self._run(call, data))
                self._pending.put_nowait(call)
        finally:
            self._pending.put_nowait(None)

    async def write(self) -> Exception | None:
        """Send the answers as they are ready, in order. Returns the error that ends the stream, or None."""
        while (call := await self._pending.get()) is not None:
            answer = await call.task
            if isinstance(answer, Exception):
                return answer
            await self._send(answer)
            self._unanswered -= 1
            self._answered += 1
            self._held_bytes -= call.held_bytes
            self._room.set()
        return None

    async def _send(self, answer: bytes) -> None:
        """Returns when the client has taken it, or soon will have."""
        try:
            await self._context.write(answer)
        except Exception:  # noqa: BLE001 - grpc has no name for it: the client has left
            raise asyncio.CancelledError from None

    async def _run(self, call: _Call, data: bytes) -> bytes | Exception:
        answer = await self._answer(data)
        if not isinstance(answer, Exception):
            self._largest_answer_bytes = max(self._largest_answer_bytes, len(answer))
            unexpected_bytes = max(0, len(data) + len(answer) - call.held_bytes)
            call.held_bytes += unexpected_bytes
            self._held_bytes += unexpected_bytes
        return answer

    def _has_room(self, size_bytes: int) -> bool:
        at_most = min(MAX_PENDING_REQUESTS, FIRST_REQUESTS + self._answered)
        return self._unanswered < at_most and self._held_bytes + size_bytes <= MAX_PENDING_BYTES

    async def _answer(self, data: bytes) -> bytes | Exception:
        """The `ModelStreamInferResponse` to a request, or the error that ends the stream."""
        request_id = model = ""
        try:
            message = await self._inference.read(data)
            request_id, model = message.id, message.model_name
            return render_streamed(await self._inference.answer(data, message, self._forwarded, is_streamed=True))
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            if self._ends_at_errors or isinstance(error, UnreadableMessageError):
                return error
            _, text = explain_status(error)
            return render_error(text, request_id, model if isinstance(error, BackendError) else "")
