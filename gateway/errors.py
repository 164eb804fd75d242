"""One table a surface: which HTTP status and reason word each error gets.

Errors are looked up along their class's MRO, so a row covers the subclasses that have none of their own. The bases of
the error trees have no row on purpose: a new kind of error must be given one, and a test says so.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backends.errors import (
    BackendError,
    CodeAlreadyExistsError,
    CodeCancelledError,
    CodeInvalidArgumentError,
    CodeNotFoundError,
    CodeUnavailableError,
    CodeUnknownError,
    CodeUnsupportedError,
    DeviceFaultError,
    InstanceClosedError,
    NoInstanceError,
    OutOfMemoryError,
    PredictionError,
    WorkerLostError,
)
from batching.core.errors import (
    DeadlineExceededError,
    HopelessError,
    OverloadedError,
    PolicyError,
    QueueFullError,
    SequenceError,
    ShuttingDownError,
    TooManyRowsError,
)
from models.errors import (
    BrokenImageError,
    ConfigError,
    ControlNotAllowedError,
    ImageTooLargeError,
    InvalidRequestError,
    JsonAccessError,
    LoadFailedError,
    LoadParameterError,
    MalformedRequestError,
    ModelNotFoundError,
    NotClassifierError,
    NotReadyYetError,
    NoVersionError,
    RepositoryError,
    UnknownModelError,
    UnsupportedImageError,
    VersionNotFoundError,
    VersionNotReadyError,
)

_log = logging.getLogger(__name__)


class GatewayError(Exception):
    """Base of the errors of this package: what a surface refuses before the engine is asked."""


class RequestTooLargeError(GatewayError):
    """The request body, or what it unpacks to, is over the limit.

    Attributes:
        limit_bytes: The limit.
    """

    def __init__(self, *, found: str, limit_bytes: int) -> None:
        super().__init__(
            f"Request {found} exceeds the maximum allowed value of {limit_bytes} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
        self.limit_bytes = limit_bytes


class UnsupportedEncodingError(GatewayError):
    """The request body's Content-Encoding is not one that is understood.

    Attributes:
        found: The header's value.
    """

    def __init__(self, found: str) -> None:
        super().__init__("Unsupported compression type")
        self.found = found


class UnsupportedRequestError(GatewayError):
    """The request asks for something that the protocol knows and the server does not do."""


class SlowBodyError(GatewayError):
    """The request body stopped coming.

    Attributes:
        received_bytes: What had come by then.
    """

    def __init__(self, *, received_bytes: int, pause_s: float) -> None:
        super().__init__(f"request body is incomplete: found {received_bytes} bytes, then nothing for {pause_s:g} s")
        self.received_bytes = received_bytes


class TokenError(GatewayError):
    """A verb that changes which models are served, without the token that it needs."""

    def __init__(self) -> None:
        super().__init__("found no valid token, expected the header 'Authorization: Bearer <the control token>'")


class ForeignRequestError(GatewayError):
    """A verb that changes which models are served, sent by a page of another site."""

    def __init__(self, header: str, found: str, expected: str) -> None:
        super().__init__(f"found the header {header}: {found[:256]!r}, expected {expected}")


class RestrictedError(GatewayError):
    """The call needs a header that it does not bring."""

    def __init__(self, header: str) -> None:
        super().__init__(f"This API is restricted, expecting header '{header}'")


class InvalidSettingError(GatewayError):
    """A value that a setting cannot have."""


class FixedSettingError(GatewayError):
    """A setting that cannot be changed while serving."""


class LogFormatError(GatewayError):
    """A form of log lines that is not known."""


class SharedMemoryError(GatewayError):
    """Base of what can be wrong with a client's shared memory."""


class SharedMemoryOffError(SharedMemoryError):
    """Clients may not register shared memory."""

    def __init__(self) -> None:
        super().__init__("Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")


class UnknownRegionError(SharedMemoryError):
    """No region of this name is registered."""


class RegionExistsError(SharedMemoryError):
    """A region of this name is registered already."""


class InvalidRegionError(SharedMemoryError):
    """The bytes that are named are outside the region, or the region outside its shared memory."""


class RegionFailedError(SharedMemoryError):
    """Shared memory that cannot be opened, or that an output does not fit into."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How one kind of error is answered.

    Attributes:
        status: HTTP status code.
        reason: One word for logs, metrics and bodies.
        retry_after_s: Value of Retry-After, or None for no such header.
    """

    status: int
    reason: str
    retry_after_s: int | None = None


ErrorTable = Mapping[type[BaseException], ErrorRow]

INTERNAL = ErrorRow(500, "internal")
"""For defects of the program: the text stays in the log."""

