"""The shared libraries behind ONNX Runtime's providers for GPUs: found where packages put them, or named if missing."""

import contextlib
import ctypes
import functools
import importlib
import io
from collections.abc import Callable
from pathlib import Path


@functools.cache
def preload_libraries(preload_dlls: Callable[[], None]) -> None:
    """Load the libraries of CUDA, cuDNN and TensorRT from packages, where the system's loader does not search.

    What is not found may still be elsewhere: whether a provider works shows when a session is opened.

    Args:
        preload_dlls: The engine's own function, which knows the packages of CUDA. It prints, which nobody should see.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        preload_dlls()
    with contextlib.suppress(ImportError):
        importlib.import_module("tensorrt_libs")  # loads them when it is imported


def missing_library(directory: Path, provider: str) -> str:
    """Why a provider's library cannot be loaded, or nothing if it can.

    The engine keeps that to itself, but the system's loader tells it again.

    Args:
        directory: Where the engine has its libraries.
        provider: E.g. ``CUDAExecutionProvider``.
    """
    word = provider.removesuffix("ExecutionProvider").lower()
    try:
        ctypes.CDLL(str(directory / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(directory / f"libonnxruntime_providers_{word}.so"))
    except OSError as error:
        return f"{str(error).replace(f'{directory}/', '')}; install the package that has it"
    return ""
