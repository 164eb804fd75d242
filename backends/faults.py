"""What an engine's error text says about the device: enough memory, a broken context, or merely a failed batch.

Engines raise the same few CUDA, cuDNN, cuBLAS and TensorRT errors in wordings of their own; only their text is left
when they reach Python.
"""

import re

from backends.errors import DeviceFaultError, ExecutionError, OutOfMemoryError

_FAULT = re.compile(
    r"""
      illegal\ (memory\ access|instruction) | misaligned\ address | invalid\ program\ counter
    | (operation\ not\ supported\ on\ global/shared|invalid)\ address\ space
    | device-side\ assert | uncorrectable\ (ECC|NVLink)\ error | hardware\ stack\ error
    | unspecified\ launch\ failure | launch\ timed\ out\ and\ was\ terminated
    | GPU\ (is\ lost|has\ fallen\ off\ the\ bus) | CUDA-capable\ device.{0,16}\bbusy\ or\ unavailable
    | driver\ shutting\ down | context\ is\ destroyed
    | CUDA(\ runtime|\ driver)?\ (error|failure)\b.{0,12}\bunknown\ error
    | CUDNN_STATUS_EXECUTION_FAILED\b
    | cudaError(IllegalAddress|IllegalInstruction|MisalignedAddress|InvalidAddressSpace|InvalidPc|Assert
        |ECCUncorrectable|HardwareStackError|LaunchFailure|LaunchTimeout|NvlinkUncorrectable|CudartUnloading|ContextIsDestroyed
        |DevicesUnavailable|ExternalDevice|Unknown)\b
    | CUDA_ERROR_(ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|ASSERT
        |ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR|LAUNCH_FAILED|LAUNCH_TIMEOUT|NVLINK_UNCORRECTABLE|DEINITIALIZED
        |CONTEXT_IS_DESTROYED|DEVICE_UNAVAILABLE|EXTERNAL_DEVICE|UNKNOWN)\b
    | CUDA\ (failure|error)[\ (:]{1,2}(4|46|214|220|700|702|709|710|714|715|716|717|718|719|721|999)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"""
      out\ of\ (\w+\ )?memory | OutOfMemory | bad_alloc\b | \bMemoryError\b
    | cudaErrorMemoryAllocation | CUDA_ERROR_OUT_OF_MEMORY | CUDA\ (failure|error)[\ (:]{1,2}2\b
    | (CUBLAS|CUDNN|CUSOLVER|CUFFT)_(STATUS_)?ALLOC_FAILED | CUDNN_STATUS_INTERNAL_ERROR_\w*ALLOCATION_FAILED
    | (failed\ to|can\ ?not|can't|could\ not|unable\ to)\ allocate\ ((\w+\ )?memory|\d) | could\ not\ be\ allocated
    | available\ memory\ of\ \d+\ is\ smaller\ than\ requested | (insufficient|not\ enough)\ (\w+\ )?memory
    """,
    re.VERBOSE | re.IGNORECASE,
)


def classify(text: str) -> type[ExecutionError]:
    """The class of error that an engine's text stands for.

    Args:
        text: The error's text, with the name of its type if that says more (``AcceleratorError: ...``).

    Returns:
        `DeviceFaultError` when the device's context is broken for good, `OutOfMemoryError` when memory did not suffice,
        else `ExecutionError`. A text that speaks of both is a fault: later calls on a broken context may well complain
        about memory, too.
    """
    if _FAULT.search(text):
        return DeviceFaultError
    return OutOfMemoryError if _OUT_OF_MEMORY.search(text) else ExecutionError
