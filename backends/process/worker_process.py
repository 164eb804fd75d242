"""A worker process, seen from the event loop: started, given models, watched, ended."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from backends.errors import LoadError
from backends.ports import Placement
from backends.process.assignments import Assignments
from backends.process.child import ChildProcess
from backends.process.remote_executor import RemoteExecutor
from backends.process.status_page import StatusPage
from batching.clock import MILLISECOND_NS, Clock
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_NOTHING: Mapping[str, str] = MappingProxyType({})
_STOPPED_STATES = ("T", "t")  # by a signal, by a debugger

_STACKS_S = 0.2


class Pulse(NamedTuple):
    """What is seen of a worker without asking it.

    Attributes:
        heartbeat_ns: When it beat last, on the system's monotonic clock; it does so ten times a second.
        steps: By lane, when its running step (load, warm-up, batch) began, or 0.
        is_stopped: It is stopped by a signal or a debugger.
    """

    heartbeat_ns: int
    steps: Mapping[RemoteExecutor, int]
    is_stopped: bool


class WorkerProcess:
    """One process with the executors of any number of model versions. Belongs to the event loop that calls `start`.

    Args:
        name: Unique among workers; for messages.
        clock: The system's monotonic clock, by which the worker beats too.
        environment: Added to the process's.
    """

    def __init__(self, name: str, *, clock: Clock, environment: Mapping[str, str] = _NOTHING) -> None:
        self.name = name
        self._clock = clock
        self._environment = environment
        self._running: _Running | None = None
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """Of the process; 0 before it is started."""
        return self._running.child.pid if self._running is not None else 0

    @property
    def has_ended(self) -> bool:
        """It ran, and does not run any more."""
        return self._ended.is_set()

    async def start(self) -> None:
        """Start the process and wait until it can be given models. Call it once; whatever happens, call `aclose` later.

        Raises:
            LoadError: The operating system gives no process.
            WorkerLostError: It ended instead.
        """
        started_ns = self._clock.now_ns()
        try:
            running = self._running = _spawn(self.name, self._environment)
        except OSError as error:
            raise LoadError(f"worker '{self.name}': no process can be started: {error.strerror}") from error
        asyncio.get_running_loop().add_reader(running.child.fd, self._on_end, running)
        await running.assignments.is_ready.wait()
        if self.has_ended:
            raise running.child.lost
        took_ms = (self._clock.now_ns() - started_ns) // MILLISECOND_NS
        logger.info("worker '%s' is up: pid %d, started in %d ms", self.name, self.pid, took_ms)

    async def assign(self, spec: ModelSpec, placement: Placement) -> Sequence[Sequence[RemoteExecutor]]:
        """Have executors made in the process: not loaded yet, the lanes of each instance.

        Cancelled, the process makes them all the same, and gives them up.

        Raises:
            LoadError: They cannot be made; with the worker's text.
            WorkerLostError: The process has ended.
        """
        running = self._started
        if self.has_ended:
            raise running.child.lost
        return await running.assignments.assign(spec, placement)

    async def wait_ended(self) -> str:
        """Wait until the process has ended; returns how, e.g. "was killed by signal 9 (SIGKILL)"."""
        await self._ended.wait()
        return self._started.child.ending

    def kill(self, reason: str, *, blames_batch: bool = False) -> None:
        """End the process at once. Batches in it fail with WorkerLostError, which gives the reason.

        Args:
            reason: For messages.
            blames_batch: What it is running is the reason, so that it must not be run elsewhere.
        """
        self._started.child.kill(reason, blames_batch=blames_batch)

    async def show_stacks(self) -> None:
        """Have the process write the stacks of its threads to the log, for somebody who wonders where it hangs."""
        self._started.child.dump_stacks()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STACKS_S):  # it takes a moment, and nobody tells when it is done
                await self._ended.wait()

    async def aclose(self, grace_s: float = 5.0) -> None:
        """Let running batches finish, close the executors and end the process; kill it after `grace_s` seconds.

        Safe to call twice, at once too, and whether or not `start` succeeded. Cancelled, it kills the process.
        """
        running = self._running
        if running is None:
            return
        try:
            if not self.has_ended:
                await self._leave(running, grace_s)
        finally:
            running.child.kill(f"it did not end within {grace_s:g} s")
            await self._ended.wait()  # a moment; also when this is cancelled, or its descriptors would be left

    def pulse(self) -> Pulse:
        """How the process is now. When it has ended: its last heartbeat, no steps."""
        running = self._started
        if self.has_ended:
            return Pulse(running.last_beat_ns, {}, is_stopped=False)
        lanes = running.assignments.connected_lanes()
        steps = dict(zip(lanes.values(), running.page.busy_since_ns(tuple(lanes)), strict=True))
        return Pulse(running.page.heartbeat_ns, steps, _is_stopped(self.pid))

    @property
    def _started(self) -> "_Running":
        if self._running is None:
            raise RuntimeError(f"worker '{self.name}' is not started")
        return self._running

    async def _leave(self, running: "_Running", grace_s: float) -> None:
        with suppress(OSError):  # it cannot hear: it has ended, or is about to be killed
            running.assignments.ask_to_leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._ended.wait()

    def _on_end(self, running: "_Running") -> None:
        lost = running.child.lost
        running.last_beat_ns = running.page.heartbeat_ns
        asyncio.get_running_loop().remove_reader(running.child.fd)
        self._ended.set()
        running.assignments.end(lost)
        running.resources.close()


class _Running:
    """What a started worker consists of; `resources` closes all of it that must be closed when it has ended."""

    def __init__(self, child: ChildProcess, assignments: Assignments, page: StatusPage, resources: ExitStack) -> None:
        self.child = child
        self.assignments = assignments
        self.page = page
        self.resources = resources
        self.last_beat_ns = 0


def _spawn(name: str, environment: Mapping[str, str]) -> _Running:
    with ExitStack() as theirs, ExitStack() as ours:
        control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.enter_context(control)
        theirs.enter_context(other_end)
        page_fd = StatusPage.create_fd()
        theirs.callback(os.close, page_fd)
        page = StatusPage(page_fd)
        ours.callback(page.close)
        control.setblocking(False)
        arguments = [name, str(other_end.fileno()), str(page_fd), str(os.getpid())]
        fds = (other_end.fileno(), page_fd)
        child = ChildProcess.spawn(name, "backends.process.worker_main", arguments, fds, environment)
        ours.callback(child.close)
        return _Running(child, Assignments(child, control), page, ours.pop_all())


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it ends at this moment
        return False
    return text.rpartition(")")[2].split()[0] in _STOPPED_STATES  # the name in parentheses may hold anything
