"""A model version as it will be served: the executor of its backend computes batches, in a worker process.

In a process of its own because engines crash on some networks: then there is an error to tell, and nothing left behind.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from backends.cpu_budget import available_cores
from backends.errors import BackendError, ExportError, WorkerLostError
from backends.export.parity import Compute, Scores
from backends.ports import Executor, Placement
from backends.process.worker_process import WorkerProcess
from batching.clock import MonotonicClock
from models.spec import ModelSpec

Result = TypeVar("Result")

_COMPARED_ROWS = 8  # there are kernels that are wrong from so many rows up


def served(spec: ModelSpec, use: Callable[[Compute], Result]) -> Result:
    """Load a version with one image input on the CPU, and hand what computes its scores to `use`. Blocks.

    Returns:
        What `use` returns.

    Raises:
        ExportError: The version cannot be loaded, cannot compute a batch, or crashes its engine.
    """
    try:
        return asyncio.run(_in_worker(spec, use))
    except WorkerLostError as error:
        raise ExportError(
            f"{spec.name}/{spec.version}: {spec.backend} does not survive this network: {error}"
        ) from error
    except ExportError:
        raise
    except BackendError as error:
        raise ExportError(str(error)) from error


def compared_sizes(spec: ModelSpec) -> tuple[int, ...]:
    """The batch sizes at which a version is compared: 1, and 8 or the largest below that."""
    return tuple(sorted({1, min(_COMPARED_ROWS, spec.largest_batch_rows)}))


def one_by_one(compute: Compute, rows: NDArray[np.generic]) -> Scores:
    """The scores of rows that are run as batches of one."""
    return np.concatenate([compute(row[None]) for row in rows])


async def _in_worker(spec: ModelSpec, use: Callable[[Compute], Result]) -> Result:
    worker = WorkerProcess(f"comparison of {spec.name}", clock=MonotonicClock())
    try:
        await worker.start()
        (executor, *_), *_ = await worker.assign(spec, Placement(cores=available_cores()))
        return await asyncio.to_thread(_used, spec, executor, use)
    finally:
        await worker.aclose()


def _used(spec: ModelSpec, executor: Executor, use: Callable[[Compute], Result]) -> Result:
    executor.load()
    return use(lambda rows: _scores(spec, executor, rows))


def _scores(spec: ModelSpec, executor: Executor, rows: NDArray[np.generic]) -> Scores:
    (image,) = spec.inputs
    name = spec.scores_output.name
    if spec.has_batch_dimension:
        scores = executor.run({image.name: np.ascontiguousarray(rows)}, len(rows))[name]
    else:
        scores = np.stack([executor.run({image.name: row}, 1)[name] for row in rows])
    return cast("Scores", scores.reshape(len(rows), -1).astype(np.float32))
