"""From payloads to one dense batch and back: pure functions on arrays.

`gather` copies every row once at most, `scatter` never copies: answers are views on the batch's outputs.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from backends.errors import ExecutionError, WrongRowsError
from models.inference import Array, Tensors

Allocate = Callable[[str, tuple[int, ...], "np.dtype[Any]"], Array]
"""Memory for a tensor, by its name, shape and element type."""


def _fresh(_name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    return np.empty(shape, dtype)


def rows_of(payload: Tensors) -> int:
    """Length of the batch dimension, which all tensors of a payload share.

    Raises:
        ExecutionError: Two tensors disagree, or there is no tensor with a batch dimension.
    """
    found = {array.shape[:1] for array in payload.values()}
    if len(found) != 1 or () in found:
        shapes = {name: array.shape for name, array in payload.items()}
        raise ExecutionError(f"tensors of one request need the same first dimension, found shapes {shapes}")
    return int(found.pop()[0])


def rows_of_each(batch: Sequence[Tensors]) -> list[int]:
    """`rows_of` of each payload."""
    if set(map(len, batch)) == {1}:  # the commonest, in less than half the time
        arrays = [array for payload in batch for array in payload.values()]
        if all(array.ndim for array in arrays):
            return [len(array) for array in arrays]
    return [rows_of(payload) for payload in batch]


def padded_rows(rows: int, allowed: Sequence[int]) -> int:
    """Rows that the executor is given for a batch of `rows`: the smallest allowed size that holds them.

    Args:
        rows: Rows in the batch.
        allowed: Permitted sizes, ascending; empty means every size.

    Raises:
        ExecutionError: The batch is larger than the largest allowed size.
    """
    if not allowed:
        return rows
    index = bisect_left(allowed, rows)
    if index == len(allowed):
        raise ExecutionError(f"batch has {rows} rows, the largest allowed size is {allowed[-1]}")
    return allowed[index]


def dense(payload: Tensors) -> Tensors:
    """The payload with every tensor contiguous and aligned; arrays that already are stay themselves, uncopied."""
    if all(_is_dense(array) for array in payload.values()):
        return payload
    # Tensors cut out of a request body may start at any byte; engines may assume aligned elements.
    return {
        name: array if _is_dense(array) else np.array(array, order="C", copy=True) for name, array in payload.items()
    }


def gather(
    batch: Sequence[Tensors], rows_per_payload: Sequence[int], executed_rows: int, allocate: Allocate | None = None
) -> Tensors:
    """Join payloads along the batch dimension and pad them to `executed_rows` by repeating the last row.

    Args:
        batch: At least one payload; all with the same names, element types and row shapes, arrays of shape
            (rows of the payload, *row shape). Not modified.
        rows_per_payload: `rows_of` each payload.
        executed_rows: Rows of the result, at least those of the payloads.
        allocate: Memory for the result, in which it then always is.

    Returns:
        Arrays of shape (executed_rows, *row shape). Without `allocate`, for a single payload without padding, its own
        arrays.

    Raises:
        ExecutionError: The payloads cannot share a batch, hold no row, or more rows than `executed_rows`.
    """
    rows = sum(rows_per_payload)
    if not 0 < rows <= executed_rows:
        raise ExecutionError(f"batch has {rows} rows, expected at least 1 and at most {executed_rows}")
    first = batch[0]
    if allocate is None and len(batch) == 1 and rows == executed_rows:
        return dense(first)
    if set(map(len, batch)) != {len(first)}:
        raise _other_names(batch)
    memory = allocate or _fresh
    try:
        columns = {name: [payload[name] for payload in batch] for name in first}
    except KeyError:
        raise _other_names(batch) from None
    return {name: _join(name, arrays, rows, executed_rows, memory) for name, arrays in columns.items()}


def scatter(outputs: Tensors, rows_per_payload: Sequence[int], executed_rows: int) -> list[Tensors]:
    """Cut a batch's outputs into one view per payload, in order; padding rows at the end belong to nobody.

    Args:
        outputs: Arrays of shape (executed_rows, *item).
        rows_per_payload: Rows of each payload of the batch; their sum is at most `executed_rows`.
        executed_rows: Rows that the executor was given.

    Raises:
        WrongRowsError: An output has another number of rows than the executor was given.
    """
    for name, array in outputs.items():
        found_rows = array.shape[0] if array.ndim else 0
        if found_rows != executed_rows:
            raise WrongRowsError(output=name, expected_rows=executed_rows, found_rows=found_rows)
    if len(rows_per_payload) == 1 and rows_per_payload[0] == executed_rows:
        return [outputs]
    cuts = [(end - rows, end) for rows, end in zip(rows_per_payload, accumulate(rows_per_payload), strict=True)]
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return [{name: array[start:end]} for start, end in cuts]
    return [{name: array[start:end] for name, array in outputs.items()} for start, end in cuts]


def _is_dense(array: Array) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def _other_names(batch: Sequence[Tensors]) -> ExecutionError:
    first = batch[0]
    other = next(payload for payload in batch if payload.keys() != first.keys())
    return ExecutionError(f"a request of the batch has tensors {sorted(other)}, the first has {sorted(first)}")


def _join(name: str, arrays: Sequence[Array], rows: int, executed_rows: int, allocate: Allocate) -> Array:
    joined = allocate(name, (executed_rows, *arrays[0].shape[1:]), arrays[0].dtype)
    try:
        # Exact types only: a silent cast or broadcast would answer somebody with numbers they did not send.
        np.concatenate(arrays, out=joined[:rows], casting="no")
    except (TypeError, ValueError) as error:
        kinds = sorted({f"{array.dtype} {array.shape[1:]}" for array in arrays})
        raise ExecutionError(f"rows of tensor '{name}' cannot share a batch: found {', '.join(kinds)}") from error
    if rows < executed_rows:
        joined[rows:] = joined[rows - 1]
    return joined
