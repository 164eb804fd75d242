"""PyTorch as an executor: one on the CPU for each instance, two lanes for each instance on a GPU.

Instances of a placement share one module. On the CPU each computes with its share of the cores: PyTorch's number of
threads belongs to the thread that set it. Operators run one after the other.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from backends.errors import ExecutionError, LoadError, OutOfMemoryError
from backends.ports import Executor, Placement
from backends.torch_engine.arrays import to_array, to_tensor
from backends.torch_engine.cuda_device import DEVICE, CudaDevice
from backends.torch_engine.failures import to_failure
from backends.torch_engine.lanes import DeviceInstance, DeviceLane, StageTimes
from backends.torch_engine.loading import load_module
from backends.torch_engine.network import CudaProgram, HostLane, Network
from backends.torch_engine.parameters import Precision, TorchParameters, read_parameters
from backends.torch_engine.shared import Shared
from backends.torch_engine.threads import set_threads
from backends.torch_engine.warming import Lane, WarmUp
from models.inference import Array, Tensors
from models.spec import ModelSpec, NonFinite

_LANES = 2  # one copies while the other computes; the device has no third thing to do


class TorchExecutor:
    """Runs a network on the CPU, in the caller's thread.

    Attributes:
        unwarmed_runs: Batches of a size that `warm_up` has not run.

    Args:
        spec: The model version.
        parameters: Its parameters.
        network: What instances share; loaded by the first.
        threads: For the operators of a batch.
    """

    device_name = "cpu"

    def __init__(self, spec: ModelSpec, parameters: TorchParameters, network: Shared[Network], threads: int) -> None:
        self.unwarmed_runs = 0
        self._spec = spec
        self._parameters = parameters
        self._shared_network = network
        self._threads = threads
        self._network: Network | None = None
        self._lane: Lane | None = None
        self._warm_rows: set[int] = set()

    def load(self) -> None:
        """Read the model's file, or share the module that another instance has read.

        Raises:
            LoadError: See `load_module`.
        """
        set_threads(self._threads, self._parameters.inter_op_threads)
        self._network = self._shared_network.acquire()
        self._lane = self._open_lane(self._network)

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run each size, compile and record what is to be, hold half precision against fp32. Raises LoadError."""
        if self._network is None or self._lane is None:
            raise LoadError(f"model '{self._spec.name}' is not loaded, so it cannot be warmed up")
        warm_up = WarmUp(self._spec, self._parameters, self._network, self._lane, self.device_name)
        self._warm_rows |= warm_up.run(sizes)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch. Raises ExecutionError of the class that fits."""
        if rows not in self._warm_rows:
            self.unwarmed_runs += 1
        if self._lane is None:
            raise ExecutionError(f"model '{self._spec.name}' is not loaded")
        lane = self._lane
        return self._guarded(lambda: lane.run(inputs))

    def run_fp32(self, inputs: Tensors, rows: int) -> Tensors:
        """Likewise, as the model is: not compiled, not recorded, not in half precision, and copied the slow way."""
        del rows
        if self._network is None:
            raise ExecutionError(f"model '{self._spec.name}' is not loaded")
        network = self._network
        return self._guarded(lambda: _run_precisely(network, inputs, self.device_name))

    def _guarded(self, compute: Callable[[], Tensors]) -> Tensors:
        try:
            return compute()
        except Exception as error:  # noqa: BLE001 - whatever a model raises
            failure = to_failure(error)
        # Out here the original error is gone, and with its frames the memory of the batch.
        if isinstance(failure, OutOfMemoryError):
            self._free_memory()
        raise failure

    def close(self) -> None:
        """Let go of the module; it is freed when no other instance uses it."""
        lane, self._lane, self._network = self._lane, None, None
        self._warm_rows.clear()
        if lane is not None:
            lane.close()

    def _open_lane(self, network: Network) -> Lane:
        return HostLane(network)

    def _free_memory(self) -> None:
        """The allocator of the CPU keeps nothing back."""


class CudaTorchExecutor(TorchExecutor):
    """One lane of an instance on the GPU. Takes inputs from page-locked memory without copying them on the host.

    Args:
        spec: The model version.
        parameters: Its parameters.
        network: What instances share.
        instance: What the lanes of the instance share.
        device: The GPU.
    """

    device_name = DEVICE

    def __init__(
        self,
        spec: ModelSpec,
        parameters: TorchParameters,
        network: Shared[Network],
        instance: Shared[DeviceInstance],
        device: Shared[CudaDevice],
    ) -> None:
        super().__init__(spec, parameters, network, threads=1)
        self._shared_instance = instance
        self._shared_device = device
        self._device: CudaDevice | None = None
        self._device_lane: DeviceLane | None = None

    @property
    def last_times(self) -> StageTimes:
        """Device time of the last batch's stages."""
        return self._device_lane.last_times if self._device_lane else StageTimes()

    @property
    def total_times(self) -> StageTimes:
        """Device time of the stages of all batches since the model was loaded."""
        return self._device_lane.total_times if self._device_lane else StageTimes()

    @override
    def load(self) -> None:
        """Likewise, to the GPU. Raises LoadError, also where PyTorch finds no GPU."""
        self._device = self._shared_device.acquire()
        super().load()

    @override
    def warm_up(self, sizes: Sequence[int]) -> None:
        """Likewise, one model of the process after the other. Raises LoadError."""
        with self._shared_device.acquire().preparing():
            super().warm_up(sizes)

    @override
    def close(self) -> None:
        """Likewise; memory that was page-locked for the lane is unlocked."""
        super().close()
        device, self._device_lane, self._device = self._device, None, None
        if device is not None:
            device.free_cached()  # for other processes; what other instances use stays

    def stage(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Page-locked memory for one input of the next `run`."""
        if self._device_lane is None:
            raise ExecutionError(f"model '{self._spec.name}' is not loaded")
        return self._device_lane.stage(name, shape, dtype)

    def pin_memory(self, address: int, nbytes: int) -> None:
        """Page-lock memory in which inputs will come, after `load`. Undo it before the memory goes away."""
        if self._device_lane is not None:
            self._device_lane.pin(address, nbytes)

    def unpin_memory(self, address: int) -> None:
        """Undo `pin_memory`; harmless for memory that is not locked."""
        if self._device_lane is not None:
            self._device_lane.unpin(address)

    @override
    def _open_lane(self, network: Network) -> Lane:
        device = self._shared_device.acquire()
        self._device_lane = DeviceLane(device, self._shared_instance.acquire())
        return self._device_lane

    @override
    def _free_memory(self) -> None:
        if self._device is not None:
            self._device.free_cached()


def _run_precisely(network: Network, inputs: Tensors, device: str) -> Tensors:
    tensors = {name: to_tensor(array).to(device) for name, array in inputs.items()}
    return {name: to_array(tensor.cpu()) for name, tensor in network.run_precisely(tensors).items()}


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """Executors as the model's parameters describe them; see `TorchParameters`.

    Raises:
        LoadError: A parameter is not valid.
    """
    parameters = read_parameters(spec)
    if spec.execution.non_finite is NonFinite.RETRY_FP32 and parameters.precision is Precision.FP32:
        raise LoadError(
            f"model '{spec.name}' version {spec.version}: [execution] non_finite is \"retry_fp32\", which needs "
            "parameter precision to be fp16 or bf16: the model computes in fp32 already"
        )
    if parameters.compile_mode is not None:  # compiling takes minutes: it should outlive the machine's next start
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(placement.cache_dir / "torchinductor"))
    device_name = DEVICE if placement.is_gpu else "cpu"

    def open_network() -> Network:
        loaded = load_module(spec, parameters, device_name, trust_pickles=placement.trust_pickles)
        if placement.is_gpu:
            # Weights move on another stream than batches. To wait for the whole device would spoil a recording.
            torch.cuda.current_stream().synchronize()
        return Network(spec, parameters, loaded, "cuda" if placement.is_gpu else "cpu")

    network = Shared(open_network)
    if placement.is_gpu:
        return _on_gpu(spec, parameters, network, placement.instances)
    threads = parameters.intra_op_threads or max(1, placement.cores // placement.instances)
    return [[TorchExecutor(spec, parameters, network, threads)] for _ in range(placement.instances)]


def _on_gpu(
    spec: ModelSpec, parameters: TorchParameters, network: Shared[Network], instances: int
) -> Sequence[Sequence[Executor]]:
    device = Shared(CudaDevice)

    def lanes() -> Sequence[Executor]:
        instance = Shared(lambda: DeviceInstance(device.acquire(), CudaProgram(network.acquire())))
        return [CudaTorchExecutor(spec, parameters, network, instance, device) for _ in range(_LANES)]

    return [lanes() for _ in range(instances)]
