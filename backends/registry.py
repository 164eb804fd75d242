"""Which module executes which backend word, and where. Engines are imported only when a model asks for them."""

import enum
import importlib
import importlib.util
from collections.abc import Sequence
from typing import NamedTuple, cast

from backends.errors import LoadError
from backends.ports import Executor, ExecutorFactory, Placement
from backends.reshaping import ReshapingExecutor, inner_spec, needs_reshaping
from models.spec import Host, ModelSpec, NonFinite


class Hosting(enum.Enum):
    """Who shares a process."""

    THREAD = "a thread of this process for each instance"
    DEVICE_PROCESS = "one worker process for each device"
    INSTANCE_PROCESS = "one worker process for each instance"


class Backend(NamedTuple):
    """How a backend word is served.

    Attributes:
        factory: ``module:function``, an `ExecutorFactory`.
        on_cpu: Hosting of instances on the CPU, unless shoal.toml says otherwise.
        as_process: Hosting of instances on the CPU when shoal.toml asks for processes.
        on_gpu: Hosting of instances on GPUs; None for a backend that cannot use them.
        has_costly_sizes: A batch size that was never run costs extra, so that batches are padded to some sizes and all
            of these are warmed up.
        can_retry_fp32: Its executors can be `PreciseExecutor`.
        package: The engine's top-level module, if it is one that has to be installed.
    """

    factory: str
    on_cpu: Hosting
    as_process: Hosting
    on_gpu: Hosting | None = None
    has_costly_sizes: bool = True
    can_retry_fp32: bool = False
    package: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether its engine could be imported; nothing is."""
        return not self.package or importlib.util.find_spec(self.package) is not None


BACKENDS: dict[str, Backend] = {
    "fake": Backend(
        "backends.fake:create_executors",
        Hosting.THREAD,
        Hosting.INSTANCE_PROCESS,
        Hosting.THREAD,  # its GPUs are made up
        has_costly_sizes=False,
    ),
    "onnxruntime": Backend(
        "backends.onnx_engine.executor:create_executors",
        Hosting.THREAD,
        Hosting.DEVICE_PROCESS,
        Hosting.DEVICE_PROCESS,
        can_retry_fp32=True,
        package="onnxruntime",
    ),
    "pytorch": Backend(
        "backends.torch_engine.executor:create_executors",
        Hosting.DEVICE_PROCESS,
        Hosting.DEVICE_PROCESS,
        Hosting.DEVICE_PROCESS,
        can_retry_fp32=True,
        package="torch",
    ),
    "tensorrt": Backend(
        "backends.tensorrt_engine.executor:create_executors",
        Hosting.DEVICE_PROCESS,
        Hosting.DEVICE_PROCESS,
        Hosting.DEVICE_PROCESS,
        package="tensorrt",
    ),
    "python": Backend(
        "backends.python_forms:create_executors",
        Hosting.INSTANCE_PROCESS,
        Hosting.INSTANCE_PROCESS,
        Hosting.INSTANCE_PROCESS,
        has_costly_sizes=False,
    ),
    "torchserve": Backend(
        "backends.torchserve.executor:create_executors",
        Hosting.INSTANCE_PROCESS,
        Hosting.INSTANCE_PROCESS,
        Hosting.INSTANCE_PROCESS,
        has_costly_sizes=False,
    ),
}
"""By the backend word of config.pbtxt."""


def find_backend(spec: ModelSpec) -> Backend:
    """The entry of a model version's backend. Raises LoadError for an unknown one."""
    try:
        return BACKENDS[spec.backend]
    except KeyError:
        expected = ", ".join(sorted(BACKENDS))
        raise LoadError(f"model '{spec.name}': unknown backend '{spec.backend}', expected one of {expected}") from None


def hosting(spec: ModelSpec, *, is_gpu: bool) -> Hosting:
    """Where instances on the CPU, or on a GPU, live.

    Raises:
        LoadError: Unknown backend, one that cannot use GPUs, or one that cannot run in a thread of this process though
            shoal.toml says so.
    """
    backend = find_backend(spec)
    natural = backend.on_gpu if is_gpu else backend.on_cpu
    if natural is None:
        raise LoadError(f"model '{spec.name}': an instance is on a GPU, backend '{spec.backend}' runs on the CPU only")
    host = spec.execution.host
    if host is Host.THREAD and natural is not Hosting.THREAD:
        raise LoadError(
            f'model \'{spec.name}\': [execution] host is "thread", expected "process" or nothing: backend '
            f"'{spec.backend}' runs in worker processes{' on GPUs' if is_gpu else ''}"
        )
    return backend.as_process if host is Host.PROCESS and natural is Hosting.THREAD else natural


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """The lanes of each of `placement.instances` instances; see `ExecutorFactory`.

    The first call for a backend imports its engine, which may take a few tenths of a second.

    Raises:
        LoadError: Unknown backend, its engine is not installed, a parameter of the model is not valid, or the backend
            cannot do what shoal.toml asks for.
    """
    backend = find_backend(spec)
    if spec.execution.non_finite is NonFinite.RETRY_FP32 and not backend.can_retry_fp32:
        able = ", ".join(sorted(word for word, entry in BACKENDS.items() if entry.can_retry_fp32))
        raise LoadError(
            f'model \'{spec.name}\': [execution] non_finite is "retry_fp32", expected "count" or "fail": backend '
            f"'{spec.backend}' cannot compute in fp32 again; {able} can"
        )
    module_name, function_name = backend.factory.split(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise LoadError(
            f"model '{spec.name}': backend '{spec.backend}' cannot be imported ({error}); install its package"
        ) from error
    create = cast("ExecutorFactory", getattr(module, function_name))
    if not needs_reshaping(spec):
        return create(spec, placement)
    lanes = create(inner_spec(spec), placement)
    return [[ReshapingExecutor(executor, spec) for executor in lane] for lane in lanes]
