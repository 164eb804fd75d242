"""The engine side of execution: what a host needs of a thing that computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from models.inference import Array, Tensors
from models.spec import ModelSpec

if TYPE_CHECKING:
    import numpy as np


class Executor(Protocol):
    """Computes dense batches of one model version, in one thread at a time. Blocking by design; never on a loop."""

    def load(self) -> None:
        """Make the model ready to run.

        Raises:
            LoadError: It cannot be loaded; says what was found and what was expected.
        """
        ...

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run once with made-up input for each batch size, so that no caller pays for lazy initialisation."""
        ...

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch.

        Args:
            inputs: Tensors by name. With a batch dimension: shape (rows, *item). Not written to.
            rows: Rows in the batch; 1 for models without batch dimension.

        Returns:
            All outputs by name, batch dimension first where the model has one; or, where requests are answered one by
            one and differently, what `backends.request_answers` makes of that.

        Raises:
            ExecutionError: The computation failed; OutOfMemoryError and DeviceFaultError where that is the reason.
        """
        ...

    def close(self) -> None:
        """Release the model. Safe to call twice."""
        ...


@runtime_checkable
class StagingExecutor(Executor, Protocol):
    """An executor with memory of its own for inputs, so that rows are gathered straight to where they are needed."""

    def stage(self, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """Memory for one input of the next `run`; its content is what the last batch left.

        Inputs given to `run` need not be staged; those that are, are not copied again.
        """
        ...


@runtime_checkable
class PreciseExecutor(Executor, Protocol):
    """An executor of a model in half precision that can compute a batch in single precision as well."""

    def run_fp32(self, inputs: Tensors, rows: int) -> Tensors:
        """As `run`, in single precision; may be slow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the executors of one model version are made. Crosses the border to worker processes, as `ModelSpec` does.

    Attributes:
        device: ``cpu``, or ``gpu0``, ``gpu1``, ... In a worker process that owns one GPU, that is the only visible one.
        instances: How many instances of the version on this device, at least 1.
        cores: CPU cores that all of them together may use.
        cache_dir: For built engines and measurements; may not exist yet.
        trust_pickles: Whether model files that can run arbitrary code while they are read may be loaded.
        names: Of the instances, in order; empty where nobody has named them.
    """

    device: str = "cpu"
    instances: int = 1
    cores: int = 1
    cache_dir: Path = field(default_factory=lambda: Path.home() / ".cache" / "shoal")
    trust_pickles: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("gpu")


ExecutorFactory = Callable[[ModelSpec, Placement], Sequence[Sequence[Executor]]]
"""Executors that are not loaded yet: for each instance one or more lanes.

Every lane is used by one thread at a time; several lanes of an instance let the copies of one batch overlap the
computation of another. What instances can share (weights), they share.
"""
