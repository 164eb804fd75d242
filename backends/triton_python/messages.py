"""Requests and responses as code for Triton's python backend knows them."""

import enum
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from typing_extensions import override

from backends.triton_python.parameters import as_json, checked
from backends.triton_python.tensors import Tensor, TritonModelException
from models.inference import Parameter

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


class MemoryType(enum.IntEnum):
    """Where a tensor is."""

    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 2


TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU


class PreferredMemory:
    """Where code would like to have the answer of another model. Kept, and of no effect."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """Of a request; there are no traces here, so it is empty."""

    def get_context(self) -> str | None:
        """The context of OpenTelemetry; always None."""
        return None


class TritonError:
    """An error as an answer. Its code decides the HTTP status that the caller of the model gets.

    Args:
        message: For the caller.
        code: One of the constants of this class.
    """

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def message(self) -> str:
        """Its text."""
        return self._message

    def code(self) -> int:
        """One of the constants of this class."""
        return self._code


class InferenceResponse:
    """The answer to one request.

    Args:
        output_tensors: The outputs; may be empty with an error.
        error: In place of outputs.
        parameters: Of the answer: texts, integers and booleans by name.

    Raises:
        TritonModelException: An output is no `Tensor`, the error no `TritonError`, or a parameter of another type.
    """

    def __init__(
        self,
        output_tensors: Sequence[Any] = (),
        error: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        for tensor in output_tensors or ():
            if not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise TritonModelException(f"an output is of type {kind}, expected a pb_utils.Tensor")
        if error is not None and not isinstance(error, TritonError):
            kind = type(error).__name__
            raise TritonModelException(f"the error of a response is of type {kind}, expected a pb_utils.TritonError")
        self._output_tensors: list[Tensor] = list(output_tensors or ())
        self._error: TritonError | None = error
        self.told: Mapping[str, Parameter] = checked(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The outputs."""
        return self._output_tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one."""
        return self._error

    def parameters(self) -> str:
        """Its parameters as JSON."""
        return as_json(self.told)


class InferenceResponseSender:
    """Answers one request, with exactly one response, from whichever thread and also after ``execute`` has returned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._response: InferenceResponse | None = None
        self._is_final = threading.Event()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Answer, or say with the flag COMPLETE_FINAL that the answer was the last one.

        Raises:
            TritonModelException: The request has been answered.
        """
        with self._lock:
            if self._is_final.is_set():
                raise TritonModelException("the final response of this request has been sent before")
            if response is not None and self._response is not None:
                raise TritonModelException(
                    "a second response to one request, expected one: models that stream (decoupled) are not served here"
                )
            if response is not None:
                self._response = response
            if flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL:
                self._is_final.set()

    def is_cancelled(self) -> bool:
        """Whether the caller has given up; it is not known here, so never."""
        return False

    def wait(self) -> InferenceResponse | None:
        """For the server: block until the final response. None: it ended without one."""
        self._is_final.wait()
        return self._response


class ResponseIterator:
    """Of the answers of another model; there are none here."""

    def __init__(self, *_: Any) -> None:
        _refuse_calls("ResponseIterator")


class InferenceRequest:
    """A request; code may make some, and cannot run them here."""

    def __init__(  # noqa: PLR0913, PLR0917 - Triton's signature
        self,
        model_name: str = "",
        requested_output_names: Iterable[str] = (),
        inputs: Sequence[Tensor] = (),
        model_version: int = -1,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: str | Mapping[str, Any] | None = None,
    ) -> None:
        self._model_name = model_name
        self._model_version = model_version
        self._requested_output_names = set(requested_output_names)
        self._inputs = list(inputs)
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._flags = flags
        self._timeout = timeout
        self._preferred_memory = preferred_memory
        self._trace = trace or InferenceTrace()
        self._parameters = as_json(parameters)

    def model_name(self) -> str:
        """The model that it is for."""
        return self._model_name

    def inputs(self) -> list[Tensor]:
        """The inputs that the caller has sent."""
        return self._inputs

    def request_id(self) -> str:
        """The caller's id; empty if none."""
        return self._request_id

    def correlation_id(self) -> int | str:
        """The sequence that the caller says it belongs to; 0 if none."""
        return self._correlation_id

    def flags(self) -> int:
        """Of a sequence: a combination of TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and _END."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set them."""
        self._flags = flags

    def timeout(self) -> int:
        """Microseconds that the caller was willing to wait; 0 if it did not say."""
        return self._timeout

    def parameters(self) -> str:
        """The caller's custom parameters: a JSON object as text."""
        return self._parameters

    def requested_output_names(self) -> set[str]:
        """The outputs that the caller wants: all of them if it named none. A set, as Triton has it."""
        return self._requested_output_names

    def preferred_memory(self) -> PreferredMemory | None:
        """As it was given."""
        return self._preferred_memory

    def trace(self) -> InferenceTrace:
        """Empty: there are no traces here."""
        return self._trace

    def is_cancelled(self) -> bool:
        """Whether the caller has given up; it is not known here, so never."""
        return False

    def set_release_flags(self, flags: int) -> None:
        """Accept the only flag that is possible here. Raises TritonModelException for a request to be called again."""
        if flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException(
                f"release flags are {flags}, expected TRITONSERVER_REQUEST_RELEASE_ALL: a request is not scheduled "
                "a second time here"
            )

    def get_response_sender(self) -> InferenceResponseSender:
        """Raises TritonModelException: only a request that came to ``execute`` can be answered."""
        raise TritonModelException("a request that the model made itself has no response sender")

    def exec(self, decoupled: bool = False) -> NoReturn:  # noqa: ARG002 - Triton's signature
        """Raises TritonModelException: code cannot call other models here."""
        _refuse_calls("InferenceRequest.exec")

    async def async_exec(self, decoupled: bool = False) -> NoReturn:  # noqa: ARG002 - likewise
        """Raises TritonModelException: code cannot call other models here."""
        _refuse_calls("InferenceRequest.async_exec")


class ServedRequest(InferenceRequest):
    """A request on its way through ``execute``."""

    sender: InferenceResponseSender | None = None
    """Made when the code asks for it."""

    @override
    def get_response_sender(self) -> InferenceResponseSender:
        """To answer this request with; then ``execute`` returns None in its place."""
        if self.sender is None:
            self.sender = InferenceResponseSender()
        return self.sender


def _refuse_calls(name: str) -> NoReturn:
    raise TritonModelException(
        f"{name}: calling other models from a model's code is not served; let the caller do it, or use an ensemble"
    )


def load_model(model_name: str, files: Any = None, config: Any = None) -> NoReturn:  # noqa: ARG001 - its signature
    """Raises TritonModelException: code does not control the server."""
    _refuse_control("load_model")


def unload_model(model_name: str, unload_dependents: bool = False) -> NoReturn:  # noqa: ARG001
    """Raises TritonModelException: code does not control the server."""
    _refuse_control("unload_model")


def is_model_ready(model_name: str, model_version: str = "") -> NoReturn:  # noqa: ARG001 - Triton's signature
    """Raises TritonModelException: code does not see other models."""
    _refuse_control("is_model_ready")


def _refuse_control(name: str) -> NoReturn:
    raise TritonModelException(f"{name}: a model's code cannot see or control other models; use the server's HTTP API")
