"""The worker process: ``python -m backends.process.worker_main NAME CONTROL_FD PAGE_FD PARENT_PID``."""

import ctypes
import faulthandler
import functools
import itertools
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from backends.errors import LoadError
from backends.failures import Failure
from backends.ports import Executor
from backends.process.channels import EndOfStreamError, receive_packet, send_packet
from backends.process.import_path import OwnPackages, user_code_path
from backends.process.messages import (
    ASSIGNMENT,
    NEWS,
    ORDERS,
    STACKS_SIGNAL,
    Assign,
    Assigned,
    Assignment,
    Hello,
    LaneFds,
    LaneMade,
    News,
    Refused,
)
from backends.process.slots import Region
from backends.process.status_page import MAX_LANES, StatusPage
from backends.process.worker_lane import WorkerLane
from backends.registry import create_executors
from batching.clock import Clock, MonotonicClock

_BEAT_EVERY_MS = 100
_PR_SET_PDEATHSIG = 1


class Worker:
    """Makes executors as the gateway orders them, each served by a lane with a thread of its own.

    Args:
        control: The worker's end of the control socket.
        page: The worker's status page.
        clock: The system's monotonic clock.
    """

    def __init__(self, control: socket.socket, page: StatusPage, clock: Clock) -> None:
        self._control = control
        self._page = page
        self._clock = clock
        self._packages = OwnPackages()
        self._lanes: dict[int, WorkerLane] = {}

    def run(self) -> None:
        """Until the gateway says so, or is gone."""
        self._packages.hide()
        self._tell(Hello())
        try:
            while True:
                order, fds = receive_packet(self._control, ORDERS)
                if not isinstance(order, Assign):
                    break
                self._assign(order.number, *fds)
        except EndOfStreamError:
            os._exit(1)  # nobody is left to finish anything for
        lanes = tuple(self._lanes.values())
        for lane in lanes:
            lane.leave()
        for lane in lanes:
            lane.join()

    def _assign(self, number: int, fd: int) -> None:
        try:
            with open(fd, "rb") as file:
                assignment = ASSIGNMENT.validate_json(file.read())
            instances = self._create(assignment)
            lanes = [(i, k, lane) for i, instance in enumerate(instances) for k, lane in enumerate(instance)]
            for instance, lane, executor in lanes:
                self._add_lane(number, instance, lane, assignment, executor)
        except Exception as error:  # noqa: BLE001 - of an engine or a model: it fails this assignment only
            self._tell(Refused(number, Failure.of(error, LoadError)))
        else:
            self._tell(Assigned(number))

    def _create(self, assignment: Assignment) -> Sequence[Sequence[Executor]]:
        with self._packages.shown():  # the factory's module is ours; model code runs when the executor is loaded
            instances = create_executors(assignment.spec, assignment.placement)
        file = assignment.spec.file
        user_code_path(file if file.is_dir() else file.parent)
        return instances

    def _add_lane(self, number: int, instance: int, lane: int, assignment: Assignment, executor: Executor) -> None:
        index = next(index for index in itertools.count() if index not in self._lanes)
        if index == MAX_LANES:
            raise LoadError(f"found {MAX_LANES} lanes in one worker process, expected fewer instances")
        ours, theirs = socket.socketpair()
        inputs_fd, outputs_fd = Region.create_fd(), Region.create_fd()
        with theirs:
            news = LaneMade(number, instance, lane, index)
            send_packet(self._control, NEWS, news, LaneFds(theirs.fileno(), inputs_fd, outputs_fd))
        self._lanes[index] = WorkerLane(
            assignment.spec,
            executor,
            LaneFds(ours.detach(), inputs_fd, outputs_fd),
            self._clock,
            show_busy=functools.partial(self._page.show_busy, index),
            on_end=functools.partial(self._lanes.pop, index),
        )
        self._lanes[index].start()

    def _tell(self, news: News) -> None:
        send_packet(self._control, NEWS, news)


def main(name: str, control_fd: str, page_fd: str, parent_pid: str) -> None:
    """Set the process up and work."""
    _die_with(int(parent_pid))
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever ends the gateway ends its workers in order
    _log_to_stderr(name)
    _hide_main()
    control = socket.socket(fileno=int(control_fd))
    page = StatusPage(int(page_fd))
    os.close(int(page_fd))
    clock = MonotonicClock()
    page.beat(clock.now_ns())
    threading.Thread(target=_beat, args=(page, control.fileno(), clock), name="heartbeat", daemon=True).start()
    Worker(control, page, clock).run()


def _die_with(parent_pid: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before it was asked to tell
        os._exit(1)


def _hide_main() -> None:
    # Processes that model code spawns would import this module first, and ours with it, into their own namespace.
    module = sys.modules["__main__"]
    module.__spec__ = None
    module.__file__ = None


def _beat(page: StatusPage, control_fd: int, clock: Clock) -> None:
    """Beat until the gateway has closed its end of the control socket; then end the process."""
    poll = select.poll()
    poll.register(control_fd, 0)  # hang-up and errors are always told
    while not poll.poll(_BEAT_EVERY_MS):
        page.beat(clock.now_ns())
    os._exit(1)


def _log_to_stderr(name: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    form = "%(asctime)s.%(msecs)03d %(levelname)s worker '%(worker)s': %(message)s"
    handler.setFormatter(logging.Formatter(form, "%H:%M:%S", defaults={"worker": name}))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":
    main(*sys.argv[1:])
