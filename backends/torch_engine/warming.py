"""What happens before a model is ready: made-up batches of every size, and half precision held against fp32."""

import logging
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from backends.errors import BackendError, DeviceFaultError, LoadError, OutOfMemoryError
from backends.torch_engine.arrays import to_tensor
from backends.torch_engine.failures import to_failure
from backends.torch_engine.network import Network
from backends.torch_engine.parameters import Precision, TorchParameters
from models.inference import Array, Tensors
from models.spec import ModelSpec
from models.tensors import TensorSpec

logger = logging.getLogger(__name__)

_SCRIPT_RUNS = 3  # TorchScript watches the shapes in two runs and specialises itself before the third


class Lane(Protocol):
    """Computes batches in one thread at a time."""

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one dense batch; the outputs are arrays of their own."""
        ...

    def record(self, inputs: Tensors) -> None:
        """Record the computation of a batch of these shapes, where there is something to record."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class WarmUp:
    """Makes one lane ready.

    Args:
        spec: The model version.
        parameters: Its parameters.
        network: The model.
        lane: Runs it.
        device: As PyTorch names it.
    """

    def __init__(self, spec: ModelSpec, parameters: TorchParameters, network: Network, lane: Lane, device: str) -> None:
        self._spec = spec
        self._parameters = parameters
        self._network = network
        self._lane = lane
        self._device = device
        self._where = f"model '{spec.name}' version {spec.version}"

    def run(self, sizes: Sequence[int]) -> set[int]:
        """Run each size, the largest first, so that memory is asked for once.

        Returns:
            The sizes that are warm: none if inputs have variable dims, since no size is sure to fit.

        Raises:
            LoadError: A size does not run, or half precision is too far from fp32.
            DeviceFaultError: The device broke.
        """
        variable = [declared.name for declared in self._spec.inputs if declared.has_variable_dims]
        if variable:
            logger.info("%s: no warm-up, inputs have variable dims: %s", self._where, ", ".join(variable))
            return set()
        for rows in sorted(set(sizes), reverse=True):
            failure = self._attempt(rows)
            if isinstance(failure, DeviceFaultError | LoadError):
                raise failure
            if failure is not None:
                raise LoadError(
                    f"{self._where}: does not run on {rows} rows of the declared inputs: {failure}{self._hint(failure)}"
                )
        self._verify(sizes)
        return set(sizes)

    def _attempt(self, rows: int) -> BackendError | None:
        inputs = made_up(self._spec, rows)
        try:
            self._network.admit(inputs)
            for _ in range(_SCRIPT_RUNS if self._network.is_script else 1):
                self._lane.run(inputs)
            if self._parameters.cuda_graphs:
                self._lane.record(inputs)
                self._lane.run(inputs)
        except Exception as error:  # noqa: BLE001 - whatever a model raises; `run` raises its meaning
            return to_failure(error)
        return None

    def _hint(self, failure: BackendError) -> str:
        """What the user could change; the commonest reasons first."""
        hints = []
        if isinstance(failure, OutOfMemoryError):
            hints.append("lower max_batch_size, or the number of instances on the device")
        if self._parameters.compile_mode is not None:
            hints.append("parameter compile needs a C++ compiler and a model that torch.compile understands")
        if self._parameters.cuda_graphs and self._device != "cpu":
            hints.append("recorded kernels (cuda graphs) need a model that never waits for the device")
        return f" ({'; '.join(hints)})" if hints else ""

    def _verify(self, sizes: Sequence[int]) -> None:
        """Once for all instances, since they share the model."""
        if math.isinf(self._parameters.precision_check):
            return
        with self._network.lock:
            missing = sorted(set(sizes) - self._network.verified_rows)
            differences = {rows: self._difference(rows) for rows in missing}
            self._network.verified_rows.update(missing)
        bound = self._parameters.precision_check
        bad = {rows: difference for rows, difference in differences.items() if not difference <= bound}
        if bad:
            self._network.verified_rows.difference_update(bad)
            word = self._parameters.precision.value
            found = ", ".join(f"{rows} rows: {_percent(difference)}" for rows, difference in bad.items())
            raise LoadError(
                f"{self._where}: outputs in {word} differ from {Precision.FP32.value} by more than {bound:.1%} of the "
                f"largest value ({found}), tried on random inputs; use another precision, or set parameter "
                "precision_check to a larger difference or to off"
            )

    def _difference(self, rows: int) -> float:
        tensors = {name: to_tensor(array).to(self._device) for name, array in made_up(self._spec, rows).items()}
        try:
            precise = self._network.run_precisely(tensors)
            found = self._network.run(tensors)
        except Exception as error:
            failure = to_failure(error)
            raise LoadError(f"{self._where}: does not run on {rows} rows in full precision: {failure}") from error
        return max(
            (_difference(found[name], tensor) for name, tensor in precise.items() if tensor.is_floating_point()),
            default=0.0,
        )


def made_up(spec: ModelSpec, rows: int) -> Tensors:
    """Inputs that any model should take: the same normal random numbers each time, zeros for whole numbers."""
    return {declared.name: _made_up(declared, rows, spec) for declared in spec.inputs}


def _made_up(declared: TensorSpec, rows: int, spec: ModelSpec) -> Array:
    shape = (rows, *declared.dims) if spec.has_batch_dimension else declared.dims
    dtype = declared.data_type.numpy
    if dtype.kind in "biu":  # an index, more often than not: only 0 is sure to be valid
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype)


def _difference(found: Any, precise: Any) -> float:
    """Largest difference relative to the largest value; NaN if half precision gave numbers that are none."""
    scale = float(precise.abs().max()) if precise.numel() else 0.0
    if not math.isfinite(scale):  # random input is not for this model: nothing to compare with
        return 0.0
    largest = float((found.double() - precise.double()).abs().max()) if precise.numel() else 0.0
    return largest / max(scale, float(np.finfo(np.float32).tiny))


def _percent(difference: float) -> str:
    return f"{difference:.1%}" if math.isfinite(difference) else "NaN or infinite values"
