"""Messages between gateway and worker, and what is no message."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from backends import errors
from backends.errors import BackendError, ExecutionError, LoadError, WrongRowsError
from backends.failures import Failure
from backends.process.channels import Channel, EndOfStreamError, receive_packet, send_packet
from backends.process.messages import NEWS, REPLIES, REQUESTS, Done, Hello, Load, Reply, Request, Run
from backends.process.slots import ProtocolError, TensorPlace
from models.tensors import DataType

LEAVES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BackendError)]


class Lane:
    """Both ends of a lane, and the bare socket of the worker's end."""

    def __init__(self) -> None:
        ours, self.raw = socket.socketpair()
        self.gateway: Channel[Request, Reply] = Channel(ours, REQUESTS, REPLIES)
        self.worker: Channel[Reply, Request] = Channel(self.raw, REPLIES, REQUESTS)


@pytest.fixture
def lane() -> Iterator[Lane]:
    lane = Lane()
    yield lane
    lane.gateway.close()
    lane.worker.close()


def raised(error: BaseException) -> BackendError:
    """The error that the gateway raises for one of the worker."""
    failure = REPLIES.validate_json(REPLIES.dump_json(Failure.of(error, ExecutionError)))
    assert isinstance(failure, Failure)
    return failure.error()


def test_requests_arrive_as_they_were_sent_also_the_same_one_again(lane: Lane):
    run = Run(2, 4_096, (TensorPlace("ö", DataType.BF16, (2, 0), 64, 0),))
    sent: list[Request] = [Load(), run, run, Load()]
    received = []
    for request in sent:
        lane.gateway.send(request)
        received.append(lane.worker.receive())

    assert received == sent


def test_a_message_that_arrives_in_pieces_is_put_together(lane: Lane):
    done = Done(7, tuple(TensorPlace(f"output {index}", DataType.FP32, (1,), 0, 4) for index in range(20_000)))
    sending = threading.Thread(target=lane.worker.send, args=(done,))  # more than the socket holds
    sending.start()
    received = lane.gateway.receive()
    sending.join()

    assert received == done


@pytest.mark.parametrize(
    "data",
    [
        b"hello, I am a log line that model code has printed to every descriptor",
        b"\x02\0\0\0{}",
        b'\x0f\0\0\0{"kind":"fine"}',
        b'\x2c\0\0\0{"kind":"done","capacity_bytes":-1,"tensors":[]}'[:48],
        b'\x0f\0\0\0{"kind":"done"}, and more',
    ],
)
def test_what_is_no_message_is_a_protocol_error(lane: Lane, data: bytes):
    lane.raw.sendall(data)

    with pytest.raises(ProtocolError):
        lane.gateway.receive()


@pytest.mark.parametrize("data", [b"", b"\x09\0", b"\x09\0\0\0{"])
def test_an_end_at_any_byte_is_the_end(lane: Lane, data: bytes):
    lane.raw.sendall(data)
    lane.worker.close()

    with pytest.raises(EndOfStreamError):
        lane.gateway.receive()


def test_shutting_down_wakes_the_thread_that_waits_and_is_harmless_after_closing(lane: Lane):
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(EndOfStreamError):
            lane.gateway.receive()
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    lane.gateway.shut_down()
    waiting.join()
    lane.gateway.close()
    lane.gateway.shut_down()

    assert ended.is_set()


@pytest.mark.parametrize("kind", [kind for kind in LEAVES if kind is not WrongRowsError])
def test_an_error_of_this_package_comes_back_as_the_same_class_with_the_same_text(kind: type[BackendError]):
    error = raised(kind("what was found, what was expected"))

    assert (type(error), str(error)) == (kind, "what was found, what was expected")


def test_fields_of_an_error_come_back():
    error = raised(WrongRowsError(output="y", expected_rows=3, found_rows=2))

    assert isinstance(error, WrongRowsError)
    assert (error.output, error.expected_rows, error.found_rows) == ("y", 3, 2)
    assert str(error) == "output 'y' has 2 rows for a batch of 3"


def test_an_engines_own_subclass_comes_back_as_the_class_that_is_known_here():
    class EngineError(LoadError):
        pass

    assert type(raised(EngineError("no such layer"))) is LoadError


def test_any_other_error_comes_back_as_an_execution_error_with_type_and_text():
    error = raised(ValueError("half a character: \ud800"))

    assert type(error) is ExecutionError
    assert str(error) == "ValueError: half a character: ?"


def test_packets_carry_descriptors_and_a_wrong_one_leaks_none():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        read_fd, write_fd = os.pipe()
        send_packet(ours, NEWS, Hello(), [write_fd])
        message, (fd,) = receive_packet(theirs, NEWS)
        os.write(fd, b"x")
        assert (message, os.read(read_fd, 1)) == (Hello(), b"x")

        socket.send_fds(ours, [b"nonsense"], [write_fd])
        with pytest.raises(ProtocolError, match="nonsense"):
            receive_packet(theirs, NEWS)
        for left in (fd, write_fd):
            os.close(left)
        assert os.read(read_fd, 1) == b""  # nobody can write any more
        os.close(read_fd)
