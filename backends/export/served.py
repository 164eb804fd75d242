"""A model version as it will be served: the executor of its backend computes batches of rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
from numpy.typing import NDArray

from backends.cpu_budget import available_cores
from backends.errors import BackendError, ExportError
from backends.export.parity import Compute, Scores
from backends.ports import Executor, Placement
from backends.registry import create_executors
from models.spec import ModelSpec

_COMPARED_ROWS = 8  # there are kernels that are wrong from so many rows up


@contextmanager
def opened(spec: ModelSpec) -> Iterator[Compute]:
    """Load a version with one image input on the CPU; gives what computes the scores of a batch.

    Raises:
        ExportError: The version cannot be loaded, or, later, cannot compute a batch.
    """
    executor: Executor | None = None
    try:
        executor = create_executors(spec, Placement(cores=available_cores()))[0][0]
        executor.load()
        loaded = executor
        yield lambda rows: _scores(spec, loaded, rows)
    except BackendError as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(str(error)) from error
    finally:
        if executor is not None:
            executor.close()


def compared_sizes(spec: ModelSpec) -> tuple[int, ...]:
    """The batch sizes at which a version is compared: 1, and 8 or the largest below that."""
    return tuple(sorted({1, min(_COMPARED_ROWS, spec.largest_batch_rows)}))


def _scores(spec: ModelSpec, executor: Executor, rows: NDArray[np.generic]) -> Scores:
    (image,) = spec.inputs
    name = spec.scores_output.name
    if spec.has_batch_dimension:
        scores = executor.run({image.name: np.ascontiguousarray(rows)}, len(rows))[name]
    else:
        scores = np.stack([executor.run({image.name: row}, 1)[name] for row in rows])
    return cast("Scores", scores.reshape(len(rows), -1).astype(np.float32))
