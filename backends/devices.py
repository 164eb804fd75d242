"""The GPUs of this machine, and what they are doing, as NVML tells: never an error, nothing where there is none.

NVML counts in the order of the PCI bus. Numbers in CUDA_VISIBLE_DEVICES are read in that order too, which is CUDA's own
with CUDA_DEVICE_ORDER=PCI_BUS_ID and wherever all GPUs are alike; a worker is given its GPU by `Gpu.uuid`, which is
never ambiguous.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from backends.nvml import Nvml, load_nvml
from batching.clock import SECOND_NS, Clock

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

LEAST_INTERVAL_NS = SECOND_NS
"""NVML averages utilisation over up to a second: reading more often says nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG slice of one, that this process may use.

    Attributes:
        index: Its ordinal among those that this process may use, as CUDA counts.
        uuid: Names it in CUDA_VISIBLE_DEVICES: ``GPU-...`` or ``MIG-...``.
        name: Product name.
        memory_bytes: All of its memory, or None where NVML does not know (memory shared with the CPU).
        compute_capability: Major and minor number, or None where NVML does not know.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int | None
    compute_capability: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What a GPU does at the moment; None is what NVML cannot tell, as most of a MIG slice.

    Attributes:
        gpu: Which one.
        utilization: Share of the last sampling period in which a kernel ran, 0 to 1.
        power_w: Power draw.
        power_limit_w: The limit that is in force.
        memory_used_bytes: Memory in use by all processes.
        memory_total_bytes: All memory.
        energy_j: Energy since the driver was loaded.
        process_memory_bytes: Memory of each process by process id. In a container the ids may be those of the host.
    """

    gpu: Gpu
    utilization: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    energy_j: float | None = None
    process_memory_bytes: Mapping[int, int] = field(default_factory=dict)


class _Found(NamedTuple):
    gpu: Gpu
    handle: object


def gpus(nvml: Nvml | None = None, environment: Mapping[str, str] = os.environ) -> Sequence[Gpu]:
    """The GPUs that this process may use, in CUDA's order; empty without a driver, NVML or GPU. Never raises.

    Takes some 10 ms the first time, while NVML attaches to the driver; does not touch CUDA.

    Args:
        nvml: The library; None means the installed one.
        environment: Its CUDA_VISIBLE_DEVICES is honoured.
    """
    with _opened(nvml or load_nvml()) as library:
        return [found.gpu for found in _visible(library, environment)] if library else []


def driver_version(nvml: Nvml | None = None) -> str | None:
    """Version of the NVIDIA driver, e.g. ``575.57.08``, or None without one. Never raises."""
    with _opened(nvml or load_nvml()) as library:
        return _value(library, library.nvmlSystemGetDriverVersion) if library else None


class GpuMonitor:
    """Reads what the GPUs do. Safe to use from several threads.

    A reading is some ten NVML calls a GPU, in the calling thread; within `LEAST_INTERVAL_NS` the last one is answered.

    Args:
        clock: Says how old a reading is.
        nvml: The library; None means the installed one.
        environment: Its CUDA_VISIBLE_DEVICES is honoured.
    """

    def __init__(self, clock: Clock, nvml: Nvml | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self._clock = clock
        self._nvml = nvml or load_nvml()
        self._environment = environment
        self._lock = threading.Lock()
        self._library: Nvml | None = None
        self._found: Sequence[_Found] = ()
        self._readings: Sequence[GpuReading] = ()
        self._read_ns: int | None = None

    def read(self) -> Sequence[GpuReading]:
        """One reading of each GPU; empty where there is none. Never raises."""
        with self._lock:
            now_ns = self._clock.now_ns()
            if self._read_ns is None:
                self._open()
            elif now_ns - self._read_ns < LEAST_INTERVAL_NS:
                return self._readings
            self._read_ns = now_ns
            if self._library:
                self._readings = [_read(self._library, found) for found in self._found]
            return self._readings

    def close(self) -> None:
        """Let go of NVML; later readings are empty. Safe to call twice."""
        with self._lock:
            library, self._library, self._readings = self._library, None, ()
            if self._read_ns is None:
                self._read_ns = self._clock.now_ns()
            if library:
                _shut(library)

    def _open(self) -> None:
        self._library = _open(self._nvml)
        if self._library:
            self._found = list(_visible(self._library, self._environment))


def _open(nvml: Nvml | None) -> Nvml | None:
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        logger.debug("no GPUs: NVML says '%s'", error)
        return None
    return nvml


def _shut(library: Nvml) -> None:
    with suppress(library.NVMLError):  # there is nothing left to let go of
        library.nvmlShutdown()


@contextmanager
def _opened(nvml: Nvml | None) -> Iterator[Nvml | None]:
    library = _open(nvml)
    try:
        yield library
    finally:
        if library:
            _shut(library)


def _value(nvml: Nvml, read: Callable[..., Value], *arguments: object) -> Value | None:
    """What NVML answers, or None: on some GPU or other, every one of its values is not available."""
    try:
        return read(*arguments)
    except nvml.NVMLError:
        return None


def _visible(nvml: Nvml, environment: Mapping[str, str]) -> Iterator[_Found]:
    devices = list(_devices(nvml))
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    chosen = devices if wanted is None else _chosen(devices, wanted)
    for index, (uuid, parent, handle) in enumerate(chosen):
        memory = _value(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
        capability = _value(nvml, nvml.nvmlDeviceGetCudaComputeCapability, parent)
        gpu = Gpu(
            index=index,
            uuid=uuid,
            name=_value(nvml, nvml.nvmlDeviceGetName, handle) or "unknown GPU",
            memory_bytes=memory.total if memory else None,
            compute_capability=(capability[0], capability[1]) if capability else None,
        )
        yield _Found(gpu, handle)


class _Device(NamedTuple):
    uuid: str
    parent: object  # of a slice: the whole GPU, which knows more; else the same
    handle: object


def _devices(nvml: Nvml) -> Iterator[_Device]:
    """All that CUDA can use: of a GPU that is cut into MIG slices, the slices alone."""
    for index in range(_value(nvml, nvml.nvmlDeviceGetCount) or 0):
        parent = _value(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        if parent is None:  # a GPU that fell off the bus, or that this user may not see
            continue
        mode = _value(nvml, nvml.nvmlDeviceGetMigMode, parent)
        for handle in _slices(nvml, parent) if mode and mode[0] else [parent]:
            uuid = _value(nvml, nvml.nvmlDeviceGetUUID, handle)
            if uuid is not None:
                yield _Device(uuid, parent, handle)


def _slices(nvml: Nvml, parent: object) -> Iterator[object]:
    for index in range(_value(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = _value(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, index)
        if handle is not None:
            yield handle


def _chosen(devices: Sequence[_Device], wanted: str) -> Sequence[_Device]:
    """Those that CUDA_VISIBLE_DEVICES names, by number or the beginning of a UUID, up to the first flaw."""
    chosen: list[_Device] = []
    for word in wanted.split(","):
        device = _named(devices, word.strip())
        if device is None or device in chosen:
            break
        chosen.append(device)
    return chosen


def _named(devices: Sequence[_Device], word: str) -> _Device | None:
    if word.isdecimal():
        return devices[int(word)] if int(word) < len(devices) else None
    found = [device for device in devices if word and device.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def _read(nvml: Nvml, found: _Found) -> GpuReading:
    handle = found.handle
    utilization = _value(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = _value(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    power_limit_mw = _value(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    energy_mj = _value(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    memory = _value(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    processes = _value(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    return GpuReading(
        gpu=found.gpu,
        utilization=None if utilization is None else utilization.gpu / 100,
        power_w=_thousandth(power_mw),
        power_limit_w=_thousandth(power_limit_mw),
        memory_used_bytes=memory.used if memory else None,
        memory_total_bytes=memory.total if memory else None,
        energy_j=_thousandth(energy_mj),
        process_memory_bytes={
            process.pid: process.usedGpuMemory for process in processes if process.usedGpuMemory is not None
        },
    )


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
