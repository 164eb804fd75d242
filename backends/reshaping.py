"""Executors of models whose configuration reshapes tensors: callers see ``dims``, the model sees ``reshape.shape``.

Reshaping is a view: no element is copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.ports import Executor, PreciseExecutor, StagingExecutor
from models.inference import Array, Tensors
from models.reshaping import reshaped
from models.spec import ModelSpec
from models.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np

Change = tuple[tuple[int, ...], tuple[int, ...]]  # declared shapes of a row, from and to

_UNCHANGED = ("pin_memory", "unpin_memory")  # what executors may have, and what knows no shapes


def needs_reshaping(spec: ModelSpec) -> bool:
    """Whether any tensor of the version has a ``reshape``."""
    return any(tensor.reshape is not None for tensor in (*spec.inputs, *spec.outputs))


def inner_spec(spec: ModelSpec) -> ModelSpec:
    """The version as its model sees it."""
    return replace(spec, inputs=tuple(map(_inner, spec.inputs)), outputs=tuple(map(_inner, spec.outputs)))


def _inner(tensor: TensorSpec) -> TensorSpec:
    return tensor if tensor.reshape is None else replace(tensor, dims=tensor.reshape, reshape=None)


class ReshapingExecutor:
    """An `Executor` around one that was made for `inner_spec`. It can do what that one can do: stage, compute in fp32.

    Args:
        inner: Computes in the model's shapes.
        spec: The version as its callers see it.
    """

    stage: Callable[[str, tuple[int, ...], "np.dtype[Any]"], Array]
    run_fp32: Callable[[Tensors, int], Tensors]

    def __init__(self, inner: Executor, spec: ModelSpec) -> None:
        self._inner = inner
        self._leading = 1 if spec.has_batch_dimension else 0
        self._inputs = {each.name: (each.dims, each.reshape) for each in spec.inputs if each.reshape is not None}
        self._outputs = {each.name: (each.reshape, each.dims) for each in spec.outputs if each.reshape is not None}
        for ability in _UNCHANGED:
            if hasattr(inner, ability):
                setattr(self, ability, getattr(inner, ability))
        if isinstance(inner, StagingExecutor):
            allocate = inner.stage
            self.stage = lambda name, shape, dtype: allocate(name, self._inside(name, shape), dtype).reshape(shape)
        if isinstance(inner, PreciseExecutor):
            run_fp32 = inner.run_fp32
            self.run_fp32 = lambda inputs, rows: self._outside(run_fp32(self._all_inside(inputs), rows))

    def load(self) -> None:
        """See `Executor`."""
        self._inner.load()

    def warm_up(self, sizes: Sequence[int]) -> None:
        """See `Executor`."""
        self._inner.warm_up(sizes)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """See `Executor`."""
        return self._outside(self._inner.run(self._all_inside(inputs), rows))

    def close(self) -> None:
        """See `Executor`."""
        self._inner.close()

    def _inside(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self._changed(shape, self._inputs.get(name))

    def _all_inside(self, inputs: Tensors) -> Tensors:
        return {name: array.reshape(self._inside(name, array.shape)) for name, array in inputs.items()}

    def _outside(self, outputs: Tensors) -> Tensors:
        return {
            name: array.reshape(self._changed(array.shape, self._outputs.get(name))) for name, array in outputs.items()
        }

    def _changed(self, shape: tuple[int, ...], change: Change | None) -> tuple[int, ...]:
        """A whole array's shape; one that is not as declared is left as it is, for the check of outputs to refuse."""
        row = shape[self._leading :]
        if change is None or len(row) != len(change[0]):
            return shape
        return (*shape[: self._leading], *reshaped(row, *change))
