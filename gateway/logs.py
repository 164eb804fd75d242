"""Log lines for people (text) or machines (JSON). Fields are passed as ``extra={"fields": {...}}``."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson
from typing_extensions import override


class TextFormatter(logging.Formatter):
    """``12:00:00.000 INFO message key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%H:%M:%S")

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


def configure(log_format: Literal["text", "json"], *, verbose: bool) -> None:
    """Send all log lines of the process to standard error in one format."""
    handler = StandardError()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    # What they say at INFO, this program says itself; and those that speak to object stores show more than they should.
    for noisy in ("uvicorn", "httpx", "httpcore", "PIL", "botocore", "aiobotocore", "s3fs", "gcsfs", "adlfs", "azure"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
