"""A TensorRT of which nothing is real but its rules: engines that answer their inputs, and plans that fit one machine.

Plans are JSON. What the fake computes is done by `FakeContext.execute_async_v3` through `FakeTensorRt.execute`, which a
test connects to the memory of its fake device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from backends.tensorrt_engine import api as real
from backends.tensorrt_engine.fake_builder import FakeBuilder, FakeParser, Workshop
from backends.tensorrt_engine.fake_models import (
    FakeBuilderFlag,
    FakeDataType,
    FakeLocation,
    FakeMode,
    FakeModel,
    FakeNetworkFlag,
    FakePool,
    FakeStrategy,
    profile_shape,
    report,
)

SCRATCH_BYTES = 256
"""Device memory that each execution needs."""

Execute = Callable[["FakeContext", int], None]
"""Computes: reads and writes the memory at the context's addresses; is given the stream's handle."""


class FakeContext(real.Context):
    """State of one execution.

    Attributes:
        model: Of its engine.
        shapes: Of inputs, as set.
        addresses: Of all tensors, as set.
        profile: Index, as set.
        memory: Address of its scratch memory, as set.
    """

    def __init__(self, tensorrt: "FakeTensorRt", model: FakeModel, logger: Any) -> None:
        self.model = model
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.profile = 0
        self.memory = 0
        self._tensorrt = tensorrt
        self._logger = logger

    @override
    def set_input_shape(self, name: str, shape: tuple[int, ...], /) -> bool:
        least, _best, most = profile_shape(self.model, name, self.profile)
        fits = all(low <= dim <= high for low, dim, high in zip(least, shape, most, strict=True))
        if fits:
            self.shapes[name] = shape
        else:
            report(self._logger, f"[runtime.cpp::check::1] shape {shape} of '{name}' is not in {least} to {most}")
        return fits

    @override
    def get_tensor_shape(self, name: str, /) -> real.Dims:
        if self._tensorrt.unknown_shape:
            return self._tensorrt.unknown_shape
        rows = next(iter(self.shapes.values()))[0]
        shape = next(tensor.shape for tensor in self.model.outputs if tensor.name == name)
        return tuple(rows if dim < 0 else dim for dim in shape)

    @override
    def set_tensor_address(self, name: str, memory: int, /) -> bool:
        self.addresses[name] = memory
        return True

    @override
    def set_device_memory(self, memory: int, size: int, /) -> None:
        self.memory = memory if size >= SCRATCH_BYTES else 0

    @override
    def execute_async_v3(self, stream_handle: int, /) -> bool:
        if not self.memory:
            report(self._logger, "[executionContext.cpp::enqueue::1] device memory is not set")
            return False
        if self._tensorrt.failure:
            report(self._logger, self._tensorrt.failure)
            return False
        self._tensorrt.execute(self, stream_handle)
        return True

    @override
    def set_optimization_profile_async(self, profile_index: int, stream_handle: int, /) -> bool:
        self.profile = profile_index
        return 0 <= profile_index < len(self.model.profiles)


class FakeEngine(real.Engine):
    """A plan that was read."""

    def __init__(self, tensorrt: "FakeTensorRt", model: FakeModel, logger: Any) -> None:
        self._tensorrt = tensorrt
        self._model = model
        self._logger = logger
        self._tensors = {tensor.name: tensor for tensor in (*model.inputs, *model.outputs)}

    @property
    @override
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    @property
    @override
    def num_optimization_profiles(self) -> int:
        return len(self._model.profiles) or 1

    @property
    @override
    def device_memory_size_v2(self) -> int:
        return SCRATCH_BYTES

    @override
    def get_tensor_name(self, index: int, /) -> str:
        return list(self._tensors)[index]

    @override
    def get_tensor_mode(self, name: str, /) -> FakeMode:
        return FakeMode.INPUT if name in {tensor.name for tensor in self._model.inputs} else FakeMode.OUTPUT

    @override
    def get_tensor_dtype(self, name: str, /) -> FakeDataType:
        return FakeDataType[self._tensors[name].dtype]

    @override
    def get_tensor_shape(self, name: str, /) -> real.Dims:
        return self._tensors[name].shape

    @override
    def get_tensor_location(self, name: str, /) -> FakeLocation:
        return FakeLocation[self._tensors[name].location]

    @override
    def get_tensor_profile_shape(self, name: str, profile_index: int, /) -> Sequence[real.Dims]:
        return profile_shape(self._model, name, profile_index)

    @override
    def create_execution_context(self, strategy: FakeStrategy, /) -> FakeContext | None:
        if self._tensorrt.failure:
            report(self._logger, self._tensorrt.failure)
            return None
        self._tensorrt.contexts.append(FakeContext(self._tensorrt, self._model, self._logger))
        return self._tensorrt.contexts[-1]


class FakeRuntime(real.Runtime):
    """Reads plans of its own version and compute capability only."""

    def __init__(self, tensorrt: "FakeTensorRt", logger: Any) -> None:
        self._tensorrt = tensorrt
        self._logger = logger

    @override
    def deserialize_cuda_engine(self, serialized_engine: bytes, /) -> FakeEngine | None:
        own = self._tensorrt
        own.reads += 1
        if own.failure:
            report(self._logger, own.failure)
            return None
        try:
            model = FakeModel.from_bytes(serialized_engine)
        except (ValueError, KeyError, TypeError):
            report(self._logger, "[runtime.cpp::parse::1] Error Code 1: Serialization (magic tag does not match)")
            return None
        if model.version != own.__version__:
            self._refuse(f"expecting library version {own.__version__} got {model.version}")
            return None
        if model.compute != own.compute:
            self._refuse(f"expecting compute {model.compute} got compute {own.compute}")
            return None
        return FakeEngine(own, model, self._logger)

    def _refuse(self, text: str) -> None:
        report(self._logger, f"IRuntime::deserializeCudaEngine: Error Code 6: {text}, please rebuild.")


class FakeLogger:
    """Base of loggers, as TensorRT's ILogger."""


