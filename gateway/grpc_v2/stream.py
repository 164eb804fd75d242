"""The method ModelStreamInfer: requests and answers on one stream, answers in the order of the requests."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from backends.errors import BackendError
from gateway.grpc_v2.calls import Context, metadata_of, refuse
from gateway.grpc_v2.errors import ServerExitingError, UnreadableMessageError, explain_status
from gateway.grpc_v2.inference import Inference
from gateway.grpc_v2.response import render_error, render_streamed
from models.inference import Parameter

MAX_PENDING_REQUESTS = 1024
"""Of one stream; with more than that, nothing more is read until some are answered."""

MAX_PENDING_BYTES = 64 << 20
"""Likewise of their messages; a larger one is alone."""


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


class _Stream:
    """One of them."""

    def __init__(self, inference: Inference, context: Context) -> None:
        self._inference = inference
        self._context = context
        self._ends_at_errors = ("triton_grpc_error", "true") in metadata_of(context)
        self._pending: asyncio.Queue[tuple[asyncio.Task[bytes | Exception], int] | None] = asyncio.Queue()
        self._pending_bytes = 0
        self._room = asyncio.Event()

    async def read(self, requests: AsyncIterator[bytes], tasks: asyncio.TaskGroup) -> None:
        """Start a task for each request, until there are no more."""
        try:
            forwarded = self._inference.forwarded(self._context)
            async for data in requests:
                await self._wait_for_room(len(data))
                self._pending_bytes += len(data)
                self._pending.put_nowait((tasks.create_task(self._answer(data, forwarded)), len(data)))
        finally:
            self._pending.put_nowait(None)

    async def write(self) -> Exception | None:
        """Send the answers as they are ready, in order. Returns the error that ends the stream, or None."""
        while (pending := await self._pending.get()) is not None:
            task, size_bytes = pending
            answer = await task
            self._pending_bytes -= size_bytes
            self._room.set()
            if isinstance(answer, Exception):
                return answer
            await self._context.write(answer)
        return None

    async def _wait_for_room(self, size_bytes: int) -> None:
        while self._pending_bytes and (
            self._pending.qsize() >= MAX_PENDING_REQUESTS or self._pending_bytes + size_bytes > MAX_PENDING_BYTES
        ):
            self._room.clear()
            await self._room.wait()

    async def _answer(self, data: bytes, forwarded: Mapping[str, Parameter] | None) -> bytes | Exception:
        """The `ModelStreamInferResponse` to a request, or the error that ends the stream."""
        request_id = model = ""
        try:
            message = await self._inference.read(data)
            request_id, model = message.id, message.model_name
            return render_streamed(await self._inference.answer(data, message, forwarded, is_streamed=True))
        except Exception as error:  # noqa: BLE001 - answered and logged, whatever it is
            if self._ends_at_errors or isinstance(error, UnreadableMessageError):
                return error
            _, text = explain_status(error)
            return render_error(text, request_id, model if isinstance(error, BackendError) else "")
