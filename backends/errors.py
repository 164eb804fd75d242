"""What can go wrong while executing.

BackendError
├── LoadError            a model cannot be made ready
├── ExecutionError       running a batch failed
│   ├── WrongRowsError   the model answered another number of rows than it was given
│   ├── NonFiniteError   the answer holds NaN or infinite numbers, and the model's author wants none
│   ├── CodeError        the model's code answered a request with an error of its own; one class a code of Triton
│   ├── PredictionError  a handler of TorchServe refused, with an HTTP status of its choice
│   ├── OutOfMemoryError the device's memory did not suffice; a smaller batch may
│   └── DeviceFaultError the device is unusable for this process, whatever is run next
├── WorkerLostError      the worker process died, or hung and was ended, while a batch was in it
├── NoInstanceError      no instance of the model works any more
├── InstanceClosedError  the instance is stopped or stopping
└── ExportError          a model version cannot be written, or is not worth writing
"""

import copyreg
from typing import Any

from typing_extensions import override


class BackendError(Exception):
    """Base of all errors of this package. Instances survive copying and pickling, whatever their constructors."""

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class LoadError(BackendError):
    """A model cannot be made ready to run."""


class ExecutionError(BackendError):
    """Running a batch failed; all its members are answered with this error."""


class WrongRowsError(ExecutionError):
    """The model answered another number of rows than it was given, so that nobody's answer can be told."""

    def __init__(self, *, output: str, expected_rows: int, found_rows: int) -> None:
        super().__init__(f"output '{output}' has {found_rows} rows for a batch of {expected_rows}")
        self.output = output
        self.expected_rows = expected_rows
        self.found_rows = found_rows


class NonFiniteError(ExecutionError):
    """The answer to a request holds NaN or infinite numbers; others of its batch are not affected."""


class CodeError(ExecutionError):
    """The model's code answered this request with an error of its own; others of its batch are not affected."""


class CodeUnknownError(CodeError):
    """Something is wrong, the model's code does not say what."""


class CodeInvalidArgumentError(CodeError):
    """The request is at fault, says the model's code."""


class CodeNotFoundError(CodeError):
    """Something that the request names does not exist, says the model's code."""


class CodeAlreadyExistsError(CodeError):
    """Something that the request would make exists, says the model's code."""


class CodeUnsupportedError(CodeError):
    """The request asks for something that is not done here, says the model's code."""


class CodeUnavailableError(CodeError):
    """The model's code cannot answer now and may later."""


class CodeCancelledError(CodeError):
    """The model's code has given the request up."""


class PredictionError(ExecutionError):
    """A handler of TorchServe has refused, with an HTTP status of its choice.

    Attributes:
        status: 400 to 599.
    """

    def __init__(self, message: str, *, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class OutOfMemoryError(ExecutionError):
    """The device's memory did not suffice for the batch; the next one, or a smaller one, may succeed."""


class DeviceFaultError(ExecutionError):
    """The device's context is broken (illegal access, assertion on the device, ECC): only a new process helps."""


class WorkerLostError(BackendError):
    """The worker process ended, or was ended because it hung, before it answered; says which and why.

    Attributes:
        blames_batch: The way it ended (a crash, an exit, an endless step) points at what was running in it: run
            elsewhere, it would end the next worker.
    """

    def __init__(self, message: str, *, blames_batch: bool = False) -> None:
        super().__init__(message)
        self.blames_batch = blames_batch


class NoInstanceError(BackendError):
    """No instance of the model works any more; says since when and why. The server keeps trying to replace them."""


class InstanceClosedError(BackendError):
    """The instance is stopped or stopping and takes no more batches."""


class ExportError(BackendError):
    """A model version cannot be written, or misses what was asked of it; nothing was written."""
