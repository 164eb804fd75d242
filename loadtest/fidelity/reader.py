"""Reads a recorded run from a file.

A trace is one JSON object, plain or gzipped; tests/fidelity/README.md lists its fields. `requests` and `batches` are
lists of rows, or objects of columns whose first column holds the steps from value to value (smaller after gzip).
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    RootModel,
    ValidationError,
)

from loadtest.fidelity.errors import UnknownServerError, UnreadableTraceError
from loadtest.fidelity.recordings import IntTable, Recording
from loadtest.fidelity.traces import BatchingConfig, Server, Trace

_GZIP_MAGIC = b"\x1f\x8b"
_MILLISECOND_US = 1_000


def read(path: Path) -> Trace:
    """Read one trace.

    Raises:
        UnreadableTraceError: It is not one.
        UnknownServerError: It is, of a server without a policy here.
    """
    source = str(path)
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
        return _trace(TraceFile.model_validate_json(text), source)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableTraceError(source, f"cannot be read ({error})") from error
    except ValidationError as error:
        raise UnreadableTraceError(source, _first_complaint(error)) from error


def _trace(recorded: "TraceFile", source: str) -> Trace:
    server = recorded.server.split("_")[0]
    known = [server.value for server in Server]
    if server not in known:
        raise UnknownServerError(source, recorded.server, known)
    settings = _Triton if server == Server.TRITON.value else _Window
    try:
        recording = Recording.of(_request_table(recorded.requests), _batch_table(recorded.batches))
        config = settings.model_validate({"batching_config": recorded.batching_config}).neutral()
        _check(recording, config)
    except ValidationError:  # a ValueError too, but one that knows the place
        raise
    except (ValueError, OverflowError) as error:
        raise UnreadableTraceError(source, str(error)) from error
    return Trace(
        case=recorded.case,
        server=Server(server),
        config=config,
        clients=recorded.load.closed_loop_clients,
        service_model=recorded.service_model,
        mean_queue_ms=recorded.mean_queue_ms_server,
        recording=recording,
    )


def _check(recording: Recording, config: BatchingConfig) -> None:
    sizes = {
        "recorded batch": int(recording.batches[:, 2].max()),
        "preferred size": max(config.preferred_rows, default=0),
    }
    for what, rows in sizes.items():
        if rows > config.max_batch_rows:
            raise ValueError(f"a {what} has {rows} rows, expected at most the largest batch, {config.max_batch_rows}")


def _first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the content"
    return f"{place} is not what a trace has there ({first['msg']})"


# The parts of the file


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Rows(RootModel[list[tuple[float, float, int]]]):
    """Rows as recorded: arrival_us, latency_us, http_status, or start_us, end_us, rows."""


class RequestSteps(_Part):
    """Requests by column; `arrival_step_us` counts from the arrival before."""

    arrival_step_us: list[int]
    latency_us: list[int]
    http_status: list[int]


class BatchSteps(_Part):
    """Batches by column; `start_step_us` counts from the start before."""

    start_step_us: list[int]
    duration_us: list[int]
    rows: list[int]


class _Load(_Part):
    closed_loop_clients: PositiveInt | None = None


class TraceFile(_Part):
    """The whole file, as far as it is used."""

    server: str
    case: str
    load: _Load
    service_model: str = ""
    batching_config: dict[str, object]
    mean_queue_ms_server: NonNegativeFloat | None = None
    requests: RequestSteps | _Rows
    batches: BatchSteps | _Rows


def _request_table(part: RequestSteps | _Rows) -> IntTable:
    if isinstance(part, _Rows):
        return _row_table(part)
    return _column_table(part.arrival_step_us, part.latency_us, part.http_status)


def _batch_table(part: BatchSteps | _Rows) -> IntTable:
    if isinstance(part, _Rows):
        return _row_table(part)
    table = _column_table(part.start_step_us, part.duration_us, part.rows)
    table[:, 1] += table[:, 0]
    return table


def _column_table(steps: list[int], *others: list[int]) -> IntTable:
    if any(len(column) != len(steps) for column in others):
        lengths = [len(column) for column in (steps, *others)]
        raise ValueError(f"columns have {lengths} values, expected the same number in each")
    return np.array([np.cumsum(steps), *others], dtype=np.int64).T


def _row_table(part: _Rows) -> IntTable:
    return np.rint(np.array(part.root, dtype=np.float64).reshape(-1, 3)).astype(np.int64)


# Configurations of the servers, in their own words


class _QueuePolicy(_Part):
    timeout_action: str | int = "REJECT"
    default_timeout_microseconds: NonNegativeInt = 0
    max_queue_size: NonNegativeInt = 0


class _DynamicBatching(_Part):
    preferred_batch_size: list[PositiveInt] = []
    max_queue_delay_microseconds: NonNegativeInt = 0
    preserve_ordering: bool = False
    priority_levels: NonNegativeInt = 0
    default_queue_policy: _QueuePolicy | None = None


class _InstanceGroup(_Part):
    count: NonNegativeInt = 1


class _TritonConfig(_Part):
    max_batch_size: NonNegativeInt = 0
    dynamic_batching: _DynamicBatching | None = None
    instance_group: list[_InstanceGroup] | None = None


class _Triton(_Part):
    batching_config: _TritonConfig

    def neutral(self) -> BatchingConfig:
        config = self.batching_config
        batching = config.dynamic_batching or _DynamicBatching()
        late = batching.default_queue_policy or _QueuePolicy()
        return BatchingConfig(
            max_batch_rows=max(config.max_batch_size, 1),
            delay_us=batching.max_queue_delay_microseconds,
            instances=sum(group.count for group in config.instance_group or ()) or 1,
            batches=config.dynamic_batching is not None and config.max_batch_size > 1,
            preferred_rows=tuple(sorted(batching.preferred_batch_size)),
            queue_limit_requests=late.max_queue_size,
            timeout_us=late.default_timeout_microseconds,
            delays_late=late.timeout_action in ("DELAY", 1),
            priority_levels=batching.priority_levels,
            preserve_ordering=batching.preserve_ordering,
        )


class _WindowConfig(_Part):
    batch_size: PositiveInt = Field(default=1, validation_alias=AliasChoices("batch_size", "max_batch_size"))
    delay_ms: NonNegativeFloat = Field(
        default=0, validation_alias=AliasChoices("delay_ms", "max_batch_delay_ms", "maxBatchDelay", "max_wait_time")
    )
    job_queue_size: NonNegativeInt = 0
    workers: PositiveInt = Field(default=1, validation_alias=AliasChoices("workers", "minWorkers", "num"))


class _Window(_Part):
    batching_config: _WindowConfig

    def neutral(self) -> BatchingConfig:
        config = self.batching_config
        return BatchingConfig(
            max_batch_rows=config.batch_size,
            delay_us=round(config.delay_ms * _MILLISECOND_US),
            instances=config.workers,
            batches=config.batch_size > 1,
            queue_limit_requests=config.job_queue_size,
        )
