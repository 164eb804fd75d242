"""The engine side of execution: what a host needs of a thing that computes."""

from collections.abc import Sequence
from typing import Protocol

from models.inference import Tensors


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
            All outputs by name, batch dimension first where the model has one.

        Raises:
            ExecutionError: The computation failed.
        """
        ...

    def close(self) -> None:
        """Release the model. Safe to call twice."""
        ...
