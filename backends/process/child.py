"""A child process that can be ended and asked how it ended from any thread, without races over reused process ids."""

import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from backends.errors import WorkerLostError
from backends.process.messages import STACKS_SIGNAL

_STDERR = 2


class ChildProcess:
    """Runs until it ends or is killed; then its whole process group goes, so that no grandchild is left.

    Args:
        name: For messages.
        process: The leader of its own session.

    Raises:
        OSError: No descriptor of it can be had; the process has been killed.
    """

    def __init__(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._lock = threading.Lock()
        self._kill_reason = ""
        self._blames_batch = False
        self._ending = ""
        try:
            self._fd = os.pidfd_open(process.pid)  # readable once the process has ended
        except OSError:
            process.kill()
            process.wait()
            raise

    @classmethod
    def spawn(
        cls, name: str, module: str, arguments: Sequence[str], fds: Sequence[int], add: Mapping[str, str]
    ) -> Self:
        """Run a module of ours with this interpreter.

        Call it on a thread that lives as long as the child may: the kernel tells the child of that thread's end.

        Args:
            name: For messages.
            module: Its name.
            arguments: Of its command line.
            fds: That it inherits, besides stderr.
            add: To its environment.

        Raises:
            OSError: No process can be had.
        """
        process = subprocess.Popen(  # noqa: S603 - our own module
            # -P: a directory called `backends` in the working directory must not be taken for ours.
            # -u: what model code prints is in the log at once, also when it dies with its next step.
            [sys.executable, "-P", "-u", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            pass_fds=fds,
            env={**os.environ, **add},
            start_new_session=True,  # Ctrl-C in the terminal is the parent's business
        )
        return cls(name, process)

    @property
    def fd(self) -> int:
        """Readable once the process has ended; -1 after `close`."""
        return self._fd

    @property
    def ending(self) -> str:
        """How it ended, e.g. "was killed by signal 9 (SIGKILL)", or empty while it runs. Reaps it."""
        with self._lock:
            if not self._ending and self._is_readable(self._fd, 0):
                self._end_group()
                status = self._process.wait()
                # Nobody crashes or exits but by what it runs; SIGKILL and SIGTERM come from outside.
                self._blames_batch |= -status not in (signal.SIGKILL, signal.SIGTERM)
                self._ending = self._described(status)
            return self._ending

    @property
    def lost(self) -> WorkerLostError:
        """The error for those who were waiting for it, once it has ended."""
        ending = self.ending or "is lost"
        return WorkerLostError(f"worker '{self.name}' (pid {self.pid}) {ending}", blames_batch=self._blames_batch)

    def kill(self, reason: str, *, blames_batch: bool = False) -> None:
        """End it now, unless it has ended. The first reason counts.

        Args:
            reason: For messages.
            blames_batch: What it is running is the reason.
        """
        with self._lock:
            if self._ending or self._is_readable(self._fd, 0):
                return
            if not self._kill_reason:
                self._kill_reason, self._blames_batch = reason, blames_batch
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def dump_stacks(self) -> None:
        """Let it write to stderr what its threads are doing, if it is one of ours and can."""
        with self._lock:
            if not self._ending:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._fd, STACKS_SIGNAL)

    def wait(self, timeout_s: float) -> bool:
        """Block until it has ended; returns whether it has."""
        with self._lock:
            if self._ending:
                return True
            try:
                fd = os.dup(self._fd)  # another thread may reap and close meanwhile
            except OSError:  # no descriptor left: look, without waiting
                return self._is_readable(self._fd, 0)
        try:
            return self._is_readable(fd, timeout_s)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the descriptor of a process whose `ending` is known."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @staticmethod
    def _is_readable(fd: int, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000))

    def _end_group(self) -> None:
        # Before it is reaped, so that nobody else can have got the number of the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _described(self, status: int) -> str:
        if self._kill_reason and status == -signal.SIGKILL:
            return f"was ended: {self._kill_reason}"
        if status >= 0:
            return f"exited with status {status}"
        try:
            return f"was killed by signal {-status} ({signal.Signals(-status).name})"
        except ValueError:  # one without a name
            return f"was killed by signal {-status}"


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now, with what it shares; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()
