"""Which batch sizes a model version runs, and which of them it runs before the first caller comes.

A size that an engine has never seen costs it extra: algorithms are searched, kernels compiled, graphs recorded, memory
found. So batches are padded to a few sizes. Few sizes mean much padding; that is dear on a CPU, whose time grows with
every row, and cheap on a GPU, whose time hardly does below its capacity.
"""

from collections.abc import Iterator, Sequence

from models.spec import ModelSpec

MAX_WARM_UP_ROWS = 32
"""On a CPU, a large `max_batch_size` is often only a permission, which must not cost minutes and gigabytes at once."""

_EXACT_ROWS = 8
"""Up to here every size is run on a CPU; above, each step is at most a quarter of the size before it."""


def executed_sizes(spec: ModelSpec, *, is_costly: bool, is_gpu: bool) -> Sequence[int]:
    """Batch sizes that the executors may see, ascending; the last one is the largest batch. Empty means any size.

    The configuration's own list if it has one. Else any size, where a new one is not costly or where rows may differ in
    shape, so that no size can be run beforehand. Else powers of two on a GPU, and on a CPU 1 to 8, 10, 12, 14, 16, 20,
    24, 28, 32, 40, ...: at most a quarter is added to a batch of more than 8 rows.

    Args:
        spec: The model version.
        is_costly: Whether the backend has to pay for each new size (`Backend.has_costly_sizes`).
        is_gpu: Where it runs.
    """
    if spec.batching.allowed_rows:
        return spec.batching.allowed_rows
    if not is_costly or any(declared.has_variable_dims for declared in spec.inputs):
        return ()
    largest = spec.largest_batch_rows
    return tuple(_until(largest, _doubling() if is_gpu else _quarters()))


def warm_up_sizes(spec: ModelSpec, executed: Sequence[int], *, is_gpu: bool) -> Sequence[int]:
    """Batch sizes to run before the first request, ascending.

    Args:
        spec: The model version.
        executed: Its `executed_sizes`.
        is_gpu: All of them are run on a GPU. On a CPU, those of the configuration's own list, and of others none above
            `MAX_WARM_UP_ROWS`.
    """
    if executed and (is_gpu or spec.batching.allowed_rows):
        return executed
    largest = min(spec.largest_batch_rows, MAX_WARM_UP_ROWS)
    return tuple(rows for rows in executed or _until(largest, _doubling()) if rows <= largest)


def _until(largest: int, sizes: Iterator[int]) -> Iterator[int]:
    """The sizes below the largest, and it."""
    for rows in sizes:
        if rows >= largest:
            break
        yield rows
    yield largest


def _doubling() -> Iterator[int]:
    rows = 1
    while True:
        yield rows
        rows *= 2


def _quarters() -> Iterator[int]:
    yield from range(1, _EXACT_ROWS)
    first = _EXACT_ROWS
    while True:
        yield from range(first, 2 * first, first // 4)
        first *= 2
