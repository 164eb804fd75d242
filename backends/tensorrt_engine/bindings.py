"""The only module that imports TensorRT."""

import functools
import importlib
from typing import cast

from backends.errors import LoadError
from backends.tensorrt_engine.api import TensorRt
from backends.tensorrt_engine.messages import Library, with_logger

OLDEST = (10, 7)


@functools.cache
def load_tensorrt() -> Library:
    """The installed module, with this process's only logger.

    Raises:
        LoadError: There is none, its libraries cannot be loaded, or it is too old.
    """
    try:
        api = cast("TensorRt", importlib.import_module("tensorrt"))
    except (ImportError, OSError) as error:  # OSError: a library of CUDA is missing
        raise LoadError(
            f"TensorRT cannot be imported ({error}); run `make setup-gpu`, or use the ONNX file with backend "
            "'onnxruntime'"
        ) from error
    check_version(api)
    return with_logger(api)


def check_version(api: TensorRt) -> None:
    """Refuse versions whose interface differs from `TensorRt`. Raises LoadError."""
    found = tuple(int(part) for part in api.__version__.split(".")[:2])
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise LoadError(f"found TensorRT {api.__version__}, expected {oldest} or later; run `make setup-gpu`")
