"""Which backend runs a model and which file it runs: given, derived from each other, or recognised by file name."""

from pathlib import Path
from typing import NamedTuple

from models.pbtxt import ConfigText, ModelConfig

ONNX_FILE = "model.onnx"
TORCHVISION_PARAMETER = "torchvision_model"
"""Names a model of torchvision, which then needs no file."""


class _Backend(NamedTuple):
    """A backend that is available here; `files` are recognised in this order, the first is the usual one."""

    platform: str = ""
    files: tuple[str, ...] = ()


_AVAILABLE = {
    "onnxruntime": _Backend("onnxruntime_onnx", (ONNX_FILE,)),
    "pytorch": _Backend("pytorch_libtorch", ("model.pt", "model.pt2", "model.pth")),
    "tensorrt": _Backend("tensorrt_plan", ("model.plan", ONNX_FILE)),
    "python": _Backend(files=("model.py",)),
    "fake": _Backend(),
}
_BACKEND_BY_PLATFORM = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
}
# In Triton's order: the first one found wins.
_BACKEND_BY_FILE = {
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.plan": "tensorrt",
    ONNX_FILE: "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.pt2": "pytorch",
    "model.pth": "pytorch",
    "model.py": "python",
}
_REPLACEMENTS = {
    "tensorflow": (
        "an ONNX file: convert the model with `python -m tf2onnx.convert --saved-model DIRECTORY --output model.onnx` "
        '(of a frozen graph: --graphdef FILE --inputs NAMES --outputs NAMES) and set backend: "onnxruntime"'
    ),
    "openvino": 'an ONNX file: export the original model with opset 17 or so and set backend: "onnxruntime"',
    "torch_aoti": (
        'platform: "pytorch_libtorch" with a TorchScript file or a program of torch.export.save; packages compiled '
        "ahead of time are not read here"
    ),
}
_AFTER_REPLACING = {
    "tensorflow": 'backend: "onnxruntime"',
    "openvino": 'backend: "onnxruntime"',
    "torch_aoti": 'platform: "pytorch_libtorch"',
}


def complete_backend(text: ConfigText, version_directory: Path) -> Path:
    """Fill in backend, platform and default_model_filename where they are missing.

    Returns:
        The model's file; for a model without a file, the version directory.

    Raises:
        ConfigError: No backend can be told, it is not available, it contradicts the platform, or its file is missing.
    """
    config = text.message
    _check_platform(text)
    backend = config.backend or _BACKEND_BY_PLATFORM.get(config.platform) or _recognised(version_directory)
    if backend not in _AVAILABLE:
        raise _unavailable(text, backend, version_directory)
    config.backend = backend
    platform, files = _AVAILABLE[backend]
    if not files:
        return version_directory
    config.platform = platform
    if not config.default_model_filename:
        present = next((name for name in files if (version_directory / name).is_file()), None)
        if present is None and _is_of_torchvision(config):
            return version_directory
        config.default_model_filename = present or files[0]
    return _model_file(text, version_directory)


def _is_of_torchvision(config: ModelConfig) -> bool:
    return bool(config.backend == "pytorch" and TORCHVISION_PARAMETER in config.parameters)


def _check_platform(text: ConfigText) -> None:
    backend, platform = text.message.backend, text.message.platform
    if not platform:
        return
    if platform not in _BACKEND_BY_PLATFORM:
        words = ", ".join((*_BACKEND_BY_PLATFORM, "ensemble"))
        raise text.lines.error("platform", found=f'"{platform}"', expected=f"one of {words}, or a backend instead")
    if backend and backend != _BACKEND_BY_PLATFORM[platform]:
        expected = f'"{_BACKEND_BY_PLATFORM[platform]}", the backend of platform "{platform}"; remove one of the two'
        fix = f'backend: "{_BACKEND_BY_PLATFORM[platform]}"'
        raise text.lines.error("backend", found=f'"{backend}"', expected=expected, fix=fix)
    if platform in _REPLACEMENTS:
        expected, fix = _REPLACEMENTS[platform], _AFTER_REPLACING[platform]
        raise text.lines.error("platform", found=f'"{platform}"', expected=expected, fix=fix)


def _recognised(version_directory: Path) -> str:
    return next((backend for name, backend in _BACKEND_BY_FILE.items() if (version_directory / name).exists()), "")


def _unavailable(text: ConfigText, backend: str, version_directory: Path) -> Exception:
    available = ", ".join(_AVAILABLE)
    if not backend:
        found = f"neither backend nor platform, and no known model file in {version_directory.name}/"
        expected = f'backend: "onnxruntime" with a file {ONNX_FILE} (available backends: {available})'
        return text.lines.error("backend", found=found, expected=expected)
    field = "platform" if text.message.platform and not text.message.backend else "backend"
    expected = _REPLACEMENTS.get(backend, f"a backend that is available here: {available}")
    fix = _AFTER_REPLACING.get(backend, "")
    return text.lines.error(field, found=f'backend "{backend}"', expected=expected, fix=fix)


def _model_file(text: ConfigText, version_directory: Path) -> Path:
    name = text.message.default_model_filename
    if name in (".", "..") or any(forbidden in name for forbidden in "/\\\0"):
        expected = "a plain file name without path separators"
        fix = f'default_model_filename: "{_AVAILABLE[text.message.backend].files[0]}"'
        raise text.lines.error("default_model_filename", found=f"{name!r}", expected=expected, fix=fix)
    file: Path = version_directory / name
    if not file.is_file():
        expected = f'a file "{name}" in the version directory {version_directory.name}/'
        found = "a directory" if file.is_dir() else "no such file"
        raise text.lines.error("default_model_filename", found=found, expected=expected + _other_files(text))
    return file


def _other_files(text: ConfigText) -> str:
    """What else would do, for a file whose name the config does not give."""
    config = text.message
    if text.lines.mentions("default_model_filename"):
        return ""
    names = [f'"{name}"' for name in _AVAILABLE[config.backend].files[1:]]
    hint = f", or the parameter {TORCHVISION_PARAMETER}" if config.backend == "pytorch" else ""
    return (f", or {' or '.join(names)}" if names else "") + hint
