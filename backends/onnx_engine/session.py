"""A session of ONNX Runtime and those who share it: pure of the engine, which hands in how a session is opened."""

import re
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from backends.errors import LoadError
from backends.onnx_engine.providers import CPU, Provider
from models.spec import ModelSpec
from models.tensors import DataType

_RUNTIME_SOURCES = re.compile(r"/onnxruntime_src/\S*")
_MACHINE = re.compile(r" *; *(hostname|file|line)=[^;]*?(?= *(;|$))")
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


class SharedSession:
    """One session for all that use it: made by the first that loads, gone with the last that closes.

    Args:
        open_session: Makes an InferenceSession, whose package has no types; raises LoadError.
        warms_once: A size that one user has run is warm for all. Not so on a GPU, where each thread has handles and
            workspaces of its own.
    """

    def __init__(self, open_session: Callable[[], Any], *, warms_once: bool = True) -> None:
        self._open = open_session
        self._warms_once = warms_once
        self._lock = threading.Lock()
        self._reference: Callable[[], Any] = lambda: None  # weak: executors own the session
        self._warmed_rows: set[int] = set()

    def is_warm(self, rows: int) -> bool:
        """Whether this size has been warmed up."""
        return rows in self._warmed_rows

    def acquire(self) -> Any:
        """The session, opened on first use. Raises LoadError."""
        with self._lock:
            session = self._reference()
            if session is None:
                session = self._open()
                self._reference = weakref.ref(session)
                self._warmed_rows.clear()
            return session

    def warm_up(self, sizes: Sequence[int], run: Callable[[int], None]) -> None:
        """Call `run` for each size that is not warm yet; returns when all are."""
        with self._lock:
            for rows in sizes:
                if not (self._warms_once and rows in self._warmed_rows):
                    run(rows)
                    self._warmed_rows.add(rows)


def check_providers(spec: ModelSpec, session: Any, wanted: Sequence[Provider], explain: Callable[[str], str]) -> None:
    """Refuse a session that runs on the CPU though another provider was asked for: the engine does that unasked.

    Args:
        spec: The model version.
        session: Opened with the wanted providers.
        wanted: In order of preference.
        explain: Why a provider of this name cannot be used here.

    Raises:
        LoadError: A provider was left out; says which and why.
    """
    found = session.get_providers()
    for provider in wanted:
        if provider.name != CPU and provider.name not in found:
            raise LoadError(
                f"model '{spec.name}' version {spec.version}: ONNX Runtime left out {provider.name} and would compute "
                f"with {', '.join(found)}: {explain(provider.name)}"
            )


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


def clean_text(text: str, spec: ModelSpec) -> str:
    """The engine's error text without this machine's directories and name, on one line."""
    for directory in (spec.file.absolute().parent, spec.file.resolve().parent):
        text = text.replace(f"{directory}/", f"{spec.name}/{spec.version}/")
    text = _MACHINE.sub("", _RUNTIME_SOURCES.sub("", text))
    return " ".join(text.split()).removeprefix("[ONNXRuntimeError] : ")
