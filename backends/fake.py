"""An executor without an engine: answers its inputs after a stated service time. For tests, trials and benchmarks.

As a backend (``backend: "fake"``) a model's parameters are `service_base_us` and `service_row_us` (microseconds a
batch and a row) and `fail_on_value` (a batch with this value in its first input fails).
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from backends.errors import ExecutionError, LoadError
from backends.ports import Executor, Placement
from batching.clock import MICROSECOND_NS, SECOND_NS
from models.inference import Array, Tensors
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec

_NEVER = threading.Event()


def sleep_ns(duration_ns: int) -> None:
    """Block the calling thread for a time."""
    _NEVER.wait(duration_ns / SECOND_NS)


class FakeExecutor:
    """Output k is input k, the same array; zeros where there is no such input or its declaration differs.

    Args:
        spec: The model version.
        service_ns: Duration of a batch of that many rows; 0 does not sleep at all.
        sleep: Blocks for the nanoseconds that it is given.
        fail_on_value: A batch with this value in its first input raises ExecutionError.
    """

    def __init__(
        self,
        spec: ModelSpec,
        service_ns: Callable[[int], int] = lambda _rows: 0,
        sleep: Callable[[int], None] = sleep_ns,
        fail_on_value: float | bytes | None = None,
    ) -> None:
        self._spec = spec
        self._service_ns = service_ns
        self._sleep = sleep
        self._fail_on_value = fail_on_value

    def load(self) -> None:
        """Nothing to load."""

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Nothing is lazy here, and no service time is spent."""

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Wait for the service time, then answer the inputs. Raises ExecutionError on the value to fail on."""
        duration_ns = self._service_ns(rows)
        if duration_ns > 0:
            self._sleep(duration_ns)
        if self._fail_on_value is not None:
            self._check(inputs)
        return {
            output.name: self._answer(index, output, inputs, rows) for index, output in enumerate(self._spec.outputs)
        }

    def close(self) -> None:
        """Nothing to release."""

    def _check(self, inputs: Tensors) -> None:
        name = self._spec.inputs[0].name
        if bool(np.any(inputs[name] == self._fail_on_value)):
            raise ExecutionError(f"input '{name}' contains {self._fail_on_value!r}, on which this fake model fails")

    def _answer(self, index: int, output: TensorSpec, inputs: Tensors, rows: int) -> Array:
        if index < len(self._spec.inputs):
            same = self._spec.inputs[index]
            if same.name in inputs and (same.data_type, same.dims) == (output.data_type, output.dims):
                return inputs[same.name]
        item = tuple(1 if dim < 0 else dim for dim in output.dims)
        shape = (rows, *item) if self._spec.has_batch_dimension else item
        zero = b"" if output.data_type is DataType.BYTES else 0
        return np.full(shape, zero, output.data_type.numpy)


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """Fakes as the model's parameters describe them; they need no cores. Raises LoadError on a bad parameter."""
    base_ns = round(_number(spec, "service_base_us") * MICROSECOND_NS)
    row_ns = round(_number(spec, "service_row_us") * MICROSECOND_NS)
    fail_on_value = _fail_on_value(spec)
    return [
        [FakeExecutor(spec, service_ns=lambda rows: base_ns + rows * row_ns, fail_on_value=fail_on_value)]
        for _ in range(placement.instances)
    ]


def _fail_on_value(spec: ModelSpec) -> float | bytes | None:
    text = spec.parameters.get("fail_on_value")
    if text is None:
        return None
    is_text = spec.inputs[0].data_type is DataType.BYTES
    return text.encode() if is_text else _number(spec, "fail_on_value", least=-np.inf)


def _number(spec: ModelSpec, parameter: str, least: float = 0.0) -> float:
    text = spec.parameters.get(parameter, "0")
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not least <= number < np.inf:  # NaN is not in any range either
        raise LoadError(
            f"model '{spec.name}': parameter '{parameter}' is '{text}', expected a number from {least:g} up"
        )
    return number
