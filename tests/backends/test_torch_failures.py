"""What PyTorch's exceptions mean."""

import re

import pytest

from backends.errors import DeviceFaultError, ExecutionError, LoadError, OutOfMemoryError
from backends.torch_engine.failures import clean_text, error_class, to_failure

TEXTS = [
    (
        "OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity",
        OutOfMemoryError,
    ),
    ("OutOfMemoryError", "", OutOfMemoryError),
    (
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory",
        OutOfMemoryError,
    ),
    ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", OutOfMemoryError),
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered", DeviceFaultError),
    ("RuntimeError", "CUDA error: device-side assert triggered\nCUDA kernel errors might be", DeviceFaultError),
    ("AcceleratorError", "CUDA error: misaligned address", DeviceFaultError),
    ("AcceleratorError", "CUDA error: unspecified launch failure", DeviceFaultError),
    ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered", DeviceFaultError),
    ("AcceleratorError", "CUDA error: the launch timed out and was terminated", DeviceFaultError),
    ("AcceleratorError", "CUDA error: unknown error", DeviceFaultError),
    ("AcceleratorError", "CUDA error: out of memory", OutOfMemoryError),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", ExecutionError),
    ("IndexError", "index 7 is out of bounds for dimension 0 with size 3", ExecutionError),
    ("RuntimeError", "CUDA error: invalid configuration argument", ExecutionError),
]


@pytest.mark.parametrize(("type_name", "text", "expected"), TEXTS)
def test_the_class_follows_from_type_and_text(type_name: str, text: str, expected: type[ExecutionError]):
    assert error_class(type_name, text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no file /srv/models/net/1/model.pt here", "no file model.pt here"),
        (
            "bad shape\nException raised from check at ../aten/src/x.cpp:12 (most recent call first):\nframe #0: f",
            "bad shape",
        ),
        (
            "CUDA error: misaligned address\nCUDA kernel errors might be asynchronously reported",
            "CUDA error: misaligned address",
        ),
        (
            "backend='inductor' raised:\nno compiler\n\nSet TORCHDYNAMO_VERBOSE=1 for",
            "backend='inductor' raised: no compiler",
        ),
        (
            "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript, serialized code "
            '(most recent call last):\n  File "code/net.py", line 9, in forward\nRuntimeError: index out of range',
            "index out of range",
        ),
        ("2/3 of https://pytorch.org/docs are read", "2/3 of https://pytorch.org/docs are read"),
    ],
    ids=["path", "stack", "advice", "compiler", "script", "no-path"],
)
def test_texts_lose_directories_stacks_and_advice(text: str, expected: str):
    assert clean_text(text) == expected


def test_a_long_text_is_cut():
    assert len(clean_text("x " * 5_000)) < 500


def test_the_new_error_does_not_refer_to_the_old_one():
    failure = to_failure(RuntimeError("bad shape"))

    assert re.fullmatch("RuntimeError: bad shape", str(failure))
    assert failure.__cause__ is None


def test_errors_of_our_own_stay_as_they_are():
    error = LoadError("no such file")

    assert to_failure(error) is error
