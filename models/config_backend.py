"""Which backend runs a model and which file it runs: given, derived from each other, or recognised by file name."""

from pathlib import Path

from models.pbtxt import ConfigText

AVAILABLE = ("onnxruntime", "fake")
DEFAULT_FILE = "model.onnx"

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
    DEFAULT_FILE: "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.pt2": "pytorch",
    "model.py": "python",
}


def complete_backend(text: ConfigText, version_directory: Path) -> Path:
    """Fill in backend, platform and default_model_filename where they are missing.

    Returns:
        The model's file; for a backend without files, the version directory.

    Raises:
        ConfigError: No backend can be told, it is not available, it contradicts the platform, or its file is missing.
    """
    config = text.message
    _check_platform(text)
    backend = config.backend or _BACKEND_BY_PLATFORM.get(config.platform) or _recognised(version_directory)
    if backend not in AVAILABLE:
        raise _unavailable(text, backend, version_directory)
    config.backend = backend
    if backend == "fake":
        return version_directory
    config.platform = "onnxruntime_onnx"
    config.default_model_filename = config.default_model_filename or DEFAULT_FILE
    return _model_file(text, version_directory)


def _check_platform(text: ConfigText) -> None:
    backend, platform = text.message.backend, text.message.platform
    if not platform:
        return
    if platform not in _BACKEND_BY_PLATFORM:
        words = ", ".join(_BACKEND_BY_PLATFORM)
        raise text.lines.error("platform", found=f'"{platform}"', expected=f"one of {words}, or a backend instead")
    if backend and backend != _BACKEND_BY_PLATFORM[platform]:
        expected = f'"{_BACKEND_BY_PLATFORM[platform]}", the backend of platform "{platform}"; remove one of the two'
        raise text.lines.error("backend", found=f'"{backend}"', expected=expected)


def _recognised(version_directory: Path) -> str:
    return next((backend for name, backend in _BACKEND_BY_FILE.items() if (version_directory / name).exists()), "")


def _unavailable(text: ConfigText, backend: str, version_directory: Path) -> Exception:
    if not backend:
        found = f"neither backend nor platform, and no known model file in {version_directory.name}/"
        expected = f'backend: "onnxruntime" with a file {DEFAULT_FILE} (available backends: {", ".join(AVAILABLE)})'
        return text.lines.error("backend", found=found, expected=expected)
    field = "platform" if text.message.platform and not text.message.backend else "backend"
    return text.lines.error(
        field, found=f'backend "{backend}"', expected=f"a backend that is available here: {', '.join(AVAILABLE)}"
    )


def _model_file(text: ConfigText, version_directory: Path) -> Path:
    name = text.message.default_model_filename
    if name in (".", "..") or any(forbidden in name for forbidden in "/\\\0"):
        expected = "a plain file name without path separators"
        raise text.lines.error("default_model_filename", found=f"{name!r}", expected=expected)
    file: Path = version_directory / name
    if not file.is_file():
        expected = f'a file "{name}" in the version directory {version_directory.name}/'
        found = "a directory" if file.is_dir() else "no such file"
        raise text.lines.error("default_model_filename", found=found, expected=expected)
    return file
