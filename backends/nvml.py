"""The part of NVIDIA's management library in use, as a Protocol and as a fake; the only module that imports pynvml."""
# ruff: noqa: N802, N815, D102 - the names, and what they mean, are NVML's

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

Value = TypeVar("Value")


class Memory(Protocol):
    """`nvmlMemory_t`, in bytes."""

    @property
    def total(self) -> int: ...
    @property
    def used(self) -> int: ...


class Utilization(Protocol):
    """`nvmlUtilization_t`, in percent of the last sampling period."""

    @property
    def gpu(self) -> int: ...


class Process(Protocol):
    """`nvmlProcessInfo_t`: in a container, `pid` may be that of the host; `usedGpuMemory` is None where not known."""

    @property
    def pid(self) -> int: ...
    @property
    def usedGpuMemory(self) -> int | None: ...


class Nvml(Protocol):
    """The functions of pynvml in use. Each raises `NVMLError`, above all where a value is not available."""

    @property
    def NVMLError(self) -> type[Exception]: ...
    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object: ...
    def nvmlDeviceGetUUID(self, handle: object, /) -> str: ...
    def nvmlDeviceGetName(self, handle: object, /) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Memory: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: object, /) -> Sequence[int]: ...
    def nvmlDeviceGetMigMode(self, handle: object, /) -> Sequence[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: object, /) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: object, index: int, /) -> object: ...
    def nvmlDeviceGetUtilizationRates(self, handle: object, /) -> Utilization: ...
    def nvmlDeviceGetPowerUsage(self, handle: object, /) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object, /) -> int: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object, /) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: object, /) -> Sequence[Process]: ...


def load_nvml() -> Nvml | None:
    """The library's binding, not initialised; None where it is not installed."""
    try:
        return cast("Nvml", importlib.import_module("pynvml"))
    except ImportError:
        return None


class FakeNvmlError(Exception):
    """What `FakeNvml` raises for a value that it does not have."""


@dataclass(frozen=True, kw_only=True)
class FakeMemory:
    """In bytes."""

    total: int
    used: int = 0


@dataclass(frozen=True, kw_only=True)
class FakeUtilization:
    """In percent."""

    gpu: int


@dataclass(frozen=True, kw_only=True)
class FakeProcess:
    """A process on a GPU."""

    pid: int
    usedGpuMemory: int | None


@dataclass(kw_only=True)
class FakeGpu:
    """A GPU, or a slice of one, of which every value may be missing."""

    uuid: str
    name: str = "NVIDIA Fake 1000"
    memory: FakeMemory | None = field(default_factory=lambda: FakeMemory(total=1 << 30))
    compute_capability: tuple[int, int] | None = (8, 6)
    slices: Sequence["FakeGpu"] | None = None  # None: cannot be cut
    utilization_percent: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    processes: Sequence[FakeProcess] | None = None


@dataclass(kw_only=True)
class FakeNvml:
    """An NVML with made-up GPUs; counts its calls of each function.

    Attributes:
        gpus: In the order of their indices.
        driver: Version of the driver; None fails.
        is_broken: `nvmlInit` fails, as without a driver.
        calls: Numbers of calls by function name, of readings alone.
        is_open: Initialised as often as shut down.
    """

    gpus: Sequence[FakeGpu] = ()
    driver: str | None = "575.57.08"
    is_broken: bool = False
    calls: dict[str, int] = field(default_factory=dict)
    _opened: int = 0

    @property
    def is_open(self) -> bool:
        return self._opened > 0

    @property
    def NVMLError(self) -> type[Exception]:
        return FakeNvmlError

    def nvmlInit(self) -> None:
        if self.is_broken:
            raise FakeNvmlError("Driver Not Loaded")
        self._opened += 1

    def nvmlShutdown(self) -> None:
        self._opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._known(self.driver)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object:
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: object, /) -> str:
        return _gpu(handle).uuid

    def nvmlDeviceGetName(self, handle: object, /) -> str:
        return _gpu(handle).name

    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Memory:
        return self._known(_gpu(handle).memory)

    def nvmlDeviceGetCudaComputeCapability(self, handle: object, /) -> Sequence[int]:
        return self._known(_gpu(handle).compute_capability)

    def nvmlDeviceGetMigMode(self, handle: object, /) -> Sequence[int]:
        self._known(_gpu(handle).slices)
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: object, /) -> int:
        return len(_gpu(handle).slices or ()) + 1  # the last place is empty

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: object, index: int, /) -> object:
        slices = _gpu(handle).slices or ()
        return self._known(slices[index] if index < len(slices) else None)

    def nvmlDeviceGetUtilizationRates(self, handle: object, /) -> Utilization:
        self.calls["utilization"] = self.calls.get("utilization", 0) + 1
        return FakeUtilization(gpu=self._known(_gpu(handle).utilization_percent))

    def nvmlDeviceGetPowerUsage(self, handle: object, /) -> int:
        return self._known(_gpu(handle).power_mw)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object, /) -> int:
        return self._known(_gpu(handle).power_limit_mw)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object, /) -> int:
        return self._known(_gpu(handle).energy_mj)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object, /) -> Sequence[Process]:
        return self._known(_gpu(handle).processes)

    @staticmethod
    def _known(value: Value | None) -> Value:
        if value is None:
            raise FakeNvmlError("Not Supported")
        return value


def _gpu(handle: object) -> FakeGpu:
    return cast("FakeGpu", handle)
