"""What an exception of PyTorch means: a pure function of its type's name and its text."""

import re

from backends.errors import BackendError, ExecutionError, OutOfMemoryError
from backends.faults import classify

_LONGEST_TEXT = 400
# Where a message ends and PyTorch's advice to its own developers, or its C++ stack, begins.
_TAIL = re.compile(
    r"Exception raised from |\n\s*frame #\d|C\+\+ CapturedTraceback|CUDA kernel errors might be asynch|"
    r"For debugging consider passing CUDA_|Compile with [`']?TORCH_USE_CUDA_DSA|Set TORCHDYNAMO_VERBOSE|"
    r"Set TORCH_LOGS|You can suppress this exception|If reserved but unallocated memory is large|"
    r"Search for [`']?cudaError",
)
_SCRIPT_TRACE = re.compile(r"Traceback of TorchScript.*?(?:RuntimeError|\w+Error|Exception): ", re.DOTALL)
_SCRIPT_HEAD = re.compile(r"The following operation failed in the TorchScript interpreter\.\s*")
_PATH = re.compile(r"(?<![\w.:/])(?:/[\w.+@~-]+)+/(?=[\w.+@~-])")


def error_class(type_name: str, text: str) -> type[ExecutionError]:
    """The class of error that an exception stands for.

    Args:
        type_name: Name of its type, e.g. ``OutOfMemoryError``.
        text: Its full text.
    """
    return OutOfMemoryError if type_name == "OutOfMemoryError" else classify(f"{type_name}: {text}")


def clean_text(text: str) -> str:
    """The message on one line: without directories, C++ stacks and advice to developers of PyTorch."""
    text = _SCRIPT_TRACE.sub("", _SCRIPT_HEAD.sub("", text))
    text = " ".join(_PATH.sub("", _TAIL.split(text, maxsplit=1)[0]).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."


def to_failure(error: BaseException) -> BackendError:
    """The error to raise instead. It does not refer to the original, whose traceback keeps the batch's memory alive."""
    if isinstance(error, BackendError):
        return error
    name, text = type(error).__name__, str(error)
    return error_class(name, text)(f"{name}: {clean_text(text)}")
