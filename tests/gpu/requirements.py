"""What GPU tests need, and why they are skipped where it is missing. Call these while a module is imported."""

import importlib.util
import os
import shutil

import pytest

from backends.devices import gpus
from backends.nvml import load_nvml


def require_gpu() -> None:
    """A GPU that PyTorch can use: all executors manage memory and streams with it."""
    torch = pytest.importorskip("torch", reason="needs PyTorch (make test-gpu)")
    if not torch.cuda.is_available():
        found = ", ".join(gpu.name for gpu in gpus()) or "none"
        pytest.skip(f"needs an NVIDIA GPU that PyTorch can use, found {found}", allow_module_level=True)


def require_onnxruntime_gpu() -> None:
    """The GPU build of ONNX Runtime."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime-gpu (make setup-gpu)")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs onnxruntime-gpu (make setup-gpu)", allow_module_level=True)


def require_tensorrt() -> None:
    """TensorRT's package."""
    if importlib.util.find_spec("tensorrt") is None:
        pytest.skip("needs TensorRT (make setup-gpu)", allow_module_level=True)


def require_nvml() -> None:
    """NVIDIA's management library."""
    if load_nvml() is None:
        pytest.skip("needs nvidia-ml-py (make setup-gpu)", allow_module_level=True)


needs_compiler = pytest.mark.skipif(
    not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")), reason="torch.compile needs a C compiler"
)


def visible_gpu() -> str:
    """The value of CUDA_VISIBLE_DEVICES that shows the first GPU alone."""
    found = gpus()
    return found[0].uuid if found else os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",", 1)[0]
