"""What ``import triton_python_backend_utils`` gives to code for Triton's python backend, under the names it knows.

A clean-room re-implementation of the documented names; in a worker process it stands in `sys.modules` under that name
while such a model is loaded. What cannot work here raises `TritonModelException` with a sentence when it is called.
"""

import logging
from collections.abc import Sequence
from typing import Any

from backends.triton_python.messages import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    ResponseIterator,
    TritonError,
    is_model_ready,
    load_model,
    unload_model,
)
from backends.triton_python.metrics import Metric, MetricFamily
from backends.triton_python.model_config import (
    ModelConfig,
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from backends.triton_python.tensors import (
    NUMPY_TO_TRITON_TYPE,
    TRITON_STRING_TO_NUMPY,
    TRITON_TO_NUMPY_TYPE,
    Tensor,
    TritonModelException,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)

__all__ = [
    "NUMPY_TO_TRITON_TYPE",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "TRITON_TO_NUMPY_TYPE",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

_log = logging.getLogger("model")


class Logger:
    """Writes to the server's log, by way of the worker's."""

    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR
    VERBOSE = logging.DEBUG

    @staticmethod
    def log(message: str, level: int = INFO) -> None:
        """Write one line of this level."""
        _log.log(level, "%s", message)

    @staticmethod
    def log_info(message: str) -> None:
        """Write one line."""
        _log.info("%s", message)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a warning."""
        _log.warning("%s", message)

    @staticmethod
    def log_error(message: str) -> None:
        """Write an error."""
        _log.error("%s", message)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a line that is shown at the level DEBUG only."""
        _log.debug("%s", message)


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of this name, or None if the request has none."""
    return _by_name(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of this name, or None. Raises TritonModelException for a response that is an error."""
    error = inference_response.error()
    if error is not None:
        raise TritonModelException(f"the response has no outputs, it is an error: {error.message()}")
    return _by_name(inference_response.output_tensors(), name)


def _by_name(tensors: Sequence[Tensor], name: Any) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.name() == name), None)
