"""A newcomer's two terminals: one serves, the other types what the pages say, word for word."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.docs.pages import ROOT

PATIENCE_S = 30
_PROGRAMS = Path(sys.executable).parent
_ANY_PORTS = {f"SHOAL_{name}_PORT": "0" for name in ("HTTP", "GRPC", "METRICS")}
_LISTENING = re.compile(r"listening url=http://[\d.]+:(\d+) grpc_port=(\d+) metrics_port=(\d+)")


def clean_environment() -> dict[str, str]:
    """This process's variables without those that would change what `shoal` and `make` do."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "MAKE", "MFLAGS"))}


class Terminal:
    """Runs the commands of one page in a directory of its own, which looks like a checkout after `make run`.

    A server gets free ports from the environment, so its command stays as written; in the commands that speak to it the
    default ports are replaced.

    Attributes:
        directory: Where the commands run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._server: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ports: dict[str, str] = {}

    def __enter__(self) -> Self:
        (self.directory / ".venv").symlink_to(_PROGRAMS.parent)
        for name in (".cache", "Makefile"):
            (self.directory / name).symlink_to(ROOT / name)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, script: str) -> str:
        """What the script prints. A script that fails, fails the test."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._here(script)],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{script}exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, command: str, until: str) -> str:
        """Start a server and leave it running in place of an earlier one; what it says up to a line with `until`."""
        self.stop()
        self._lines.clear()
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        said = self._wait_for(until)
        found = _LISTENING.search(said)
        assert found is not None, said
        self._ports = {"8000": found[1], "8001": found[2], "8002": found[3]}
        return re.sub(r":\d{4,5}\b", ":8000", said)

    def stop(self) -> None:
        """Press Ctrl-C in the first terminal."""
        if self._server is None or self._reader is None:
            return
        self._server.send_signal(signal.SIGINT)
        try:
            code = self._server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            raise
        finally:
            self._reader.join()
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None
        assert code == 0, "".join(self._lines)

    def _here(self, script: str) -> str:
        return re.sub(r"(?<=127\.0\.0\.1:)(800[012])\b", lambda port: self._ports.get(port[0], port[0]), script)

    def _environment(self) -> dict[str, str]:
        kept = clean_environment()
        url = f"http://127.0.0.1:{self._ports.get('8000', '8000')}"
        path = f"{_PROGRAMS}{os.pathsep}{kept['PATH']}"
        return {**kept, "PATH": path, **_ANY_PORTS, "SHOAL_URL": url}

    def _read(self) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        for line in self._server.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def _wait_for(self, text: str) -> str:
        assert self._reader is not None
        reader = self._reader
        with self._changed:
            found = self._changed.wait_for(
                lambda: any(text in line for line in self._lines) or not reader.is_alive(), PATIENCE_S
            )
            said = "".join(self._lines)
        assert found, f"waited in vain for {text!r}:\n{said}"
        assert text in said, f"the server ended without {text!r}:\n{said}"
        return said
