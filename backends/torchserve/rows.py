"""From elements of the input to the rows of a handler, and from its answers to elements of the output."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from backends.errors import ExecutionError, PredictionError, WrongRowsError
from backends.request_answers import join_answers
from backends.torchserve.context import RequestProcessor
from models.errors import MalformedRequestError
from models.handler_rows import Field, HandlerResponse, HandlerRow, decode_row, encode_response
from models.inference import Array, Tensors

logger = logging.getLogger(__name__)

STATUSES_OF_ERRORS = range(400, 600)
_ALONE = ("describe", "explain")


class RowReader:
    """Reads rows after TorchServe's rules: JSON is parsed, text decoded, everything else stays a `bytearray`.

    Args:
        decodes: Otherwise all values stay bytes, as with TorchServe's ``decode_input_request=false``.
    """

    def __init__(self, *, decodes: bool = True) -> None:
        self._decodes = decodes
        self._has_warned = False

    def read(self, elements: Sequence[bytes]) -> "list[Request | PredictionError]":
        """The requests of a batch; an envelope that is none is an error, as a value: the others go on."""
        return [self._request(element) for element in elements]

    def value(self, field: Field) -> Any:
        """What a handler is given for a field; what cannot be decoded stays bytes, with one warning in the log."""
        kind = (field.content_type or "").partition(";")[0].strip()
        try:
            if self._decodes and kind == "application/json":
                return json.loads(str(field.value, "utf-8"))
            if self._decodes and kind.startswith("text"):
                return str(field.value, "utf-8")
        except (ValueError, RecursionError) as error:
            if not self._has_warned:
                self._has_warned = True
                text = "a value of type %s cannot be decoded (%s), its bytes go to the handler; told once"
                logger.warning(text, kind, type(error).__name__)
        return bytearray(field.value)

    def _request(self, element: bytes) -> "Request | PredictionError":
        try:
            return Request(decode_row(element), self)
        except MalformedRequestError as error:
            return PredictionError(str(error), status=400)


class Request:
    """One request of a batch.

    Attributes:
        request_id: The caller's, or one that is made up.
        values: What the handler gets.
        processor: The headers, and what the handler says of the answer.
    """

    def __init__(self, row: HandlerRow, reader: RowReader) -> None:
        self._is_plain = row.is_plain
        self.request_id = row.request_id or str(uuid4())
        self.values: Mapping[str, Any] = {name: reader.value(field) for name, field in row.fields.items()}
        described = {name: {"content-type": field.content_type or ""} for name, field in row.fields.items()}
        self.processor = RequestProcessor({**described, **row.headers})

    @property
    def is_asked_alone(self) -> bool:
        """A handler looks for these headers at the first request of a batch, and answers that one only."""
        return any(self.processor.get_request_property(header) == "True" for header in _ALONE)

    def element(self, answer: object) -> bytes | ExecutionError:
        """The handler's answer as the request came: plain, or in an envelope.

        A plain answer has no place for a status: where the handler has set that of an error, it becomes one.
        """
        body = _body(answer)
        if isinstance(body, ExecutionError):
            return body
        if not self._is_plain:
            return _enveloped(self.processor.response(body))
        status = self.processor.get_response_status_code()
        return PredictionError(body.decode(errors="replace"), status=status) if status in STATUSES_OF_ERRORS else body


def answers_of(requests: Sequence[Request], found: object) -> Sequence[bytes | ExecutionError]:
    """The elements that a handler's return value is; an answer that cannot be sent is an error, as a value.

    Raises:
        ExecutionError: It is no list.
        WrongRowsError: It has not one answer for each request.
    """
    if not isinstance(found, list):
        kind = "None" if found is None else f"a value of type {type(found).__name__}"
        raise ExecutionError(f"the handler returned {kind}, expected a list with one answer for each request")
    if len(found) != len(requests):
        raise WrongRowsError(output="response", expected_rows=len(requests), found_rows=len(found))
    return [request.element(answer) for request, answer in zip(requests, found, strict=True)]


def joined(name: str, elements: Sequence[bytes | ExecutionError]) -> Tensors:
    """The answer to a batch, of shape (rows, 1). Raises the error of the only row."""
    if any(isinstance(element, ExecutionError) for element in elements):
        rows = [each if isinstance(each, ExecutionError) else {name: _column([each])} for each in elements]
        return join_answers(rows, [1] * len(rows), len(rows))
    return {name: _column(elements)}


def _column(elements: Sequence[object]) -> Array:
    column = np.empty((len(elements), 1), np.object_)
    column[:, 0] = elements
    return column


def _enveloped(response: HandlerResponse) -> bytes | ExecutionError:
    try:
        return encode_response(response)
    except TypeError as error:
        return ExecutionError(f"the handler has set a phrase or header that cannot be sent: {error}")


def _body(answer: object) -> bytes | ExecutionError:
    if isinstance(answer, bytes | bytearray):
        return bytes(answer)
    if isinstance(answer, str):
        return _text(answer)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(answer, torch.Tensor):
        # TorchServe sends it as a pickle, which no client should have to load.
        return ExecutionError("the handler answered with a torch.Tensor, expected bytes, str or JSON: use .tolist()")
    try:
        return json.dumps(answer, indent=2).encode()  # ASCII, so that half characters are escaped
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(answer).__name__
        return ExecutionError(f"the handler answered with {kind}, expected bytes, str or JSON: {error}")


def _text(answer: str) -> bytes | ExecutionError:
    try:
        return answer.encode()
    except UnicodeEncodeError as error:
        found = f"the half character {answer[error.start]!a} at its position {error.start}"
        return ExecutionError(f"the handler answered with a str with {found}, expected text that is UTF-8")
