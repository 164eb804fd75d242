"""Answers with NaN or infinite numbers: which rows have them, and computing those again in single precision.

The usual reason is a network in half precision, whose largest number is 65 504, on an input that needs larger ones. The
check reads every output once, in the thread that executes: 2 us for four rows of 1000 scores, but 30 ms for
eight of 21 x 512 x 512 numbers. `NonFinite.OFF` is for those.
"""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backends.gather import padded_rows
from backends.ports import Executor, PreciseExecutor
from models.inference import Array, Tensors

Rows = NDArray[np.intp]
"""Indices of rows of a batch, ascending."""

NO_ROWS: Rows = np.empty(0, np.intp)
"""All is well, or nobody has looked."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # numpy does not count it among its floating types


def non_finite_rows(outputs: Tensors, rows: int, *, has_batch_dimension: bool = True) -> Rows:
    """The rows of a batch in which some output has a number that is none.

    Args:
        outputs: Arrays of shape (at least `rows`, *item), or of any shape without batch dimension.
        rows: Rows that belong to requests; what follows is padding and not looked at.
        has_batch_dimension: Otherwise the outputs as a whole are row 0.
    """
    bad = NO_ROWS
    for array in outputs.values():
        if array.dtype.kind != "f" and array.dtype != _BFLOAT16:
            continue
        finite = np.isfinite(array[:rows] if has_batch_dimension else array)
        if np.count_nonzero(finite) < finite.size:  # in half the time of `all`
            by_row = finite.reshape(rows, -1) if has_batch_dimension else finite.reshape(1, -1)
            bad = np.union1d(bad, np.flatnonzero(~by_row.all(axis=1)))
    return bad


def computed_again(
    executor: Executor, inputs: Tensors, outputs: Tensors, bad: Rows, allowed_rows: Sequence[int] | None
) -> Tensors:
    """The outputs with the bad rows as single precision gives them. Blocks; runs in the executor's thread.

    Args:
        executor: A `PreciseExecutor`; a load with `NonFinite.RETRY_FP32` has made sure of that.
        inputs: Of the whole batch.
        outputs: What the executor made of them; not modified.
        bad: Rows to compute again, at least one.
        allowed_rows: Sizes that the executor may see, empty for any; None for a model without batch dimension.

    Raises:
        Exception: What the executor raises.
    """
    if not isinstance(executor, PreciseExecutor):
        raise TypeError(f"{type(executor).__name__} has no run_fp32")
    if allowed_rows is None:
        return executor.run_fp32(inputs, 1)
    count = len(bad)
    executed = np.pad(bad, (0, padded_rows(count, allowed_rows) - count), mode="edge")
    again = executor.run_fp32({name: array[executed] for name, array in inputs.items()}, len(executed))
    return {name: _with_rows(array, bad, again[name][:count]) for name, array in outputs.items()}


def _with_rows(array: Array, rows: Rows, values: Array) -> Array:
    changed = array.copy()
    changed[rows] = values
    return changed
