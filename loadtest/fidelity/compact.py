"""`python -m loadtest.fidelity.compact FILE... FOLDER`: write traces four times smaller, as the suite keeps them.

`requests` and `batches` become columns, the first one in steps; all else stays. Gzipped without a time stamp, so that
equal traces give equal files.
"""

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path


def compact(text: str) -> bytes:
    """A trace as rows -> the same as gzipped columns."""
    trace = json.loads(text)
    trace.pop("request_columns", None)
    trace.pop("batch_columns", None)
    sent_us, latency_us, status = _columns(trace["requests"])
    trace["requests"] = {"arrival_step_us": _steps(sent_us), "latency_us": latency_us, "http_status": status}
    start_us, end_us, rows = _columns(trace["batches"])
    duration_us = [end - start for start, end in zip(start_us, end_us, strict=True)]
    trace["batches"] = {"start_step_us": _steps(start_us), "duration_us": duration_us, "rows": rows}
    return gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), compresslevel=9, mtime=0)


def _columns(rows: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*sorted(rows), strict=True)]


def _steps(values: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in zip([0, *values], values, strict=False)]


def main(arguments: Sequence[str]) -> int:
    """Compact files into a folder."""
    *sources, folder = map(Path, arguments)
    for source in sources:
        (folder / f"{source.name.removesuffix('.json')}.json.gz").write_bytes(compact(source.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
