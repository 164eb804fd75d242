"""A plan that was read: what it takes and gives, held against the declaration of the model version."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backends.errors import ExecutionError, LoadError
from backends.faults import classify
from backends.tensorrt_engine.api import Context, Engine, Member, TensorRt
from backends.tensorrt_engine.keys import Machine
from backends.tensorrt_engine.messages import Library, Messages, explain_refusal
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec

logger = logging.getLogger(__name__)

_TYPES = {
    "FLOAT": DataType.FP32,
    "HALF": DataType.FP16,
    "BF16": DataType.BF16,
    "INT8": DataType.INT8,
    "INT32": DataType.INT32,
    "INT64": DataType.INT64,
    "UINT8": DataType.UINT8,
    "BOOL": DataType.BOOL,
}
"""TensorRT's element types that have a name on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTensor:
    """One input or output of an engine.

    Attributes:
        name: As in the engine.
        is_input: Or an output.
        data_type: Element type.
        shape: Batch dimension included; -1 varies.
    """

    name: str
    is_input: bool
    data_type: DataType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The optimisation profile that is used, and the batch sizes that it takes.

    Attributes:
        profile: Its index.
        least_rows: Smaller batches are padded.
        most_rows: Larger batches are run in parts.
    """

    profile: int = 0
    least_rows: int = 1
    most_rows: int = 1


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """One engine for all instances of a version in a process: its weights are on the device once.

    Attributes:
        engine: TensorRT's.
        tensors: What it takes and gives.
        limits: The batch sizes that it takes.
        messages: Where TensorRT reports errors.
        strategy: TensorRT's word for contexts whose scratch memory others provide.
    """

    engine: Engine
    tensors: Sequence[EngineTensor]
    limits: EngineLimits
    messages: Messages
    strategy: Member

    def create_context(self) -> Context | None:
        """A context that needs `scratch_bytes` of memory; None when it cannot be made."""
        return self.engine.create_execution_context(self.strategy)

    @property
    def scratch_bytes(self) -> int:
        """Device memory that an execution needs beside inputs and outputs."""
        return self.engine.device_memory_size_v2


class RefusedPlanError(Exception):
    """TensorRT does not read a plan; says what it was built for and what is here."""


def read_engine(library: Library, plan: bytes, spec: ModelSpec, machine: Machine) -> LoadedEngine:
    """Read a plan onto the device and check it against the declaration.

    Raises:
        RefusedPlanError: The plan is for another version of TensorRT or another GPU, or damaged.
        LoadError: The engine is not what the version declares, or the GPU has no memory for it, or is broken.
    """
    api, trt_logger, messages = library
    api.init_libnvinfer_plugins(None, "")  # layers of the plan may be TensorRT's plugins
    engine = api.Runtime(trt_logger).deserialize_cuda_engine(plan)  # which keeps the runtime
    where = f"model '{spec.name}' version {spec.version}"
    if engine is None:
        text = messages.take()
        if classify(text) is not ExecutionError:
            raise LoadError(f"{where}: TensorRT cannot read the engine onto the GPU: {text}")
        raise RefusedPlanError(explain_refusal(text, machine))
    tensors = [_tensor(api, engine, index, where) for index in range(engine.num_io_tensors)]
    _check_signature(spec, tensors, where)
    limits = find_limits(spec, engine, tensors)
    return LoadedEngine(engine, tensors, limits, messages, api.ExecutionContextAllocationStrategy.USER_MANAGED)


def find_limits(spec: ModelSpec, engine: Engine, tensors: Sequence[EngineTensor]) -> EngineLimits:
    """The profile for the largest batches, and its range. Warns when the configuration promises more.

    Raises:
        LoadError: The profile takes none of the version's batch sizes.
    """
    if not spec.has_batch_dimension:
        return EngineLimits()
    inputs = [tensor for tensor in tensors if tensor.is_input]
    limits = max(
        (_profile_limits(engine, inputs, index) for index in range(max(1, engine.num_optimization_profiles))),
        key=lambda found: found.most_rows,
    )
    where = f"model '{spec.name}' version {spec.version}"
    if limits.most_rows < limits.least_rows:
        raise LoadError(f"{where}: the engine's inputs have no batch size in common; build it with one range for all")
    if limits.most_rows < spec.max_batch_rows:
        logger.warning(
            "%s: max_batch_size is %d, the engine takes batches of %d to %d rows: larger ones are run in parts; set "
            "max_batch_size to %d, or build the engine for more",
            where,
            spec.max_batch_rows,
            limits.least_rows,
            limits.most_rows,
            limits.most_rows,
        )
    return limits


def _profile_limits(engine: Engine, inputs: Sequence[EngineTensor], index: int) -> EngineLimits:
    ranges = [_rows(engine, tensor, index) for tensor in inputs]
    least, most = max(first for first, _ in ranges), min(last for _, last in ranges)
    return EngineLimits(profile=index, least_rows=least, most_rows=most)


def _rows(engine: Engine, tensor: EngineTensor, profile: int) -> tuple[int, int]:
    if tensor.shape[0] >= 0:
        return tensor.shape[0], tensor.shape[0]
    least, _best, most = (tuple(shape) for shape in engine.get_tensor_profile_shape(tensor.name, profile))
    return max(1, least[0]), most[0]


def _tensor(api: TensorRt, engine: Engine, index: int, where: str) -> EngineTensor:
    name = engine.get_tensor_name(index)
    if engine.get_tensor_location(name) != api.TensorLocation.DEVICE:
        raise LoadError(
            f"{where}: the engine's tensor '{name}' is a shape, which is read on the CPU; expected data on the GPU"
        )
    word = engine.get_tensor_dtype(name).name
    if word not in _TYPES:
        raise LoadError(f"{where}: the engine's tensor '{name}' is {word}, expected one of {', '.join(_TYPES)}")
    return EngineTensor(
        name=name,
        is_input=engine.get_tensor_mode(name) == api.TensorIOMode.INPUT,
        data_type=_TYPES[word],
        shape=tuple(engine.get_tensor_shape(name)),
    )


def _check_signature(spec: ModelSpec, tensors: Sequence[EngineTensor], where: str) -> None:
    for kind, is_input, declared in (("input", True, spec.inputs), ("output", False, spec.outputs)):
        found = {tensor.name: tensor for tensor in tensors if tensor.is_input is is_input}
        for tensor in declared:
            if tensor.name not in found:
                names = ", ".join(found) or "none"
                raise LoadError(f"{where}: {kind} '{tensor.name}' is declared, the engine has {names}")
            for flaw in _flaws(spec, tensor, found[tensor.name]):
                raise LoadError(f"{where}: {kind} '{tensor.name}' {flaw}")
        undeclared = sorted(found.keys() - {tensor.name for tensor in declared})
        if undeclared and is_input:
            raise LoadError(f"{where}: the engine needs inputs that are not declared: {', '.join(undeclared)}")


def _flaws(spec: ModelSpec, declared: TensorSpec, found: EngineTensor) -> Iterator[str]:
    if found.data_type is not declared.data_type:
        yield f"is {found.data_type.config_name} in the engine, declared {declared.data_type.config_name}"
    item: tuple[Any, ...] = found.shape[1:] if spec.has_batch_dimension else found.shape
    fits = len(item) == len(declared.dims) and all(
        -1 in (there, here) or there == here for there, here in zip(item, declared.dims, strict=True)
    )
    if not fits or (spec.has_batch_dimension and not found.shape):
        batch = " after the batch dimension" if spec.has_batch_dimension else ""
        yield f"has shape {list(found.shape)} in the engine, declared {list(declared.dims)}{batch}"
