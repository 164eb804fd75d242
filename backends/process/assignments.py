"""What the gateway orders from a worker process, and what becomes of it: the control connection, on the event loop."""

import asyncio
import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from backends.errors import BackendError, LoadError, WorkerLostError
from backends.ports import Placement
from backends.process.channels import EndOfStreamError, receive_packet, send_packet
from backends.process.child import ChildProcess
from backends.process.messages import (
    ASSIGNMENT,
    NEWS,
    ORDERS,
    Assign,
    Assigned,
    Assignment,
    Hello,
    LaneFds,
    LaneMade,
    Leave,
    News,
    Refused,
)
from backends.process.remote_executor import RemoteExecutor
from backends.process.slots import ProtocolError
from models.spec import ModelSpec


@dataclass(slots=True)
class _Order:
    """An assignment under way. The answer is an error or None; its lanes are by (instance, lane)."""

    spec: ModelSpec
    answer: "asyncio.Future[BackendError | None]"
    lanes: dict[tuple[int, int], RemoteExecutor] = field(default_factory=dict)

    def settle(self, answer: BackendError | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def give_up(self) -> None:
        for lane in self.lanes.values():
            lane.disconnect()


class Assignments:
    """The gateway's end of a worker's control socket.

    Args:
        child: The worker; ended when it breaks the protocol.
        control: Does not block; somebody else closes it, after `end`.
    """

    def __init__(self, child: ChildProcess, control: socket.socket) -> None:
        self.is_ready = asyncio.Event()
        self._child = child
        self._control = control
        self._numbers = itertools.count()
        self._orders: dict[int, _Order] = {}
        self._lanes: dict[int, RemoteExecutor] = {}  # by index on the status page
        asyncio.get_running_loop().add_reader(control, self._on_readable)

    async def assign(self, spec: ModelSpec, placement: Placement) -> Sequence[Sequence[RemoteExecutor]]:
        """See `WorkerProcess.assign`."""
        number = next(self._numbers)
        order = _Order(spec, asyncio.get_running_loop().create_future())
        self._orders[number] = order
        try:
            self._send(number, spec, placement)
            failure = await order.answer
        except BaseException:
            order.give_up()
            raise
        finally:
            del self._orders[number]
        if failure is not None:
            order.give_up()
            raise failure
        return _by_instance(order.lanes)

    def ask_to_leave(self) -> None:
        """Let the worker finish what runs and end. Raises OSError where it cannot hear."""
        send_packet(self._control, ORDERS, Leave())

    def connected_lanes(self) -> Mapping[int, RemoteExecutor]:
        """The lanes that are connected, by index on the status page."""
        self._lanes = {index: lane for index, lane in self._lanes.items() if not lane.is_disconnected}
        return self._lanes

    def end(self, lost: WorkerLostError) -> None:
        """The process has ended: whoever waits hears of it."""
        asyncio.get_running_loop().remove_reader(self._control)
        self.is_ready.set()
        for lane in self._lanes.values():
            lane.disconnect()
        for order in self._orders.values():
            order.settle(lost)

    def _send(self, number: int, spec: ModelSpec, placement: Placement) -> None:
        try:
            document = ASSIGNMENT.dump_json(Assignment(spec, placement))
        except ValueError as error:
            raise LoadError(f"model '{spec.name}' cannot be described to a worker process: {error}") from error
        try:
            # In a file, because it may be larger than a packet.
            with open(os.memfd_create("shoal-assignment"), "w+b") as file:  # noqa: PTH123 - has no path
                file.write(document)
                file.seek(0)
                send_packet(self._control, ORDERS, Assign(number), [file.fileno()])
        except (BrokenPipeError, ConnectionError) as error:
            reason = self._child.ending or f"cannot be told of model '{spec.name}': {error.strerror}"
            raise WorkerLostError(f"worker '{self._child.name}' (pid {self._child.pid}) {reason}") from error
        except OSError as error:  # no descriptor or no memory for the file: the worker is as well as before
            text = f"worker '{self._child.name}': no file for model '{spec.name}': {error.strerror}"
            raise LoadError(text) from error

    def _on_readable(self) -> None:
        try:
            while True:
                self._hear(*receive_packet(self._control, NEWS))
        except BlockingIOError:
            return
        except (EndOfStreamError, OSError):
            # It ends, of which the process's descriptor tells more.
            asyncio.get_running_loop().remove_reader(self._control)
        except ProtocolError as error:
            asyncio.get_running_loop().remove_reader(self._control)
            self._child.kill(f"it sent what no worker sends: {error}")

    def _hear(self, news: News, fds: Sequence[int]) -> None:
        match news:
            case Hello():
                self.is_ready.set()
            case LaneMade():
                self._add_lane(news, fds)
            case Assigned(number):
                self._settle(number, None)
            case Refused(number, failure):
                self._settle(number, failure.error())

    def _add_lane(self, news: LaneMade, fds: Sequence[int]) -> None:
        order = self._orders.get(news.number)
        if order is None or order.answer.done():  # given up, or failed
            _close(fds)
            return
        try:
            lane = _connect(order.spec, fds, self._child)
        except OSError as error:
            name = self._child.name
            order.settle(LoadError(f"worker '{name}': no connection for model '{order.spec.name}': {error}"))
            return
        order.lanes[news.instance, news.lane] = lane
        self._lanes[news.page_index] = lane

    def _settle(self, number: int, answer: BackendError | None) -> None:
        if number in self._orders:
            self._orders[number].settle(answer)


def _connect(spec: ModelSpec, fds: Sequence[int], child: ChildProcess) -> RemoteExecutor:
    if len(fds) != len(LaneFds._fields):  # the kernel leaves out those for which there is no room
        _close(fds)
        raise OSError(f"found {len(fds)} of {len(LaneFds._fields)} descriptors; raise the limit on open files")
    return RemoteExecutor(spec, LaneFds(*fds), child)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _by_instance(lanes: dict[tuple[int, int], RemoteExecutor]) -> Sequence[Sequence[RemoteExecutor]]:
    instances: dict[int, list[RemoteExecutor]] = {}
    for (instance, _), lane in sorted(lanes.items(), key=lambda item: item[0]):
        instances.setdefault(instance, []).append(lane)
    return list(instances.values())
