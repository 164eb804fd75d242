"""The requests of ``model_warmup``: run by every instance before it serves, and again by each that replaces it.

They come after the batch sizes that an executor is warmed up with anyway, and take the way of real batches: gathered,
padded, scattered.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from backends.batch_run import BatchRun
from backends.errors import BackendError, LoadError, WorkerLostError
from models.config_warmup import bytes_elements
from models.inference import Array, Tensors
from models.spec import ModelSpec, WarmupData, WarmupInput, WarmupSample
from models.tensors import DataType

Run = Callable[[Sequence[Tensors]], BatchRun]

_SEED = 0
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", "S1")
_WORD_BYTES = 8
_MOST = 127  # of random whole numbers: fits into every integer type


def run_warm_requests(spec: ModelSpec, run: Run) -> None:
    """Run the warm-up requests of a version, each as often as it says.

    Args:
        spec: The model version.
        run: `BatchRunner.run` of the instance.

    Raises:
        LoadError: One fails; names its block.
        WorkerLostError: The executor's process has ended.
    """
    for sample in spec.warmup:
        place = f"model '{spec.name}' version {spec.version}: the request '{sample.name}' of model_warmup"
        try:
            payload = tensors(sample)
        except (OSError, ValueError) as error:
            raise LoadError(f"{place} cannot be read: {_without_path(error)}") from error
        for _ in range(sample.count):
            failure = _failure(run, payload)
            if isinstance(failure, WorkerLostError):
                raise failure
            if failure is not None:
                raise LoadError(f"{place} failed: {failure}") from failure


def tensors(sample: WarmupSample) -> Mapping[str, Array]:
    """The request: shape (rows, *dims) of each input, or dims without batch dimension; all rows are the same.

    Random numbers are the same each time: from 0 to 1, or whole ones from 0 to 127; strings have eight letters.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file has another size than one row.
    """
    random = np.random.default_rng(_SEED)
    return {name: _repeated(_row(given, random), sample.rows) for name, given in sample.inputs.items()}


def _failure(run: Run, payload: Tensors) -> BackendError | None:
    """Why the request failed; errors are values where the batch's other requests might have succeeded."""
    try:
        (answer,) = run([payload]).results
    except BackendError as error:
        return error
    return answer if isinstance(answer, BackendError) else None


def _repeated(row: Array, rows: int) -> Array:
    return np.repeat(row[np.newaxis], rows, axis=0) if rows else row


def _row(given: WarmupInput, random: np.random.Generator) -> Array:
    match given.data:
        case WarmupData.FILE:
            return _from_file(given)
        case WarmupData.RANDOM:
            return _random(given, random)
        case WarmupData.ZERO:
            return np.full(given.dims, b"" if given.data_type is DataType.BYTES else 0, given.data_type.numpy)


def _from_file(given: WarmupInput) -> Array:
    if given.file is None:
        raise ValueError("found no file name, expected one")
    content = given.file.read_bytes()
    if given.data_type is DataType.BYTES:
        return np.array(bytes_elements(content), np.object_).reshape(given.dims)
    return np.frombuffer(content, given.data_type.numpy).reshape(given.dims)


def _random(given: WarmupInput, random: np.random.Generator) -> Array:
    numpy_type = given.data_type.numpy
    if given.data_type is DataType.BYTES:
        letters = random.choice(_LETTERS, (*given.dims, _WORD_BYTES))
        return letters.view(f"S{_WORD_BYTES}")[..., 0].astype(np.object_)
    if given.data_type is DataType.BOOL:
        return random.integers(0, 2, given.dims).astype(numpy_type)
    if np.issubdtype(numpy_type, np.integer):
        return random.integers(0, _MOST, given.dims, endpoint=True).astype(numpy_type)
    return random.random(given.dims).astype(numpy_type)  # BF16 too, which numpy does not count as floating


def _without_path(error: OSError | ValueError) -> str:
    """An operating system's message names a path of this machine."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
