"""Hand-made traces, as files and as objects."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.fidelity.recordings import Recording
from loadtest.fidelity.traces import BatchingConfig, Server, Trace

TRACES = Path(__file__).parent / "traces"
WORDS = "sleep 6000 us + 1200 us per row, no CPU"
REQUESTS = [[0, 9_000, 200], [1_000, 10_000, 200], [12_000, 500, 503]]
BATCHES = [[500, 8_900, 2]]


def content(**changes: Any) -> dict[str, Any]:
    """A valid trace of TorchServe with some fields changed."""
    trace = {
        "server": "torchserve",
        "case": "hand_made",
        "load": {"closed_loop_clients": 2},
        "service_model": WORDS,
        "batching_config": {"batch_size": 8, "max_batch_delay_ms": 5},
        "mean_queue_ms_server": None,
        "requests": REQUESTS,
        "batches": BATCHES,
    }
    return trace | changes


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(content(**changes)))
    return path


def recording(requests: list[tuple[int, int, int]], batches: list[tuple[int, int, int]]) -> Recording:
    return Recording.of(np.array(requests), np.array(batches))


def steady(batches: int, rows: int, every_us: int, lasts_us: int) -> Recording:
    """Batches of one size at a constant pace; requests are sent 1 ms before their batch starts, answered as it ends."""
    starts_us = [1_000 + every_us * number for number in range(batches)]
    return recording(
        [(start_us - 1_000, 1_000 + lasts_us, 200) for start_us in starts_us for _ in range(rows)],
        [(start_us, start_us + lasts_us, rows) for start_us in starts_us],
    )


def trace(
    server: Server = Server.TRITON,
    clients: int | None = None,
    recorded: Recording | None = None,
    words: str = WORDS,
    **config: Any,
) -> Trace:
    return Trace(
        case="hand_made",
        server=server,
        config=BatchingConfig(**({"max_batch_rows": 32, "delay_us": 5_000} | config)),
        clients=clients,
        service_model=words,
        mean_queue_ms=None,
        recording=recorded or steady(30, 1, 20_000, 7_200),
    )
