"""ONNX Runtime on CPUs and GPUs; the only module that imports onnxruntime.

All instances of a model version share one session: `run` releases the interpreter lock and is safe to call from many
threads, and the weights are in memory once. The TensorRT provider runs under a lock of its session, so there each
instance has its own.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

# ONNX Runtime reports its use to its maker unless told otherwise before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from backends.blank import blank_inputs, variable_inputs
from backends.errors import ExecutionError, LoadError
from backends.faults import classify
from backends.gpu_setup import PREPARING
from backends.onnx_engine.libraries import missing_library, preload_libraries
from backends.onnx_engine.providers import CPU, CUDA, TENSORRT, Provider, choose_providers, engine_cache
from backends.onnx_engine.session import SharedSession, check_providers, check_signature, clean_text
from backends.onnx_engine.settings import SessionSettings, read_settings
from backends.ports import Executor, Placement
from models.inference import Array, Tensors
from models.spec import ModelSpec, NonFinite
from models.tensors import DataType

logger = logging.getLogger(__name__)

_LIBRARIES = Path(onnxruntime.__file__).parent / "capi"
_FATAL = 4  # ONNX Runtime would print errors to stderr that it also raises
_GPU_LANES = 2  # one batch is copied while another is computed


def is_installed(distribution: str) -> bool:
    """Whether a distribution package is installed in this environment."""
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_installation(installed: Callable[[str], bool] = is_installed) -> None:
    """Refuse an environment in which two builds of ONNX Runtime overwrote each other's files.

    Raises:
        LoadError: Says how to mend it.
    """
    if installed("onnxruntime") and installed("onnxruntime-gpu"):
        raise LoadError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; run "
            "`pip uninstall onnxruntime onnxruntime-gpu`, then `make setup` (CPU) or `make setup-gpu` (GPU)"
        )


class OnnxExecutor:
    """Computes batches with ONNX Runtime. BYTES tensors have to be UTF-8, as the engine's strings are.

    Args:
        spec: The model version.
        shared: The session, which other executors may use at the same time.
        binds: Bind inputs and outputs to the memory that they are in, instead of handing them over: the copies to a GPU
            and back are then made once and straight. On a CPU there is nothing to save.
        run_entries: Entries of the engine's configuration for each run.
        precise: The session of the same network in single precision, for `run_fp32`; or None.
    """

    def __init__(
        self,
        spec: ModelSpec,
        shared: SharedSession,
        *,
        binds: bool = False,
        run_entries: Mapping[str, str] | None = None,
        precise: SharedSession | None = None,
    ) -> None:
        self._spec = spec
        self._shared = shared
        # The engine binds no strings.
        self._binds = binds and all(
            declared.data_type is not DataType.BYTES for declared in (*spec.inputs, *spec.outputs)
        )
        self._run_entries = run_entries or {}
        self._precise = precise
        self._session: Any = None
        self._precise_session: Any = None
        self._run_options: Any = None
        self._unwarmed_runs = 0
        self._name = f"model '{spec.name}' version {spec.version}"
        self._output_names = [output.name for output in spec.outputs]

    @property
    def unwarmed_runs(self) -> int:
        """Runs of a size that was not warmed up before."""
        return self._unwarmed_runs

    def load(self) -> None:
        """Load the model file, or share the session that another instance has loaded.

        Raises:
            LoadError: The file cannot be read, has other inputs and outputs than declared, or cannot be computed where
                the configuration says.
        """
        self._session = self._shared.acquire()
        if self._precise is not None:
            self._precise_session = self._precise.acquire()
        if self._run_entries:
            self._run_options = onnxruntime.RunOptions()
            for name, text in self._run_entries.items():
                self._run_options.add_run_config_entry(name, text)

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run zeros, or empty strings, of each size. Skipped for inputs with variable dims: no size is sure to fit.

        Raises:
            LoadError: The model does not run with the shapes that are declared.
        """
        variable = variable_inputs(self._spec)
        if variable:
            logger.info("%s: no warm-up, inputs have variable dims: %s", self._name, ", ".join(variable))
            return
        self._shared.warm_up(sizes, lambda rows: self._run_blank(self._session, rows))
        if self._precise is not None:
            self._precise.warm_up(sizes, lambda rows: self._run_blank(self._precise_session, rows))

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch.

        Raises:
            ExecutionError: With the engine's text; OutOfMemoryError and DeviceFaultError where that is the reason.
        """
        self._unwarmed_runs += not self._shared.is_warm(rows)
        return self._run(self._session, inputs)

    def run_fp32(self, inputs: Tensors, rows: int) -> Tensors:
        """Likewise, with the network in single precision."""
        del rows
        if self._precise_session is None:
            raise ExecutionError(f"{self._name}: no network in fp32 is loaded")
        return self._run(self._precise_session, inputs)

    def close(self) -> None:
        """Let go of the session; it is freed when no other instance uses it."""
        self._session = self._precise_session = None

    def _run(self, session: Any, inputs: Tensors) -> Tensors:
        feed = {name: _to_engine(name, array) for name, array in inputs.items()}
        try:
            arrays = self._compute(session, feed)
        except Exception as error:
            text = clean_text(str(error), self._spec)
            raise classify(f"{type(error).__name__}: {text}")(text) from error
        return dict(zip(self._output_names, map(_from_engine, arrays), strict=True))

    def _compute(self, session: Any, feed: Tensors) -> Sequence[Array]:
        arrays: Sequence[Array]
        if self._binds:
            binding = session.io_binding()  # for one run only: it would keep the inputs alive, cleared or not
            for name, array in feed.items():
                binding.bind_cpu_input(name, array)
            for name in self._output_names:
                binding.bind_output(name)
            session.run_with_iobinding(binding, self._run_options)
            arrays = binding.copy_outputs_to_cpu()
        else:
            arrays = session.run(self._output_names, feed, self._run_options)
        return arrays

    def _run_blank(self, session: Any, rows: int) -> None:
        try:
            self._run(session, blank_inputs(self._spec, rows))
        except ExecutionError as error:
            if any(declared.data_type is DataType.BYTES for declared in self._spec.inputs):
                # It may well parse its text, and the empty string is no number.
                logger.warning("%s: not warmed up, it does not run on empty strings: %s", self._name, error)
                return
            raise LoadError(f"{self._name}: does not run on {rows} rows of the declared inputs: {error}") from error


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """The lanes of each instance: one on a CPU, two on a GPU. They share a session; the cores are divided among them.

    Parameters of the model have the names of Triton's backend (see `settings`), accelerators those of its
    ``optimization.execution_accelerators`` (see `providers`).

    Raises:
        LoadError: A parameter is not valid, this build of ONNX Runtime lacks a provider, or two builds are installed.
    """
    check_installation()
    if spec.execution.cuda_graphs and placement.is_gpu:
        logger.warning("model '%s': backend 'onnxruntime' records no CUDA graphs, pytorch and tensorrt do", spec.name)
    settings = read_settings(spec, placement)
    providers = choose_providers(spec, placement, settings, onnxruntime.get_available_providers())
    open_session = functools.partial(_open_session, spec, settings, providers)
    new_session = functools.partial(SharedSession, open_session, warms_once=not placement.is_gpu)
    if settings.is_shared and providers[0].name != TENSORRT:
        sessions = [new_session()] * placement.instances
    else:
        sessions = [new_session() for _ in range(placement.instances)]
    precise = _precise_session(spec, settings, providers, warms_once=not placement.is_gpu)
    executor = functools.partial(
        OnnxExecutor, spec, binds=placement.is_gpu, run_entries=settings.run_entries, precise=precise
    )
    return [[executor(session) for _ in range(_GPU_LANES if placement.is_gpu else 1)] for session in sessions]


def _precise_session(
    spec: ModelSpec, settings: SessionSettings, providers: Sequence[Provider], *, warms_once: bool
) -> SharedSession | None:
    """One session for all instances, in case that their answers are no numbers; None where nobody wants it."""
    if spec.execution.non_finite is not NonFinite.RETRY_FP32:
        return None
    file = spec.file.with_suffix(f".fp32{spec.file.suffix}")
    if not file.is_file():
        raise LoadError(
            f"model '{spec.name}' version {spec.version}: [execution] non_finite is \"retry_fp32\", which needs the "
            f"network in fp32 beside {spec.file.name}: found no file {file.name} (`shoal export --keep-fp32` writes it)"
        )
    # TensorRT runs a session in one thread at a time, and may be what computes in half precision.
    precise = [provider for provider in providers if provider.name != TENSORRT]
    return SharedSession(
        functools.partial(_open_session, replace(spec, file=file), settings, precise), warms_once=warms_once
    )


def _open_session(spec: ModelSpec, settings: SessionSettings, providers: Sequence[Provider]) -> Any:
    is_on_gpu = any(provider.name == CUDA for provider in providers)
    try:
        _prepare(providers)
        with PREPARING if is_on_gpu else contextlib.nullcontext():
            session = onnxruntime.InferenceSession(
                str(spec.file.absolute()),
                _session_options(settings),
                providers=[(provider.name, dict(provider.options)) for provider in providers],
                enable_fallback=0,  # it would print, and run on the CPU
            )
    except Exception as error:
        missing = [missing_library(_LIBRARIES, provider.name) for provider in providers if provider.name != CPU]
        text = clean_text(" ".join([str(error), *missing]), spec)
        raise LoadError(f"model '{spec.name}' version {spec.version}: {text}") from error
    check_providers(spec, session, providers, _explain)
    check_signature(spec, session)
    return session


def _prepare(providers: Sequence[Provider]) -> None:
    """What providers need before a session is opened. Raises OSError."""
    if any(provider.name == CUDA for provider in providers):
        preload_libraries(onnxruntime.preload_dlls)
    cache = engine_cache(providers)
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)


def _explain(provider: str) -> str:
    missing = missing_library(_LIBRARIES, provider)
    return missing or "its library can be loaded, so look for a driver (nvidia-smi), and at CUDA_VISIBLE_DEVICES"


def _session_options(settings: SessionSettings) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
    if settings.is_parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = settings.has_arena
    options.enable_mem_pattern = settings.has_pattern
    # Spinning threads burn the cores that decoding and the event loop need: 7 times the CPU time of a lone request.
    entries = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
    for name, text in (entries | dict(settings.session_entries)).items():
        options.add_session_config_entry(name, text)
    options.log_severity_level = _FATAL
    return options


def _to_engine(name: str, array: Array) -> Array:
    if array.dtype != np.object_:
        return array
    try:
        texts = [value.decode() for value in array.ravel().tolist()]  # the engine would take bytes for their repr
    except UnicodeDecodeError as error:
        raise ExecutionError(f"input '{name}' holds bytes that are not UTF-8 ({error}), expected text") from error
    return np.array(texts, np.object_).reshape(array.shape)


def _from_engine(array: Array) -> Array:
    if array.dtype != np.object_:
        return array
    return np.array([text.encode() for text in array.ravel().tolist()], np.object_).reshape(array.shape)
