"""What a run gave, recorded or simulated, in the same columns, so that both sides are measured by the same code."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntTable = NDArray[np.int64]

_WARM_UP_US = 2_000_000
_WARM_UP_BATCHES = 20
_WARM_UP_SHARE = 1 / 3  # of a short run, at most
_MILLISECOND_US = 1_000
_SECOND_US = 1_000_000
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Requests and model executions of one run; all times on one clock.

    Attributes:
        requests: Columns sent_us, latency_us, http_status; ascending by sent_us.
        batches: Columns start_us, end_us, rows; ascending by start_us.
    """

    requests: IntTable
    batches: IntTable

    @classmethod
    def of(cls, requests: IntTable, batches: IntTable) -> "Recording":
        """Sort by time. Raises ValueError if a table is empty, a time runs backwards, or nothing was answered."""
        if not len(requests) or not len(batches):
            raise ValueError("requests or batches is empty, expected at least one of each")
        if (requests[:, 1] < 0).any() or (batches[:, 1] < batches[:, 0]).any() or (batches[:, 2] < 1).any():
            raise ValueError("a latency or duration is negative or a batch is empty, expected what a run gives")
        if not (requests[:, 2] == _OK).any():
            raise ValueError("no request has http_status 200, expected some that were answered")
        return cls(
            requests=requests[np.argsort(requests[:, 0], kind="stable")],
            batches=batches[np.argsort(batches[:, 0], kind="stable")],
        )

    @property
    def requests_per_s(self) -> float:
        """Rate at which requests were sent."""
        sent_us = self.requests[:, 0]
        return (len(sent_us) - 1) * _SECOND_US / max(int(sent_us[-1] - sent_us[0]), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is compared; of the run without its start.

    Attributes:
        answers_per_s: Requests answered with success.
        mean_batch_rows: Rows a batch.
        mean_queue_ms: From entering the queue to being taken by an instance, over the *whole* run, or None.
        mean_ms: Mean latency of answered requests.
        p50_ms: Their median.
        p99_ms: Their 99th percentile.
        refused_share: Requests answered with an error, of all.
        histogram: Rows -> batches.
    """

    answers_per_s: float
    mean_batch_rows: float
    mean_queue_ms: float | None
    mean_ms: float
    p50_ms: float
    p99_ms: float
    refused_share: float
    histogram: Mapping[int, int]


def figures(recording: Recording, mean_queue_ms: float | None) -> Figures:
    """Measure a run after its first 2 s or 20 batches, whichever ends first (at most a third of its batches).

    The start is not the policy's: connections are being opened, and clients send before the server listens.
    """
    batches, requests = recording.batches, recording.requests
    first = min(_WARM_UP_BATCHES, int(len(batches) * _WARM_UP_SHARE))
    cut_us = min(int(batches[first, 0]), int(requests[0, 0]) + _WARM_UP_US)
    batches = batches[batches[:, 0] >= cut_us]
    answered_us = requests[:, 0] + requests[:, 1]
    is_ok = requests[:, 2] == _OK
    late = requests[requests[:, 0] >= cut_us] if (requests[is_ok, 0] >= cut_us).any() else requests
    latency_ms = late[late[:, 2] == _OK, 1] / _MILLISECOND_US
    in_time = answered_us[is_ok & (answered_us > cut_us)]
    sizes, counts = np.unique(batches[:, 2], return_counts=True)
    return Figures(
        answers_per_s=len(in_time) * _SECOND_US / max(int(in_time.max()) - cut_us, 1),
        mean_batch_rows=float(batches[:, 2].mean()),
        mean_queue_ms=mean_queue_ms,
        mean_ms=float(latency_ms.mean()),
        p50_ms=float(np.percentile(latency_ms, 50)),
        p99_ms=float(np.percentile(latency_ms, 99)),
        refused_share=float((late[:, 2] != _OK).mean()),
        histogram=dict(zip(sizes.tolist(), counts.tolist(), strict=True)),
    )
