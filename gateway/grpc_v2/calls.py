"""What all methods share: reading the message, checking the caller, answering errors."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gateway.grpc_v2.errors import MessageTooLargeError, RestrictedCallError, UnreadableMessageError, explain_status
from gateway.grpc_v2.parameters import Message

T = TypeVar("T")

Context = Any
"""`grpc.aio.ServicerContext`, which has no types."""

Answer = Callable[[Any, Context], Awaitable[T]]
"""A method: takes a request, or the requests of a stream."""

Header = tuple[str, str]
"""Key and value that the metadata of a call must have."""

_MAX_BYTES = 1 << 20  # so little that it is parsed at once; only tensors are larger
HEADER_PREFIX = "triton-grpc-protocol-"
"""What the keys of such headers begin with."""


def parse(message_type: Message, data: bytes) -> Message:
    """The message. Raises UnreadableMessageError."""
    try:
        return message_type.FromString(data)
    except DecodeError:
        raise UnreadableMessageError from None


def typed(message_type: Message, answer: Callable[[Message, Context], Awaitable[Message]]) -> Answer[bytes]:
    """A method over bytes, of one over small messages."""

    async def answer_bytes(data: bytes, context: Context) -> bytes:
        if len(data) > _MAX_BYTES:
            raise MessageTooLargeError(len(data), _MAX_BYTES)
        message = await answer(parse(message_type, data), context)
        return bytes(message.SerializeToString())

    return answer_bytes


def answering(answer: Answer[T], header: Header | None) -> Answer[T]:
    """The method with its errors as statuses.

    Args:
        answer: The method; it may raise what `CODES` lists.
        header: What a call must bring, or None.
    """

    async def answer_or_refuse(request: object, context: Context) -> T:
        try:
            if header is not None:
                _check(header, context)
            return await answer(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            if context.done():  # the client has left, so that even an answer in the making fails
                raise asyncio.CancelledError from None
            await refuse(context, error)
            raise AssertionError("the call goes on although it was ended") from error

    return answer_or_refuse


async def refuse(context: Context, error: Exception) -> None:
    """End the call with the status of an error. Raises grpc.aio.AbortError."""
    code, text = explain_status(error)
    await context.abort(code, text)


def metadata_of(context: Context) -> Sequence[tuple[str, str | bytes]]:
    """The metadata of a call; values of keys that end in ``-bin`` are bytes."""
    return tuple((key, value) for key, value in context.invocation_metadata() or ())


def _check(header: Header, context: Context) -> None:
    key, expected = header
    found = [value for name, value in metadata_of(context) if name == key.lower()]
    if not any(isinstance(value, str) and hmac.compare_digest(value.encode(), expected.encode()) for value in found):
        raise RestrictedCallError(key)
