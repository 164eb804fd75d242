"""Whose rows are whose: a hidden input says for every row of a batch which request it came with.

Code that is handed requests one by one (Triton's python models) needs their borders, ids and parameters, and executors
get one dense batch. So each request of such a model brings one more BYTES input, one element a row. It is gathered,
cut and padded like any other input, and read again where the batch is taken apart.

An element is the row's number within its request, a blank, and what is to be told of the request as JSON. Rows of one
request follow each other and count up; a padding row repeats the row before it and so is told apart.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import orjson

from models.errors import InvalidRequestError
from models.inference import Array, InferRequest, Parameter, Tensors

REQUEST_INPUT = "\x00request"
"""Name of the hidden input; no config.pbtxt declares one like it."""

_MAX_BYTES = 65_536
_NUMBERS = itertools.count()  # two requests of one batch never look the same


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """What code may ask of a request, besides its tensors.

    Attributes:
        request_id: The caller's id; empty if none.
        parameters: Custom parameters.
        timeout_us: Time that the caller was willing to wait, or 0.
        outputs: Names of the wanted outputs, in order; empty means all.
        sequence_id: Which sequence the request belongs to; 0 or an empty text means none.
        sequence_start: Whether it is the first of its sequence.
        sequence_end: Whether it is the last of its sequence.
    """

    request_id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    timeout_us: int = 0
    outputs: tuple[str, ...] = ()
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False

    @staticmethod
    def of(request: InferRequest) -> "RequestInfo":
        """What a request says of itself."""
        return RequestInfo(
            request_id=request.request_id,
            parameters=request.parameters,
            timeout_us=(request.timeout_ns or 0) // 1_000,
            outputs=request.outputs,
            sequence_id=request.sequence_id,
            sequence_start=request.sequence_start,
            sequence_end=request.sequence_end,
        )


class RequestRows(NamedTuple):
    """One request of a batch: its rows are ``first`` up to, not including, ``end``."""

    info: RequestInfo
    first: int
    end: int


def attach(inputs: Tensors, rows: int, info: RequestInfo | None = None) -> Tensors:
    """The inputs of one request and the hidden one. Every request of a batch needs it, or none.

    Args:
        inputs: Of one request; not modified.
        rows: Of the request; 1 for a model without batch dimension.
        info: What is to be told of the request; by default nothing.

    Raises:
        InvalidRequestError: Id and parameters take up too much, for they are repeated in each row; or they are no text
            or number that JSON has.
    """
    try:
        told = orjson.dumps([next(_NUMBERS), info or RequestInfo()])
    except orjson.JSONEncodeError as error:  # half a character in a text, an integer beyond 64 bits
        raise InvalidRequestError(f"id and parameters of the request cannot be handed on: {error}") from None
    if len(told) > _MAX_BYTES:
        raise InvalidRequestError(
            f"id and parameters of the request take up {len(told)} bytes as JSON, expected at most {_MAX_BYTES}; "
            "send large values as an input"
        )
    elements = np.empty(rows, np.object_)
    for row in range(rows):
        elements[row] = b"%d %b" % (row, told)
    return {**inputs, REQUEST_INPUT: elements}


def requests_of(inputs: Tensors, rows: int) -> tuple[Tensors, Sequence[RequestRows]]:
    """Take a batch apart.

    Args:
        inputs: Of the batch, as executors get them.
        rows: Of the batch, padding included.

    Returns:
        The inputs without the hidden one, and the requests in order. Padding rows are in none of them. A batch without
        the hidden input is one request with all rows.
    """
    elements = inputs.get(REQUEST_INPUT)
    if elements is None:
        return inputs, (RequestRows(RequestInfo(), 0, rows),)
    visible = {name: array for name, array in inputs.items() if name != REQUEST_INPUT}
    return visible, tuple(_read(elements))


def _read(elements: Array) -> list[RequestRows]:
    found: list[RequestRows] = []
    last, last_number = b"", -1
    for row, element in enumerate(elements.tolist()):
        number, _, told = element.partition(b" ")
        if told != last:
            found.append(RequestRows(_info(told), row, row + 1))
        elif int(number) == last_number + 1:
            found[-1] = found[-1]._replace(end=row + 1)
        else:  # padding, up to the end of the batch
            break
        last, last_number = told, int(number)
    return found


def _info(told: bytes) -> RequestInfo:
    fields = orjson.loads(told)[1]
    return RequestInfo(**{**fields, "outputs": tuple(fields["outputs"])})
