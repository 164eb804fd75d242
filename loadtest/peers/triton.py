"""The real tritonserver as a process on loopback."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from loadtest.peers.install import READY

HOME = Path(__file__).parents[2] / ".peers"
_TRIES = 3
_PATIENCE_S = 15
_SERVING = "Started Metrics Service"  # the last of its three ports


class Triton(NamedTuple):
    """A server that answers on 127.0.0.1."""

    http_port: int
    grpc_port: int
    metrics_port: int
    pid: int


def is_installed(home: Path = HOME) -> bool:
    """Whether ``make peers`` has put it there."""
    return (home / "triton" / READY).is_file()


@contextmanager
def serving(repository: Path, *flags: str, home: Path = HOME) -> Iterator[Triton]:
    """Serve a repository of Python models until the block ends.

    The models run in an interpreter that has numpy and nothing else.

    Raises:
        RuntimeError: It ended before it served; the text is what it wrote.
    """
    process, ports = _started(repository, flags, home)
    drain = threading.Thread(target=_drain, args=(process,), daemon=True)  # a full pipe would stop the server
    drain.start()
    try:
        http_port, grpc_port, metrics_port = ports
        yield Triton(http_port, grpc_port, metrics_port, process.pid)
    finally:
        _end(process)
        drain.join()
        _close(process)


def _started(repository: Path, flags: tuple[str, ...], home: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """It cannot choose ports itself; somebody else may take the chosen ones before it does."""
    said = ""
    for _ in range(_TRIES):
        ports = _free_ports()
        process = _start(repository, flags, home, ports)
        said = _wait(process)
        if not said:
            return process, ports
        _end(process)
        _close(process)
        if "already in use" not in said:
            break
    raise RuntimeError(f"tritonserver ended before it served:\n{said}")


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [found.getsockname()[1] for found in sockets]


def _start(repository: Path, flags: tuple[str, ...], home: Path, ports: list[int]) -> "subprocess.Popen[str]":
    root = home / "triton"
    listening = [
        part
        for name, port in zip(("http", "grpc", "metrics"), ports, strict=True)
        for part in (f"--{name}-address=127.0.0.1", f"--{name}-port={port}")
    ]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(root / "lib"),
        "PATH": f"{root / 'python/bin'}:{os.environ.get('PATH', '')}",  # the first python3 is that of the models
    }
    return subprocess.Popen(  # noqa: S603 - it was installed for this
        [
            str(root / "bin/tritonserver"), f"--model-repository={repository}",
            f"--backend-directory={root / 'backends'}", f"--cache-directory={root / 'caches'}",
            "--allow-gpu-metrics=false", *listening, *flags,
        ],
        stderr=subprocess.PIPE, text=True, errors="replace", env=environment, start_new_session=True,
    )  # fmt: skip


def _wait(process: "subprocess.Popen[str]") -> str:
    """Nothing once it serves; what it wrote, if it ended instead."""
    assert process.stderr is not None  # noqa: S101 - it was asked for
    lines = []
    for line in process.stderr:
        lines.append(line)
        if _SERVING in line:
            return ""
    return "".join(lines)


def _drain(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    for _ in process.stderr:
        pass


def _close(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    process.stderr.close()


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_PATIENCE_S)
    with suppress(ProcessLookupError):  # its workers too, whatever became of it: they are a group of their own
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
