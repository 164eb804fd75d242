"""ONNX Runtime on the CPU; the only module that imports onnxruntime.

All instances of a model version share one session: `run` releases the interpreter lock and is safe to call from many
threads, and the weights are in memory once.
"""

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import numpy as np

# ONNX Runtime reports its use to its maker unless told otherwise before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from backends.errors import ExecutionError, LoadError
from backends.ports import Executor, Placement
from models.inference import Array, Tensors
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec

logger = logging.getLogger(__name__)

_FATAL = 4  # ONNX Runtime would print errors to stderr that it also raises
_RUNTIME_SOURCES = re.compile(r"/onnxruntime_src/\S*")
_TYPE_WORDS = {
    "tensor(bool)": DataType.BOOL,
    "tensor(uint8)": DataType.UINT8,
    "tensor(uint16)": DataType.UINT16,
    "tensor(uint32)": DataType.UINT32,
    "tensor(uint64)": DataType.UINT64,
    "tensor(int8)": DataType.INT8,
    "tensor(int16)": DataType.INT16,
    "tensor(int32)": DataType.INT32,
    "tensor(int64)": DataType.INT64,
    "tensor(float16)": DataType.FP16,
    "tensor(float)": DataType.FP32,
    "tensor(double)": DataType.FP64,
    "tensor(string)": DataType.BYTES,
}  # BF16 is missing: ONNX Runtime cannot take it from numpy


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


