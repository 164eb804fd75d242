"""Server processes for benchmarks: started, waited for, ended."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit


class Server(NamedTuple):
    """A server process that is ready."""

    port: int
    pid: int


@contextmanager
def server(arguments: Sequence[str]) -> Iterator[Server]:
    """Run ``python -m <arguments>`` until the block ends; its port is read from its first line with a URL."""
    process = subprocess.Popen(  # noqa: S603 - our own modules
        [sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        port = _port(process)
        drain = threading.Thread(target=_drain, args=(process,), daemon=True)  # a full pipe would stop the server
        drain.start()
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _drain(process: "subprocess.Popen[str]") -> None:
    if process.stderr is not None:
        for _ in process.stderr:
            pass


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    lines, port = [], 0
    for line in process.stderr:
        lines.append(line)
        said = json.loads(line) if line.startswith("{") else {}
        if "url" in said:
            port = int(urlsplit(said["url"]).port or 0)
        if port and (said.get("message") == "started" or "message" not in said):  # others than Shoal only listen
            return port
    raise RuntimeError(f"the server ended before it listened:\n{''.join(lines)}")


def shoal(*flags: str) -> Sequence[str]:
    """Arguments for a Shoal on any free port, with defaults otherwise."""
    return (
        "gateway", "serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--log-format=json",
        "--drain-lead-secs=0", *flags,
    )  # fmt: skip
