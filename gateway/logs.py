"""Log lines for people (text) or machines (JSON). Fields are passed as ``extra={"fields": {...}}``."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import orjson
from typing_extensions import override

_TIMES = "%H:%M:%S"
_NOISY = (
    "PIL", "adlfs", "aiobotocore", "asyncio", "azure", "botocore", "gcsfs", "grpc", "httpcore", "httpx", "s3fs",
    "uvicorn",
)  # fmt: skip


class LogLevels(NamedTuple):
    """What shall be logged.

    Attributes:
        info: Lines of the level INFO.
        warning: Likewise WARNING.
        error: Likewise ERROR.
        verbose: 1 and more: debug lines.
        iso_times: Dates and times as ISO 8601 has them.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: int = 0
    iso_times: bool = False


class TextFormatter(logging.Formatter):
    """``12:00:00.000 INFO message key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", _TIMES)

    def use_iso_times(self, wanted: bool) -> None:
        """Date and time as ISO 8601 has them, or the time alone."""
        self.datefmt = "%Y-%m-%dT%H:%M:%S" if wanted else _TIMES

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        return " ".join([super().formatMessage(record), *(f"{key}={value}" for key, value in fields.items())])


class JsonFormatter(logging.Formatter):
    """One object a line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class StandardError(logging.Handler):
    """Writes to what standard error is at the moment, not to what it was when logging was set up."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as of every handler: logging must not end what is logged
            self.handleError(record)


class _LevelFilter(logging.Filter):
    """Lets lines pass whose level is wanted; what is worse than an error always is."""

    def __init__(self, levels: LogLevels) -> None:
        super().__init__()
        self._unwanted = {
            level
            for level, is_wanted in (
                (logging.INFO, levels.info),
                (logging.WARNING, levels.warning),
                (logging.ERROR, levels.error),
            )
            if not is_wanted
        }

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno not in self._unwanted


def set_levels(levels: LogLevels) -> None:
    """Log these levels from now on, where `configure` said."""
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if levels.verbose else logging.INFO)
    for handler in root.handlers:
        if isinstance(handler, StandardError):
            handler.filters = [_LevelFilter(levels)]
            if isinstance(handler.formatter, TextFormatter):
                handler.formatter.use_iso_times(levels.iso_times)


LogFormat = Literal["text", "json", "default", "ISO8601"]
"""For people or for machines; Triton's words `default` and `ISO8601` are for people, with and without dates."""


def configure(log_format: LogFormat, *, verbose: bool) -> None:
    """Send all log lines of the process to standard error in one format."""
    handler = StandardError()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    # What they say at INFO, this program says itself; and those that speak to object stores show more than they should.
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    set_levels(LogLevels(verbose=int(verbose), iso_times=log_format == "ISO8601"))
