"""A loaded model and how it is called: eager, compiled, in half precision; shared by all instances of a placement."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch

from backends.errors import ExecutionError
from backends.torch_engine.arrays import to_array, to_tensor, torch_type
from backends.torch_engine.cuda_device import CudaBuffer
from backends.torch_engine.device import Buffer, Stream
from backends.torch_engine.lanes import Buffers
from backends.torch_engine.loading import LoadedModule
from backends.torch_engine.parameters import Precision, TorchParameters
from backends.torch_engine.signature import Results, bind_inputs, check_output
from models.inference import Array, Tensors
from models.spec import ModelSpec

_AUTOCAST = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
_COMPILING = threading.Lock()
_IMAGE_DIMENSIONS = 4  # (batch, channels, height, width), of which torch.channels_last speaks


class Network:
    """Calls a model with tensors by name. Usable from several threads at once.

    Attributes:
        is_script: It is TorchScript, which specialises itself in its first runs.
        verified_rows: Batch sizes at which half precision has been held against fp32.
        lock: Guards them.

    Args:
        spec: The model version.
        parameters: Its parameters.
        loaded: The module.
        device_type: ``cpu`` or ``cuda``.
    """

    def __init__(self, spec: ModelSpec, parameters: TorchParameters, loaded: LoadedModule, device_type: str) -> None:
        self.is_script = loaded.is_script
        self.lock = threading.Lock()
        self.verified_rows: set[int] = set()
        self._spec = spec
        self._parameters = parameters
        self._module = loaded.module
        self._device_type = device_type
        self._autocast_type = _AUTOCAST.get(parameters.precision)
        self._call = bind_inputs(spec, loaded.arguments, loaded.keyword_only)
        self._results = Results(spec, torch.Tensor)
        self._declared = {output.name: output for output in spec.outputs}
        self._types = {output.name: torch_type(output.data_type.numpy) for output in spec.outputs}
        self._compiled: Any = None
        self._compiled_shapes: set[object] = set()

    def run(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Compute one batch, compiled if its shapes have been admitted.

        Raises:
            ExecutionError: The outputs are not as declared.
            Exception: What the model raises.
        """
        is_compiled = bool(self._compiled_shapes) and _shapes(tensors) in self._compiled_shapes
        return self._run(self._compiled if is_compiled else self._module, tensors, self._autocast_type)

    def run_precisely(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Compute one batch as the model is: not compiled, not in half precision."""
        return self._run(self._module, tensors, None)

    def admit(self, tensors: Mapping[str, Any]) -> None:
        """Compile batches of these shapes from now on; the next one pays for it. Others run as the model is."""
        if self._parameters.compile_mode is None:
            return
        with _COMPILING:
            if self._compiled is None:
                self._compiled = torch.compile(self._module, dynamic=False, mode=self._parameters.compile_mode)
            if _shapes(tensors) not in self._compiled_shapes:
                _allow_one_more_shape()
                self._compiled_shapes.add(_shapes(tensors))

    def _run(self, module: Any, tensors: Mapping[str, Any], autocast_type: Any) -> dict[str, Any]:
        with self._modes(autocast_type):
            positional, keywords = self._call.arguments({name: self._laid_out(t) for name, t in tensors.items()})
            named = self._results.name(module(*positional, **keywords))
            return {name: self._checked(name, tensor, autocast_type) for name, tensor in named.items()}

    def _modes(self, autocast_type: Any) -> contextlib.AbstractContextManager[object]:
        # Inference mode saves the bookkeeping that no_grad still does.
        gradients: Any = torch.inference_mode() if self._parameters.inference_mode else torch.no_grad()
        is_unoptimized = self.is_script and not self._parameters.is_optimized
        if autocast_type is None and not is_unoptimized:
            return cast("contextlib.AbstractContextManager[object]", gradients)
        return self._more_modes(gradients, autocast_type, is_unoptimized)

    @contextlib.contextmanager
    def _more_modes(self, gradients: Any, autocast_type: Any, is_unoptimized: bool) -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            modes.enter_context(gradients)
            if autocast_type is not None:
                # One cache serves all threads, so that it would hand out weights that another stream, or a graph that
                # is only recorded, has not cast yet.
                modes.enter_context(torch.autocast(self._device_type, dtype=autocast_type, cache_enabled=False))
            if is_unoptimized:
                modes.enter_context(torch.jit.optimized_execution(False))
            yield

    def _laid_out(self, tensor: Any) -> Any:
        if self._parameters.channels_last and tensor.ndim == _IMAGE_DIMENSIONS:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def _checked(self, name: str, tensor: Any, autocast_type: Any) -> Any:
        expected = self._types[name]
        check_output(self._declared[name], tuple(tensor.shape), has_batch_dimension=self._spec.has_batch_dimension)
        if tensor.dtype is not expected:
            if autocast_type is None or tensor.dtype is not autocast_type or not expected.is_floating_point:
                raise ExecutionError(
                    f"output '{name}' is of {_word(tensor.dtype)}, declared is {_word(expected)}; change data_type in "
                    "config.pbtxt"
                )
            tensor = tensor.to(expected)
        return tensor


class HostLane:
    """Runs a network on the CPU, in the caller's thread."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Compute one dense batch; the outputs are arrays of their own."""
        tensors = {name: to_tensor(array) for name, array in inputs.items()}
        return {name: to_array(tensor) for name, tensor in self._network.run(tensors).items()}

    def record(self, inputs: Tensors) -> None:
        """Nothing to record on a CPU."""

    def close(self) -> None:
        """Nothing to release."""


class CudaProgram:
    """Runs a network on the GPU's current stream."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def compute(self, inputs: Buffers, stream: Stream) -> Buffers:
        """Put one batch on the current stream."""
        del stream
        tensors = {name: cast("CudaBuffer", buffer).tensor for name, buffer in inputs.items()}
        outputs: dict[str, Buffer] = {
            name: CudaBuffer(tensor.contiguous()) for name, tensor in self._network.run(tensors).items()
        }
        return outputs

    def for_recording(self) -> "CudaProgram":
        """Itself: a network has no state."""
        return self


def _shapes(tensors: Mapping[str, Any]) -> object:
    return frozenset((name, tuple(tensor.shape)) for name, tensor in tensors.items())


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _allow_one_more_shape() -> None:
    """PyTorch stops compiling a function after a few shapes (8) and runs it uncompiled, without a word."""
    config = torch._dynamo.config  # noqa: SLF001 - this is how its documentation names it
    for name in ("recompile_limit", "cache_size_limit"):  # since 2.6 and before
        if hasattr(config, name):
            setattr(config, name, getattr(config, name) + 1)
            return
