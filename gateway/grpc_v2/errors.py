"""Which gRPC code each error gets. The texts are those of HTTP."""

from collections.abc import Mapping

from grpc import StatusCode

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
from gateway.errors import (
    V2_ERRORS,
    FixedSettingError,
    ForeignRequestError,
    InvalidRegionError,
    InvalidSettingError,
    LogFormatError,
    RegionExistsError,
    RegionFailedError,
    RequestTooLargeError,
    RestrictedError,
    SharedMemoryOffError,
    SlowBodyError,
    TokenError,
    UnknownRegionError,
    UnsupportedEncodingError,
    UnsupportedRequestError,
    explain,
)
from models.errors import (
    ConfigError,
    ControlNotAllowedError,
    ImageError,
    InvalidRequestError,
    LoadFailedError,
    LoadParameterError,
    ModelNotFoundError,
    NotReadyYetError,
    NoVersionError,
    RepositoryError,
    UnknownModelError,
    VersionNotFoundError,
    VersionNotReadyError,
)


class CallError(Exception):
    """Base of the errors that only gRPC has."""


class UnreadableMessageError(CallError):
    """The bytes are not the message that the method takes."""

    def __init__(self) -> None:
        super().__init__("Unable to parse request")


class MessageTooLargeError(CallError):
    """A message that has no tensors is as large as if it had some."""

    def __init__(self, found_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"found a message of {found_bytes} bytes, expected at most {limit_bytes}")


class RestrictedCallError(CallError):
    """The method is kept for those who know a header."""

    def __init__(self, header: str) -> None:
        super().__init__(f"This protocol is restricted, expecting header '{header}'")


class ServerExitingError(CallError):
    """A stream is closed because the server stops."""

    def __init__(self) -> None:
        super().__init__("Server exiting")


CODES: Mapping[type[BaseException], StatusCode] = {
    UnreadableMessageError: StatusCode.INTERNAL,
    MessageTooLargeError: StatusCode.RESOURCE_EXHAUSTED,
    RestrictedCallError: StatusCode.UNAVAILABLE,
    RestrictedError: StatusCode.UNAVAILABLE,
    ServerExitingError: StatusCode.UNAVAILABLE,
    InvalidRequestError: StatusCode.INVALID_ARGUMENT,
    RequestTooLargeError: StatusCode.INVALID_ARGUMENT,
    SlowBodyError: StatusCode.UNAVAILABLE,
    UnsupportedEncodingError: StatusCode.UNIMPLEMENTED,
    UnsupportedRequestError: StatusCode.UNIMPLEMENTED,
    ImageError: StatusCode.INVALID_ARGUMENT,
    ModelNotFoundError: StatusCode.NOT_FOUND,
    VersionNotFoundError: StatusCode.NOT_FOUND,
    NoVersionError: StatusCode.NOT_FOUND,
    VersionNotReadyError: StatusCode.UNAVAILABLE,
    NotReadyYetError: StatusCode.UNAVAILABLE,
    QueueFullError: StatusCode.UNAVAILABLE,
    DeadlineExceededError: StatusCode.UNAVAILABLE,
    HopelessError: StatusCode.UNAVAILABLE,
    OverloadedError: StatusCode.UNAVAILABLE,
    SequenceError: StatusCode.INVALID_ARGUMENT,
    TooManyRowsError: StatusCode.INVALID_ARGUMENT,
    ShuttingDownError: StatusCode.UNAVAILABLE,
    BackendError: StatusCode.INTERNAL,
    CodeUnknownError: StatusCode.UNKNOWN,
    CodeInvalidArgumentError: StatusCode.INVALID_ARGUMENT,
    CodeNotFoundError: StatusCode.NOT_FOUND,
    CodeAlreadyExistsError: StatusCode.ALREADY_EXISTS,
    CodeCancelledError: StatusCode.CANCELLED,
    CodeUnsupportedError: StatusCode.UNIMPLEMENTED,
    CodeUnavailableError: StatusCode.UNAVAILABLE,
    PredictionError: StatusCode.INTERNAL,
    OutOfMemoryError: StatusCode.UNAVAILABLE,
    DeviceFaultError: StatusCode.UNAVAILABLE,
    WorkerLostError: StatusCode.UNAVAILABLE,
    NoInstanceError: StatusCode.UNAVAILABLE,
    InstanceClosedError: StatusCode.UNAVAILABLE,
    ConfigError: StatusCode.INTERNAL,
    RepositoryError: StatusCode.INTERNAL,
    PolicyError: StatusCode.INTERNAL,
    TokenError: StatusCode.UNAUTHENTICATED,
    ForeignRequestError: StatusCode.PERMISSION_DENIED,
    SharedMemoryOffError: StatusCode.UNIMPLEMENTED,
    UnknownRegionError: StatusCode.NOT_FOUND,
    RegionExistsError: StatusCode.ALREADY_EXISTS,
    InvalidRegionError: StatusCode.INVALID_ARGUMENT,
    RegionFailedError: StatusCode.INTERNAL,
    InvalidSettingError: StatusCode.INVALID_ARGUMENT,
    FixedSettingError: StatusCode.UNIMPLEMENTED,
    LogFormatError: StatusCode.INVALID_ARGUMENT,
    ControlNotAllowedError: StatusCode.UNAVAILABLE,
    UnknownModelError: StatusCode.INTERNAL,
    LoadFailedError: StatusCode.INVALID_ARGUMENT,
    LoadParameterError: StatusCode.INVALID_ARGUMENT,
}
"""By class; a row covers the subclasses that have none of their own. The bases of the error trees have none."""


def find_code(error_type: type[BaseException]) -> StatusCode | None:
    """The code of the nearest class in the MRO, or None for an error that nobody declared."""
    for ancestor in error_type.__mro__:
        code = CODES.get(ancestor)
        if code is not None:
            return code
    return None


def explain_status(error: BaseException) -> tuple[StatusCode, str]:
    """Code and text of an error; failures of the server are logged, its defects are not shown."""
    text = str(error) if isinstance(error, CallError) else explain(V2_ERRORS, error)[1]
    # Lone surrogates, which no message can hold, become question marks: an error must always be answerable.
    return find_code(type(error)) or StatusCode.INTERNAL, text.encode("utf-8", "replace").decode()