class SharedSession:
    """One session for all instances of a version: made by the first that loads, gone with the last that closes.

    Args:
        spec: The model version.
        intra_op_threads: Threads inside one operator, the calling one included.
        inter_op_threads: Operators of one run that may execute at once.
    """

    def __init__(self, spec: ModelSpec, *, intra_op_threads: int, inter_op_threads: int) -> None:
        self._spec = spec
        self._intra_op_threads = intra_op_threads
        self._inter_op_threads = inter_op_threads
        self._lock = threading.Lock()
        self._reference: Callable[[], Any] = lambda: None  # weak: executors own the session
        self._warmed_rows: set[int] = set()

    def acquire(self) -> Any:
        """The InferenceSession, loaded on first use; its package has no types. Raises LoadError."""
        with self._lock:
            session = self._reference()
            if session is None:
                session = self._load()
                self._reference = weakref.ref(session)
                self._warmed_rows.clear()
            return session

    def warm_up(self, sizes: Sequence[int], run: Callable[[int], None]) -> None:
        """Call `run` for each size that no other instance has run; returns when all have been."""
        with self._lock:
            for rows in sizes:
                if rows not in self._warmed_rows:
                    run(rows)
                    self._warmed_rows.add(rows)

    def _load(self) -> Any:
        try:
            session = onnxruntime.InferenceSession(
                str(self._spec.file.absolute()), self._options(), providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            text = clean_text(str(error), self._spec)
            raise LoadError(f"model '{self._spec.name}' version {self._spec.version}: {text}") from error
        check_signature(self._spec, session)
        return session

    def _options(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._intra_op_threads
        options.inter_op_num_threads = self._inter_op_threads
        if self._inter_op_threads > 1:  # the number has no effect in sequential mode
            options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        # Spinning threads burn the cores that decoding and the event loop need: 7 times the CPU time of a lone request.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = _FATAL
        return options


class OnnxExecutor:
    """Computes batches with ONNX Runtime. BYTES tensors have to be UTF-8, as the engine's strings are."""

    def __init__(self, spec: ModelSpec, shared: SharedSession) -> None:
        self._spec = spec
        self._shared = shared
        self._session: Any = None
        self._output_names = [output.name for output in spec.outputs]

    def load(self) -> None:
        """Load the model file, or share the session that another instance has loaded.

        Raises:
            LoadError: The file cannot be read, or has other inputs and outputs than declared.
        """
        self._session = self._shared.acquire()

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Run zeros, or empty strings, of each size. Skipped for inputs with variable dims: no size is sure to fit.

        Raises:
            LoadError: The model does not run with the shapes that are declared.
        """
        variable = [declared.name for declared in self._spec.inputs if declared.has_variable_dims]
        if variable:
            logger.info(
                "model '%s' version %d: no warm-up, inputs have variable dims: %s",
                self._spec.name,
                self._spec.version,
                ", ".join(variable),
            )
            return
        self._shared.warm_up(sizes, self._run_zeros)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Compute one dense batch. Raises ExecutionError with the engine's text."""
        del rows  # in the arrays' shapes
        feed = {name: _to_engine(name, array) for name, array in inputs.items()}
        try:
            arrays = self._session.run(self._output_names, feed)
        except Exception as error:
            raise ExecutionError(clean_text(str(error), self._spec)) from error
        return dict(zip(self._output_names, map(_from_engine, arrays), strict=True))

    def close(self) -> None:
        """Let go of the session; it is freed when no other instance uses it."""
        self._session = None

    def _run_zeros(self, rows: int) -> None:
        inputs = {declared.name: _zeros(declared, rows, self._spec) for declared in self._spec.inputs}
        try:
            self.run(inputs, rows)
        except ExecutionError as error:
            name = f"model '{self._spec.name}' version {self._spec.version}"
            if any(declared.data_type is DataType.BYTES for declared in self._spec.inputs):
                # It may well parse its text, and the empty string is no number.
                logger.warning("%s: not warmed up, it does not run on empty strings: %s", name, error)
                return
            raise LoadError(f"{name}: does not run on {rows} rows of the declared inputs: {error}") from error


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """Executors that share one session; the cores are divided among them.

    The model's parameters `intra_op_thread_count` and `inter_op_thread_count` override the number of threads; 0 means
    the default.

    Raises:
        LoadError: A parameter is not valid, or two builds of ONNX Runtime are installed.
    """
    check_installation()
    shared = SharedSession(
        spec,
        intra_op_threads=_thread_count(spec, "intra_op_thread_count") or max(1, placement.cores // placement.instances),
        inter_op_threads=_thread_count(spec, "inter_op_thread_count") or 1,
    )
    return [[OnnxExecutor(spec, shared)] for _ in range(placement.instances)]


def clean_text(text: str, spec: ModelSpec) -> str:
    """The engine's error text without this machine's directories, on one line."""
    for directory in (spec.file.absolute().parent, spec.file.resolve().parent):
        text = text.replace(f"{directory}/", f"{spec.name}/{spec.version}/")
    return " ".join(_RUNTIME_SOURCES.sub("", text).split()).removeprefix("[ONNXRuntimeError] : ")


def check_signature(spec: ModelSpec, session: Any) -> None:
    """Compare names and element types of a session with the declaration.

    Raises:
        LoadError: They differ; names the tensor, what the file has and what was declared.
    """
    where = f"model '{spec.name}' version {spec.version}"
    required = {found.name: found.type for found in session.get_inputs()}
    accepted = required | {found.name: found.type for found in session.get_overridable_initializers()}
    given = {found.name: found.type for found in session.get_outputs()}
    for kind, declared, found in (("input", spec.inputs, accepted), ("output", spec.outputs, given)):
        for tensor in declared:
            word = found.get(tensor.name)
            if word is None:
                raise LoadError(f"{where}: {kind} '{tensor.name}' is declared, the file has {', '.join(found)}")
            if _TYPE_WORDS.get(word) is not tensor.data_type:
                raise LoadError(f"{where}: {kind} '{tensor.name}' is {word}, declared {tensor.data_type.config_name}")
    undeclared = required.keys() - {tensor.name for tensor in spec.inputs}
    if undeclared:
        raise LoadError(f"{where}: the file needs inputs that are not declared: {', '.join(sorted(undeclared))}")


def _thread_count(spec: ModelSpec, parameter: str) -> int:
    text = spec.parameters.get(parameter, "0")
    if not (text.isascii() and text.isdigit()):
        raise LoadError(f"model '{spec.name}': parameter '{parameter}' is '{text}', expected a number from 0 up")
    return int(text)


def _zeros(declared: TensorSpec, rows: int, spec: ModelSpec) -> Array:
    shape = (rows, *declared.dims) if spec.has_batch_dimension else declared.dims
    return np.full(shape, b"" if declared.data_type is DataType.BYTES else 0, declared.data_type.numpy)


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
