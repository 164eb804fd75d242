"""What ``execute`` has returned, checked request by request: a wrong response fails its own request only."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from backends.errors import (
    CodeAlreadyExistsError,
    CodeCancelledError,
    CodeError,
    CodeInvalidArgumentError,
    CodeNotFoundError,
    CodeUnavailableError,
    CodeUnknownError,
    CodeUnsupportedError,
    ExecutionError,
)
from backends.python_outputs import checked_output, kind_of
from backends.request_answers import Answer
from backends.triton_python.messages import InferenceResponse, ServedRequest, TritonError
from models.inference import Tensors
from models.response_rows import with_parameters
from models.spec import ModelSpec

_EXPECTED = "expected a list with a pb_utils.InferenceResponse, or None, for each request"
_ERRORS = {
    TritonError.UNKNOWN: CodeUnknownError,
    TritonError.NOT_FOUND: CodeNotFoundError,
    TritonError.INVALID_ARG: CodeInvalidArgumentError,
    TritonError.UNAVAILABLE: CodeUnavailableError,
    TritonError.UNSUPPORTED: CodeUnsupportedError,
    TritonError.ALREADY_EXISTS: CodeAlreadyExistsError,
    TritonError.CANCELLED: CodeCancelledError,
}


def answers_of(
    spec: ModelSpec, instance_name: str, requests: Sequence[ServedRequest], counts: Sequence[int], found: Any
) -> list[Answer]:
    """The answers to the requests of one call. Blocks until those that are answered by senders are.

    Args:
        spec: The model version.
        instance_name: For messages.
        requests: That the code was given.
        counts: Rows of each.
        found: What the code returned; None stands for None in place of each response.

    Raises:
        ExecutionError: It is no list with one entry a request.
    """
    responses = [None] * len(requests) if found is None else found
    if not isinstance(responses, list | tuple):
        raise ExecutionError(f"execute returned {kind_of(found)}, {_EXPECTED}")
    if len(responses) != len(requests):
        raise ExecutionError(
            f"Failed to process the request(s) for model '{instance_name}', message: Number of InferenceResponse "
            "objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:"
            f"{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n"
        )
    answers: list[Answer] = []
    for request, rows, response in zip(requests, counts, responses, strict=True):
        try:
            answers.append(_answer(spec, request, rows, _sent(request) if response is None else response))
        except ExecutionError as error:
            answers.append(error.with_traceback(None))  # which would keep the batch in memory
    return answers


def _sent(request: ServedRequest) -> InferenceResponse:
    if request.sender is None:
        raise ExecutionError(
            "execute returned None for the request and did not ask for its response sender, expected a response"
        )
    response = request.sender.wait()
    if response is None:
        raise ExecutionError("the response sender ended the request without a response, expected exactly one")
    return response


def _answer(spec: ModelSpec, request: ServedRequest, rows: int, response: object) -> Tensors:
    if not isinstance(response, InferenceResponse):
        raise ExecutionError(f"execute returned a response {kind_of(response)}, {_EXPECTED}")
    error = response.error()
    if error is not None:
        raise _ERRORS.get(error.code(), CodeError)(str(error.message()))
    tensors = {tensor.name(): tensor for tensor in response.output_tensors()}
    if len(tensors) < len(response.output_tensors()):
        names = Counter(tensor.name() for tensor in response.output_tensors())
        raise ExecutionError(f"the response has the output '{names.most_common(1)[0][0]}' twice, expected it once")
    declared = {output.name: output for output in spec.outputs}
    wanted = request.requested_output_names()
    outputs = {
        name: checked_output(spec, declared[name], tensor.as_numpy(), rows)
        for name, tensor in tensors.items()  # in the code's order, those that are there and wanted: so does Triton
        if name in wanted
    }
    try:
        return with_parameters(outputs, rows, response.told)
    except TypeError as error:  # half a character in a text, an integer beyond 64 bits
        raise ExecutionError(f"the parameters of the response cannot be handed on: {error}") from None
