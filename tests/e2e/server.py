"""A real `shoal serve` process on loopback ports, for tests that speak to it over sockets."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

PATIENCE_S = 20
ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "gateway")

Labels = dict[str, str]


def wait_until(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    """Ask again and again; each call of the condition is a round trip and so paces the loop."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {within_s} s in vain for {what}")


class Server:
    """A process that is serving inside the block, and gone after it.

    Args:
        flags: Further flags of `shoal serve`. The ports are free ones, the log is JSON.
        wait: Until all models have been tried, not only until it listens.

    Attributes:
        url: Base URL of the HTTP port.
        grpc_port: The port of gRPC; 0 if there is none.
        client: An HTTP client of it, which does not raise for any status.
    """

    def __init__(self, *flags: str, wait: bool = True) -> None:
        self._flags = flags
        self._wait = wait
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self.url = ""

    def __enter__(self) -> Self:
        ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--log-format=json", "--drain-lead-secs=0")
        self._process = subprocess.Popen(
            [*COMMAND, "serve", *ports, *self._flags], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            listening = self.logged("listening")
            if self._wait:
                self.logged("started")
        except BaseException:
            self.__exit__()
            raise
        self.url = listening["url"]
        self.grpc_port = int(listening["grpc_port"] or 0)
        self.metrics_url = f"http://127.0.0.1:{listening['metrics_port']}/metrics"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        if self.url:
            self.client.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Everything that it wrote to standard error so far."""
        with self._changed:
            return "".join(self._lines)

    def logged(self, message: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The first log line with this message, as soon as it is there."""

        def find() -> dict[str, Any] | None:
            entries: list[dict[str, Any]] = [json.loads(line) for line in self._lines if line.startswith("{")]
            return next((entry for entry in entries if entry["message"] == message), None)

        with self._changed:
            self._changed.wait_for(lambda: find() or self._ended, within_s)
            found = find()
        if found is None:
            raise AssertionError(f"the server did not log {message!r}; it logged:\n{self.log}")
        return found

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def exit_code(self, within_s: float = PATIENCE_S) -> int:
        """Wait for the end of the process."""
        return self._process.wait(within_s)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def listeners(self) -> int:
        """Listening sockets on the HTTP port that this very process holds."""
        held = set()
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                held.add(str(entry.readlink()))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(
            row[1].endswith(f":{self.port:04X}") and row[3] == "0A" and f"socket:[{row[9]}]" in held for row in rows
        )

    def peak_memory_kib(self, *, forget: bool = False) -> int:
        """The most memory that the process has held since the last call with `forget`."""
        if forget:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

    def stats(self, model: str) -> dict[str, Any]:
        """The v2 statistics of a model's only version."""
        (entry,) = self.client.get(f"/v2/models/{model}/stats").json()["model_stats"]
        return dict(entry)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name and at least these labels."""
        return sum(value for found, value in self.samples(name) if labels.items() <= found.items())

    def samples(self, name: str) -> list[tuple[Labels, float]]:
        """All samples with this name; of a counter with or without the suffix that the parser adds."""
        text = httpx.get(self.metrics_url, trust_env=False).text
        names = {name, f"{name}_total"}
        families = text_string_to_metric_families(text)
        return [(s.labels, s.value) for family in families for s in family.samples if s.name in names]