@dataclass(kw_only=True)
class FakeTensorRt(Workshop, real.TensorRt):
    """The module; see `Workshop` for the rest of its attributes.

    Attributes:
        execute: What an execution does.
        failure: Text with which reading plans, new contexts and executions fail; empty for none.
        unknown_shape: Of every output, where it is not known before the execution; empty for none.
        reads: Plans read, or refused.
        contexts: All that were made.
    """

    execute: Execute = lambda context, stream_handle: None  # noqa: ARG005
    failure: str = ""
    unknown_shape: tuple[int, ...] = ()
    reads: int = 0
    contexts: list[FakeContext] = field(default_factory=list)

    @property
    @override
    def __version__(self) -> str:
        return self.version

    @property
    @override
    def ILogger(self) -> type:
        return FakeLogger

    @property
    @override
    def TensorIOMode(self) -> type[FakeMode]:
        return FakeMode

    @property
    @override
    def TensorLocation(self) -> type[FakeLocation]:
        return FakeLocation

    @property
    @override
    def DataType(self) -> type[FakeDataType]:
        return FakeDataType

    @property
    @override
    def ExecutionContextAllocationStrategy(self) -> type[FakeStrategy]:
        return FakeStrategy

    @property
    @override
    def NetworkDefinitionCreationFlag(self) -> type[FakeNetworkFlag]:
        return FakeNetworkFlag

    @property
    @override
    def MemoryPoolType(self) -> type[FakePool]:
        return FakePool

    @property
    @override
    def BuilderFlag(self) -> type[FakeBuilderFlag]:
        return FakeBuilderFlag

    @override
    def Runtime(self, logger: object, /) -> FakeRuntime:
        return FakeRuntime(self, logger)

    @override
    def Builder(self, logger: object, /) -> FakeBuilder:
        return FakeBuilder(self, logger)

    @override
    def OnnxParser(self, network: real.Network, logger: object, /) -> FakeParser:
        return FakeParser(network)

    @override
    def init_libnvinfer_plugins(self, logger: object, namespace: str, /) -> bool:
        return True
