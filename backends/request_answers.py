"""Answers to the requests of one batch where they do not make one dense batch.

An executor answers with one tensor for each output, for all rows. Code that is handed requests one by one may answer
them with rows of different shapes, with different outputs, or some of them with an error. Then what `join_answers`
makes of it is still a mapping of arrays, which crosses to another process like any other: under names of their own, the
tensors of each request, and a table that says whose they are. `split_answers` takes it apart again.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import orjson

from backends.errors import ExecutionError, WrongRowsError
from backends.failures import Failure
from models.inference import Array, Tensors
from models.response_rows import joined

Answer = Tensors | ExecutionError
"""Of one request; each tensor has the request's rows, where there is a batch dimension."""

_TABLE = "\x00answers"
"""BYTES, an element a request: its rows as JSON, and its error or null."""


def join_answers(answers: Sequence[Answer], rows: Sequence[int], executed_rows: int) -> Tensors:
    """What an executor returns for a batch.

    Args:
        answers: In the order of the batch, at least one.
        rows: Of each request.
        executed_rows: Rows of the batch, padding at its end included.

    Raises:
        ExecutionError: That of the only request.
    """
    first = answers[0]
    if len(answers) == 1 and isinstance(first, ExecutionError):
        raise first
    tensors = [answer for answer in answers if not isinstance(answer, ExecutionError)]
    if len(tensors) < len(answers) or len({_layout(answer) for answer in tensors}) > 1:
        return _parcel(answers, rows)
    padding = executed_rows - sum(rows)
    if len(tensors) == 1 and not padding:
        return tensors[0]
    return {name: _dense([answer[name] for answer in tensors], padding) for name in tensors[0]}


def are_split(outputs: Tensors) -> bool:
    """Whether these are answers to single requests."""
    return _TABLE in outputs


def split_answers(outputs: Tensors, rows: Sequence[int]) -> list[Answer]:
    """The answers to the payloads of a batch, of outputs that `are_split`.

    Args:
        outputs: As the executor returned them.
        rows: Of each payload, in order; 1 without batch dimension. A request that was cut may be several payloads.

    Raises:
        WrongRowsError: The answers are not for so many rows.
    """
    pieces = _pieces(outputs)
    found_rows = sum(count for count, _ in pieces)
    if found_rows != sum(rows):
        raise WrongRowsError(output="", expected_rows=sum(rows), found_rows=found_rows)
    return [_joined(parts) for parts in _dealt(pieces, rows)]


def _layout(answer: Tensors) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, array.shape[1:]) for name, array in answer.items())


def _dense(arrays: Sequence[Array], padding: int) -> Array:
    repeated = [arrays[-1][-1:]] * padding
    return np.concatenate([*arrays, *repeated])


def _parcel(answers: Sequence[Answer], rows: Sequence[int]) -> Tensors:
    table = np.empty(len(answers), np.object_)
    tensors: dict[str, Array] = {_TABLE: table}
    for index, (answer, count) in enumerate(zip(answers, rows, strict=True)):
        failure = None
        if isinstance(answer, ExecutionError):
            failure = Failure.of(answer, ExecutionError)
        else:
            tensors.update({_hidden(index, name): array for name, array in answer.items()})
        table[index] = orjson.dumps([count, failure])
    return tensors


def _hidden(index: int, name: str) -> str:
    return f"\x00{index}:{name}"


def _pieces(outputs: Tensors) -> list[tuple[int, Answer]]:
    """Each answer with its number of rows."""
    table = outputs[_TABLE].tolist()
    tensors: list[dict[str, Array]] = [{} for _ in table]
    for hidden, array in outputs.items():
        if hidden != _TABLE:
            index, _, name = hidden[1:].partition(":")
            tensors[int(index)][name] = array
    return [_piece(element, own) for element, own in zip(table, tensors, strict=True)]


def _piece(element: bytes, tensors: Tensors) -> tuple[int, Answer]:
    count, failure = orjson.loads(element)
    if failure is None:
        return count, tensors
    error = Failure(**failure).error()
    return count, error if isinstance(error, ExecutionError) else ExecutionError(str(error))


def _dealt(pieces: Iterable[tuple[int, Answer]], rows: Sequence[int]) -> Iterator[list[Answer]]:
    """For each payload the parts of answers that make up its rows: nearly always one whole answer. There are enough."""
    remaining = iter(pieces)
    left, answer = next(remaining)
    for count in rows:
        parts: list[Answer] = []
        missing = count
        while missing:
            if not left:
                left, answer = next(remaining)
            taken = min(left, missing)
            part, answer = _cut(answer, taken) if taken < left else (answer, answer)
            parts.append(part)
            left, missing = left - taken, missing - taken
        yield parts


def _cut(answer: Answer, rows: int) -> tuple[Answer, Answer]:
    """The first rows and the others."""
    if isinstance(answer, ExecutionError):
        return answer, answer
    head, rest = slice(rows), slice(rows, None)
    return {name: array[head] for name, array in answer.items()}, {name: array[rest] for name, array in answer.items()}


def _joined(parts: Sequence[Answer]) -> Answer:
    """One answer, or the first error."""
    tensors: list[Tensors] = []
    for part in parts:
        if isinstance(part, ExecutionError):
            return part
        tensors.append(part)
    return joined(tensors)
