"""Batches through TensorRT engines."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from backends.blank import blank_inputs, variable_inputs
from backends.errors import DeviceFaultError, ExecutionError, LoadError, OutOfMemoryError
from backends.ports import Executor, Placement
from backends.tensorrt_engine.engine import EngineLimits, LoadedEngine
from backends.tensorrt_engine.jobs import version_name
from backends.tensorrt_engine.program import EngineProgram
from backends.torch_engine.device import Device
from backends.torch_engine.failures import to_failure
from backends.torch_engine.lanes import DeviceInstance, DeviceLane
from backends.torch_engine.shared import Shared
from models.inference import Array, Tensors
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

LANES = 2


class TensorRtExecutor:
    """One lane of an instance.

    A batch below the engine's smallest is padded here, one above its largest is run in parts: a plan need not fit the
    configuration to serve it.

    Args:
        spec: The model version.
        limits: Of the engine.
        instance: What the lanes of the instance share.
        device: Where it is.
    """

    def __init__(self, spec: ModelSpec, limits: EngineLimits, instance: Shared[DeviceInstance], device: Device) -> None:
        self._spec = spec
        self._limits = limits
        self._shared: Shared[DeviceInstance] | None = instance  # holds the engine
        self._device = device
        self._lane: DeviceLane | None = None

    def load(self) -> None:
        """Make, or share, the instance's execution context. Raises LoadError when memory does not suffice."""
        name = version_name(self._spec)
        if self._shared is None:
            raise LoadError(f"{name} is closed, so it cannot be loaded again")
        try:
            with self._device.preparing():
                self._lane = DeviceLane(self._device, self._shared.acquire())
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(f"{name}: {to_failure(error)}") from error

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run zeros of each size, and record CUDA graphs if the configuration asks for them, the largest first.

        Skipped for inputs with variable dims: no size is sure to fit. A size for which memory does not suffice is left
        to the batches that need it.

        Raises:
            LoadError: The engine does not run on zeros.
            DeviceFaultError: The device broke.
        """
        if variable := variable_inputs(self._spec):
            names = ", ".join(variable)
            logger.info("%s: no warm-up, inputs have variable dims: %s", version_name(self._spec), names)
            return
        with self._device.preparing():
            for rows in sorted({self._fitting(rows) for rows in sizes}, reverse=True):
                self._warm_up(rows)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch.

        Raises:
            ExecutionError: TensorRT's or CUDA's text; OutOfMemoryError and DeviceFaultError where that is the reason.
        """
        if not self._spec.has_batch_dimension:
            return self._run_whole(inputs, 1)
        parts = [self._run_whole(part, count) for part, count in self._parts(inputs, rows)]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def stage(self, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """Page-locked memory for an input of the next batch."""
        return self._loaded_lane().stage(name, shape, dtype)

    def pin_memory(self, address: int, nbytes: int) -> None:
        """Page-lock memory in which inputs will come."""
        self._loaded_lane().pin(address, nbytes)

    def unpin_memory(self, address: int) -> None:
        """Undo `pin_memory`."""
        if self._lane is not None:
            self._lane.unpin(address)

    def close(self) -> None:
        """Let go of the engine; it is freed when no other lane uses it."""
        lane, self._lane, self._shared = self._lane, None, None
        if lane is not None:
            lane.close()

    def _loaded_lane(self) -> DeviceLane:
        if self._lane is None:
            raise ExecutionError(f"{version_name(self._spec)} is not loaded")
        return self._lane

    def _fitting(self, rows: int) -> int:
        return min(max(rows, self._limits.least_rows), self._limits.most_rows)

    def _warm_up(self, rows: int) -> None:
        zeros = blank_inputs(self._spec, rows)
        name = version_name(self._spec)
        try:
            self._run_whole(zeros, rows)
            if self._spec.execution.cuda_graphs:
                self._guarded(lambda: self._loaded_lane().record(zeros))
        except OutOfMemoryError as error:
            logger.warning("%s: no memory for batches of %d rows: %s", name, rows, error)
        except ExecutionError as error:
            if isinstance(error, DeviceFaultError):
                raise
            raise LoadError(f"{name}: does not run on {rows} rows of zeros: {error}") from error

    def _parts(self, inputs: Tensors, rows: int) -> Iterator[tuple[Tensors, int]]:
        most = self._limits.most_rows
        if rows <= most:
            yield inputs, rows
            return
        for start in range(0, rows, most):
            part = {name: array[start : start + most] for name, array in inputs.items()}
            yield part, min(most, rows - start)

    def _run_whole(self, inputs: Tensors, rows: int) -> Tensors:
        lane = self._loaded_lane()
        is_padded = self._spec.has_batch_dimension and rows < self._limits.least_rows
        found = self._guarded(lambda: lane.run(self._padded(lane, inputs, rows) if is_padded else inputs))
        cut = slice(rows) if is_padded else slice(None)
        declared = [output.name for output in self._spec.outputs]
        return {name: found[name][cut] if is_padded else found[name] for name in declared}

    def _padded(self, lane: DeviceLane, inputs: Tensors, rows: int) -> Tensors:
        padded: dict[str, Array] = {}
        for name, array in inputs.items():
            memory = lane.stage(name, (self._limits.least_rows, *array.shape[1:]), array.dtype)
            memory[:rows] = array  # the same memory, if the batch was gathered there
            memory[rows:] = array[-1]
            padded[name] = memory
        return padded

    def _guarded(self, work: Callable[[], Result]) -> Result:
        """What the work returns, or the error that its own stands for."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - TensorRT's, PyTorch's and CUDA's
            failure = to_failure(error)
        # Out here the original error is gone, and with its frames the memory of the batch.
        if isinstance(failure, OutOfMemoryError):
            self._device.free_cached()
        raise failure


def engine_executors(
    spec: ModelSpec, placement: Placement, loaded: LoadedEngine, device: Device
) -> Sequence[Sequence[Executor]]:
    """The lanes of each instance; all of them share the engine."""
    name = version_name(spec)

    def lanes() -> Sequence[Executor]:
        instance = Shared(lambda: DeviceInstance(device, EngineProgram(loaded, device, name)))
        return [TensorRtExecutor(spec, loaded.limits, instance, device) for _ in range(LANES)]

    return [lanes() for _ in range(placement.instances)]
