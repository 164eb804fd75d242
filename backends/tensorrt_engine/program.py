"""An execution context as a program of a device instance, see `backends.torch_engine.lanes`."""

import numpy as np
from typing_extensions import override

from backends.errors import LoadError
from backends.faults import classify
from backends.tensorrt_engine.engine import EngineTensor, LoadedEngine
from backends.torch_engine.device import Buffer, Device, Stream
from backends.torch_engine.lanes import Buffers, Program


class EngineProgram(Program):
    """One execution context: state and scratch memory of one execution at a time, for the largest batch at once.

    Args:
        loaded: The engine, shared with other contexts.
        device: Where it is.
        name: Of the model version, for messages.

    Raises:
        LoadError: There is no memory for a context, or the profile cannot be used.
    """

    def __init__(self, loaded: LoadedEngine, device: Device, name: str) -> None:
        self._loaded = loaded
        self._device = device
        self._outputs = [tensor for tensor in loaded.tensors if not tensor.is_input]
        context = loaded.engine.create_execution_context()
        if context is None:
            raise LoadError(f"{name}: TensorRT cannot make an execution context: {loaded.messages.take()}")
        self._context = context
        if loaded.limits.profile:
            self._choose_profile(loaded.limits.profile, name)

    @override
    def compute(self, inputs: Buffers, stream: Stream) -> Buffers:
        """See `Program`. Raises ExecutionError, or what it stands for, with TensorRT's text."""
        for name, buffer in inputs.items():
            self._check(self._context.set_input_shape(name, buffer.shape), f"input '{name}' of shape {buffer.shape}")
            self._check(self._context.set_tensor_address(name, buffer.address), f"the memory of input '{name}'")
        # New memory for each batch: that of the last one may still be on its way to the host.
        outputs = {tensor.name: self._output(tensor) for tensor in self._outputs}
        self._check(self._context.execute_async_v3(stream.handle), "the batch")
        return outputs

    def _output(self, tensor: EngineTensor) -> Buffer:
        shape = tuple(self._context.get_tensor_shape(tensor.name))
        self._check(all(dim >= 0 for dim in shape), f"output '{tensor.name}', whose shape depends on the data,")
        dtype = tensor.data_type.numpy
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        buffer = self._device.memory(max(1, nbytes)).view(shape, dtype)
        self._check(self._context.set_tensor_address(tensor.name, buffer.address), f"the memory of '{tensor.name}'")
        return buffer

    def _choose_profile(self, profile: int, name: str) -> None:
        stream = self._device.stream()
        if not self._context.set_optimization_profile_async(profile, stream.handle):
            raise LoadError(f"{name}: TensorRT refuses profile {profile}: {self._loaded.messages.take()}")
        stream.synchronize()

    def _check(self, is_accepted: bool, what: str) -> None:
        if not is_accepted:
            text = self._loaded.messages.take()
            raise classify(text)(f"TensorRT refuses {what}: {text}")
