"""Which error of ours an engine's text becomes; the texts are those that the engines really give."""

import pytest

from backends.errors import DeviceFaultError, ExecutionError, OutOfMemoryError
from backends.faults import classify

FAULTS = {
    "onnxruntime": "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; expr=cudaStreamSynchronize(s)",
    "onnxruntime cuDNN": "CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0 ; expr=cudnnConvolutionForward(h)",
    "torch": "AcceleratorError: CUDA error: device-side assert triggered",
    "torch launch": "RuntimeError: CUDA error: unspecified launch failure",
    "torch unknown": "RuntimeError: CUDA error: unknown error",
    "torch misaligned": "RuntimeError: CUDA error: misaligned address",
    "torch busy": "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "ECC": "CUDA error: uncorrectable ECC error encountered",
    "NVLink": "CUDA error: uncorrectable NVLink error detected during the execution",
    "hardware": "CUDA error: hardware stack error",
    "timeout": "CUDA error: the launch timed out and was terminated",
    "tensorrt": "Error Code 1: Cuda Runtime (an illegal memory access was encountered)",
    "driver constant": "cuMemcpyHtoDAsync failed: CUDA_ERROR_LAUNCH_FAILED",
    "runtime constant": "cudaErrorIllegalAddress: an error",
    "code alone": "CUDA error 719 at line 12",
    "lost": "Unable to determine the device handle: GPU is lost. Reboot the system",
    "memory on a broken device": "CUDA failure 700: an illegal memory access was encountered; out of memory",
}
OUT_OF_MEMORY = {
    "onnxruntime arena": (
        "Non-zero status code returned while running Conv node. Status Message: BFCArena::AllocateRawInternal(size_t) "
        "Failed to allocate memory for requested buffer of size 939524096"
    ),
    "onnxruntime limit": "Available memory of 1048576 is smaller than requested bytes of 8388608",
    "onnxruntime": "CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc((void**)&p, size)",
    "onnxruntime cuBLAS": "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0",
    "torch": "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1.2 GiB free",
    "torch on the CPU": "DefaultCPUAllocator: can't allocate memory: you tried 4000 bytes",
    "C++": "std::bad_alloc",
    "numpy": "_ArrayMemoryError: Unable to allocate 3.00 GiB for an array with shape (1000, 805306)",
    "Python": "MemoryError: ",
    "tensorrt": "Error Code 2: OutOfMemory (Requested size was 8589934592 bytes.)",
    "tensorrt workspace": "Requested amount of GPU memory (2147483648 bytes) could not be allocated.",
    "cuDNN": "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "driver constant": "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
}
OTHERS = {
    "bad index": "indices element out of data bounds, idx=-9999 must be within the inclusive range [-1000,999]",
    "bad shape": "Got invalid dimensions for input: x for the following indices index: 0 Got: 4 Expected: 1",
    "short buffer": "not enough space: expected 270080, got 261760",
    "other code": "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
    "other device": "CUDA error: invalid device ordinal",
    "no device": "CUDA failure 100: no CUDA-capable device is detected ; GPU=0",
    "a word in the text of a user": "invalid address: 7 Memory Lane",
    "nothing": "",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in FAULTS.items()])
def test_a_broken_device_is_a_fault_that_only_a_new_process_mends(text: str):
    assert classify(text) is DeviceFaultError


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in OUT_OF_MEMORY.items()])
def test_lack_of_memory_is_told_apart_since_a_smaller_batch_may_fit(text: str):
    assert classify(text) is OutOfMemoryError


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in OTHERS.items()])
def test_anything_else_is_the_failure_of_a_batch(text: str):
    assert classify(text) is ExecutionError
