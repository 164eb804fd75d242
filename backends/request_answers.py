"""Answers to the requests of one batch where they do not make one dense batch.

An executor answers with one tensor for each output, for all rows. Code that is handed requests one by one may answer
them with rows of different shapes, with different outputs, or some of them with an error. Then what `join_answers`
makes of it is still a mapping of arrays, which crosses to another process like any other: under names of their own, the
tensors of each request, and a table that says whose they are. `split_answers` takes it apart again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from backends.errors import ExecutionError, WrongRowsError
from backends.failures import Failure
from models.inference import Array, Tensors

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
    pieces = list(_pieces(outputs))
    found_rows = sum(count for count, _ in pieces)
    if found_rows != sum(rows):
        raise WrongRowsError(output="", expected_rows=sum(rows), found_rows=found_rows)
    answers: list[Answer] = []
    start = 0
    for count in rows:
        answers.append(_within(pieces, start, start + count))
        start += count
    return answers


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


def _pieces(outputs: Tensors) -> Iterator[tuple[int, Answer]]:
    for index, element in enumerate(outputs[_TABLE].tolist()):
        count, failure = orjson.loads(element)
        if failure is None:
            prefix = _hidden(index, "")
            yield count, {name[len(prefix) :]: array for name, array in outputs.items() if name.startswith(prefix)}
        else:
            error = Failure(**failure).error()
            yield count, error if isinstance(error, ExecutionError) else ExecutionError(str(error))


def _within(pieces: Sequence[tuple[int, Answer]], start: int, end: int) -> Answer:
    """The rows from `start` up to `end`: nearly always those of one piece."""
    parts: list[Tensors] = []
    first = 0
    for count, answer in pieces:
        last = first + count
        if first < end and start < last:
            if isinstance(answer, ExecutionError):
                return answer
            if start <= first and last <= end:
                parts.append(answer)
            else:
                cut = slice(max(start - first, 0), end - first)
                parts.append({name: array[cut] for name, array in answer.items()})
        first = last
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
