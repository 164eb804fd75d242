"""Server processes for benchmarks: started, waited for, ended."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def server(arguments: Sequence[str]) -> Iterator[int]:
    """Run ``python -m <arguments>`` until the block ends; yields its port, read from its first line with a URL."""
    process = subprocess.Popen(  # noqa: S603 - our own modules
        [sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        yield _port(process)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    lines = []
    for line in process.stderr:
        lines.append(line)
        url = json.loads(line).get("url") if line.startswith("{") else None
        if url:
            return int(urlsplit(url).port or 0)
    raise RuntimeError(f"the server ended before it listened:\n{''.join(lines)}")


def shoal(*flags: str) -> Sequence[str]:
    """Arguments for a Shoal on any free port, with defaults otherwise."""
    return (
        "gateway", "serve", "--http-port=0", "--metrics-port=0", "--log-format=json", "--drain-lead-secs=0", *flags
    )  # fmt: skip
