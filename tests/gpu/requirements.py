"""What GPU tests need, and why they are skipped where it is missing. Call these while a module is imported."""

import importlib.util

import pytest

from backends.devices import gpus


def require_gpu() -> None:
    """A GPU that PyTorch can use: all executors manage memory and streams with it."""
    torch = pytest.importorskip("torch", reason="needs PyTorch (make test-gpu)")
    if not torch.cuda.is_available():
        found = ", ".join(gpu.name for gpu in gpus()) or "none"
        pytest.skip(f"needs an NVIDIA GPU that PyTorch can use, found {found}", allow_module_level=True)


def require_onnxruntime_gpu() -> None:
    """The GPU build of ONNX Runtime."""
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs onnxruntime-gpu (make setup-gpu)", allow_module_level=True)


def require_tensorrt() -> None:
    """TensorRT's package."""
    if importlib.util.find_spec("tensorrt") is None:
        pytest.skip("needs TensorRT (make setup-gpu)", allow_module_level=True)