V2_ERRORS: ErrorTable = {
    JsonAccessError: ErrorRow(500, "malformed"),  # as in Triton, where all of these are internal errors
    MalformedRequestError: ErrorRow(400, "malformed"),
    InvalidRequestError: ErrorRow(400, "invalid"),
    NotClassifierError: ErrorRow(400, "not_classifier"),
    RequestTooLargeError: ErrorRow(400, "too_large"),
    SlowBodyError: ErrorRow(408, "slow_body"),
    UnsupportedEncodingError: ErrorRow(501, "unsupported_encoding"),
    UnsupportedRequestError: ErrorRow(501, "unsupported"),
    UnsupportedImageError: ErrorRow(415, "unsupported_image"),
    BrokenImageError: ErrorRow(422, "broken_image"),
    ImageTooLargeError: ErrorRow(413, "image_too_large"),
    ModelNotFoundError: ErrorRow(404, "not_found"),
    VersionNotFoundError: ErrorRow(404, "not_found"),
    NoVersionError: ErrorRow(404, "not_found"),
    VersionNotReadyError: ErrorRow(503, "not_ready"),
    NotReadyYetError: ErrorRow(503, "not_ready"),
    QueueFullError: ErrorRow(503, "queue_full"),
    DeadlineExceededError: ErrorRow(503, "deadline"),
    HopelessError: ErrorRow(503, "deadline"),
    OverloadedError: ErrorRow(503, "overloaded"),
    SequenceError: ErrorRow(400, "sequence"),
    TooManyRowsError: ErrorRow(400, "too_many_rows"),
    ShuttingDownError: ErrorRow(503, "shutting_down"),
    BackendError: ErrorRow(500, "backend"),
    CodeInvalidArgumentError: ErrorRow(400, "code_invalid_argument"),
    CodeNotFoundError: ErrorRow(404, "code_not_found"),
    CodeUnknownError: ErrorRow(400, "code_unknown"),
    CodeAlreadyExistsError: ErrorRow(400, "code_already_exists"),
    CodeCancelledError: ErrorRow(400, "code_cancelled"),
    CodeUnsupportedError: ErrorRow(501, "code_unsupported"),
    CodeUnavailableError: ErrorRow(503, "code_unavailable"),
    PredictionError: ErrorRow(500, "prediction"),  # the error says which status
    OutOfMemoryError: ErrorRow(503, "out_of_memory"),
    DeviceFaultError: ErrorRow(503, "device_fault"),
    WorkerLostError: ErrorRow(503, "worker_lost"),
    NoInstanceError: ErrorRow(503, "no_instance"),
    InstanceClosedError: ErrorRow(503, "instance_closed"),
    ConfigError: ErrorRow(500, "configuration"),
    RepositoryError: ErrorRow(500, "repository"),
    PolicyError: INTERNAL,
    TokenError: ErrorRow(401, "token"),
    ForeignRequestError: ErrorRow(403, "foreign"),
    RestrictedError: ErrorRow(403, "restricted"),
    InvalidSettingError: ErrorRow(400, "invalid_setting"),
    FixedSettingError: ErrorRow(501, "fixed_setting"),
    LogFormatError: ErrorRow(503, "log_format"),
    SharedMemoryOffError: ErrorRow(501, "shared_memory_off"),
    UnknownRegionError: ErrorRow(404, "unknown_region"),
    RegionExistsError: ErrorRow(400, "region_exists"),
    InvalidRegionError: ErrorRow(400, "invalid_region"),
    RegionFailedError: ErrorRow(500, "region_failed"),
    ControlNotAllowedError: ErrorRow(503, "control_mode"),
    UnknownModelError: ErrorRow(500, "unknown_model"),
    LoadFailedError: ErrorRow(400, "load_failed"),
    LoadParameterError: ErrorRow(400, "load_parameter"),
}

CLASSIFY_ERRORS: ErrorTable = {
    **V2_ERRORS,
    JsonAccessError: V2_ERRORS[MalformedRequestError],
    RequestTooLargeError: ErrorRow(413, "too_large"),
    UnsupportedEncodingError: ErrorRow(415, "unsupported_encoding"),
    QueueFullError: ErrorRow(429, "queue_full", retry_after_s=1),
    DeadlineExceededError: ErrorRow(504, "deadline"),
    HopelessError: ErrorRow(429, "deadline", retry_after_s=1),
    OverloadedError: ErrorRow(429, "overloaded", retry_after_s=1),
    TooManyRowsError: ErrorRow(422, "too_many_rows"),
    VersionNotReadyError: replace(V2_ERRORS[VersionNotReadyError], retry_after_s=1),
    NotReadyYetError: replace(V2_ERRORS[NotReadyYetError], retry_after_s=1),
    ShuttingDownError: replace(V2_ERRORS[ShuttingDownError], retry_after_s=1),
    CodeUnknownError: ErrorRow(500, "code_unknown"),
    CodeAlreadyExistsError: ErrorRow(409, "code_already_exists"),
    CodeCancelledError: ErrorRow(499, "code_cancelled"),
    CodeUnavailableError: replace(V2_ERRORS[CodeUnavailableError], retry_after_s=1),
    OutOfMemoryError: replace(V2_ERRORS[OutOfMemoryError], retry_after_s=1),
    DeviceFaultError: replace(V2_ERRORS[DeviceFaultError], retry_after_s=1),
    WorkerLostError: replace(V2_ERRORS[WorkerLostError], retry_after_s=1),
    NoInstanceError: replace(V2_ERRORS[NoInstanceError], retry_after_s=1),
    InstanceClosedError: replace(V2_ERRORS[InstanceClosedError], retry_after_s=1),
    UnknownModelError: ErrorRow(404, "unknown_model"),
}


def explain(table: ErrorTable, error: BaseException) -> tuple[ErrorRow, str]:
    """How to answer an error and what to say; failures of the server are logged, its defects are not shown."""
    row = find_row(table, type(error)) or INTERNAL
    if row is INTERNAL:
        _log.error("request failed by a defect of the server", exc_info=error)
        return row, "internal error"
    if isinstance(error, PredictionError):
        row = replace(row, status=error.status)
    if row.status == INTERNAL.status and not isinstance(error, InvalidRequestError):  # a client's mistake is no news
        _log.warning("request failed: %s", error, extra={"fields": {"reason": row.reason}})
    return row, str(error)


def find_row(table: ErrorTable, error_type: type[BaseException]) -> ErrorRow | None:
    """The row of the nearest class in the MRO, or None for an error that nobody declared."""
    for ancestor in error_type.__mro__:
        row = table.get(ancestor)
        if row is not None:
            return row
    return None
