"""An execution context as a program of a device instance, see `backends.torch_engine.lanes`."""

import numpy as np
from typing_extensions import override

from backends.errors import LoadError
from backends.faults import classify
from backends.tensorrt_engine.engine import EngineTensor, LoadedEngine
from backends.torch_engine.device import Buffer, Device, Stream
from backends.torch_engine.lanes import Buffers, Program


class EngineProgram(Program):
    """One execution context: the state of one execution at a time.

    Scratch memory, enough for the largest batch, is shared with the contexts of recordings: all of them run on one
    stream, one after the other. A recording has a context of its own, because TensorRT leaves it undefined what a graph
    does after its context has computed another shape.

    Args:
        loaded: The engine, shared with other contexts.
        device: Where it is.
        name: Of the model version, for messages.
        scratch: Of the program for whose recording this one is; None makes it.

    Raises:
        LoadError: There is no memory for a context, or the profile cannot be used.
    """

    def __init__(self, loaded: LoadedEngine, device: Device, name: str, scratch: Buffer | None = None) -> None:
        self._loaded = loaded
        self._device = device
        self._name = name
        self._outputs = [tensor for tensor in loaded.tensors if not tensor.is_input]
        context = loaded.create_context()
        if context is None:
            raise LoadError(f"{name}: TensorRT cannot make an execution context: {loaded.messages.take()}")
        self._context = context
        stream = device.copy_stream()
        with device.on(stream):  # memory belongs to the stream on which it is made; nothing else computes on this one
            self._scratch = scratch or device.memory(max(1, loaded.scratch_bytes))
        context.set_device_memory(self._scratch.address, loaded.scratch_bytes)
        if loaded.limits.profile:
            self._choose_profile(loaded.limits.profile, stream)

    @override
    def for_recording(self) -> "EngineProgram":
        return EngineProgram(self._loaded, self._device, self._name, self._scratch)

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

    def _choose_profile(self, profile: int, stream: Stream) -> None:
        if not self._context.set_optimization_profile_async(profile, stream.handle):
            raise LoadError(f"{self._name}: TensorRT refuses profile {profile}: {self._loaded.messages.take()}")
        stream.synchronize()

    def _check(self, is_accepted: bool, what: str) -> None:
        if not is_accepted:
            text = self._loaded.messages.take()
            raise classify(text)(f"TensorRT refuses {what}: {text}")
