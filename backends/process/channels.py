"""How messages travel between gateway and worker.

Each lane has a stream socket, on which requests and replies take turns, each behind its length. The worker has a
control socket that keeps messages apart itself (SOCK_SEQPACKET), for file descriptors travel with some of them.
"""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from backends.process.slots import ProtocolError

Sent = TypeVar("Sent")
Received = TypeVar("Received")

_LENGTH_BYTES = 4
_USUAL_BYTES = 4_096
_MAX_MESSAGE_BYTES = 64 << 20
_MAX_PACKET_BYTES = 128 << 10
_MAX_FDS = 3


class EndOfStreamError(Exception):
    """The other side has closed its end."""


class Channel(Generic[Sent, Received]):
    """One end of a lane's stream socket. Blocks; used by one thread at a time, except `shut_down`.

    Args:
        end: The socket, blocking; owned from now on.
        sent: Of the messages that this end sends.
        received: Of those that it receives.
    """

    def __init__(self, end: socket.socket, sent: TypeAdapter[Sent], received: TypeAdapter[Received]) -> None:
        self._socket = end
        self._sent = sent
        self._received = received
        self._last_sent: Sent | None = None
        self._last_sent_data = b""
        self._last_data = b""
        self._last_message: Received  # of the last data, once there are any

    def send(self, message: Sent) -> None:
        """Say something. Raises OSError where nobody listens any more."""
        if message != self._last_sent:  # batches of the same size are told in the same words, and written once
            data = self._sent.dump_json(message)
            self._last_sent_data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
            self._last_sent = message
        self._socket.sendall(self._last_sent_data)

    def receive(self) -> Received:
        """Wait for the next message.

        Raises:
            EndOfStreamError: There will be none.
            OSError: Likewise.
            ProtocolError: It is no message that may come here.
        """
        data = self._some(_USUAL_BYTES)
        while len(data) < _LENGTH_BYTES:
            data += self._some(_LENGTH_BYTES - len(data))
        end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        if end > _MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {end} bytes, expected at most {_MAX_MESSAGE_BYTES}")
        while len(data) < end:
            data += self._some(end - len(data))
        if len(data) > end:
            raise ProtocolError(f"found {len(data) - end} bytes behind a message, expected none before its reply")
        if data != self._last_data:  # likewise parsed once
            self._last_message = _parsed(self._received, data[_LENGTH_BYTES:])
            self._last_data = data
        return self._last_message

    def shut_down(self, how: int = socket.SHUT_RDWR) -> None:
        """Wake a thread that waits in `receive` or `send`. For any thread, at any time."""
        with suppress(OSError):  # the other side is gone, or this one closed: nobody waits
            self._socket.shutdown(how)

    def close(self) -> None:
        """Close this end. Safe to call twice."""
        self._socket.close()

    def _some(self, most_bytes: int) -> bytes:
        data = self._socket.recv(most_bytes)
        if not data:
            raise EndOfStreamError
        return data


class Packet(NamedTuple, Generic[Received]):
    """A message from the control socket and the file descriptors that came along, which the receiver owns."""

    message: Received
    fds: Sequence[int]


def send_packet(control: socket.socket, kind: TypeAdapter[Sent], message: Sent, fds: Sequence[int] = ()) -> None:
    """Say something on the control socket; the descriptors are copied. Raises OSError."""
    socket.send_fds(control, [kind.dump_json(message)], fds)


def receive_packet(control: socket.socket, kind: TypeAdapter[Received]) -> Packet[Received]:
    """The next packet.

    Raises:
        EndOfStreamError: There will be none.
        BlockingIOError: There is none yet, on a socket that does not block.
        OSError: The other side is gone.
        ProtocolError: It is none that may come here.
    """
    data, fds, _, _ = socket.recv_fds(control, _MAX_PACKET_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        raise EndOfStreamError
    try:
        return Packet(_parsed(kind, data), fds)
    except ProtocolError:
        for fd in fds:
            os.close(fd)
        raise


def _parsed(kind: TypeAdapter[Received], data: bytes) -> Received:
    try:
        return kind.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(f"found {data[:100]!r}, expected a message") from error
