"""numpy arrays as torch tensors and back, without copies and without torch's remarks on read-only arrays."""

import warnings
from typing import Any

import numpy as np
import torch

from models.inference import Array
from models.tensors import DataType

_TORCH: dict["np.dtype[Any]", torch.dtype] = {
    DataType.BOOL.numpy: torch.bool,
    DataType.UINT8.numpy: torch.uint8,
    DataType.UINT16.numpy: torch.uint16,
    DataType.UINT32.numpy: torch.uint32,
    DataType.UINT64.numpy: torch.uint64,
    DataType.INT8.numpy: torch.int8,
    DataType.INT16.numpy: torch.int16,
    DataType.INT32.numpy: torch.int32,
    DataType.INT64.numpy: torch.int64,
    DataType.FP16.numpy: torch.float16,
    DataType.BF16.numpy: torch.bfloat16,
    DataType.FP32.numpy: torch.float32,
    DataType.FP64.numpy: torch.float64,
}
_NUMPY = {torch_type: numpy_type for numpy_type, torch_type in _TORCH.items()}


def _take_note() -> None:
    """Have torch remark once, unheard, that it knows no read-only memory; then it keeps quiet for good."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


_take_note()


def torch_type(dtype: "np.dtype[Any]") -> torch.dtype:
    """The element type in torch; raises KeyError for BYTES."""
    return _TORCH[dtype]


def numpy_type(dtype: torch.dtype) -> "np.dtype[Any]":
    """The element type in numpy; raises KeyError for those without a name on the wire, e.g. complex ones."""
    return _NUMPY[dtype]


def to_tensor(array: Array) -> torch.Tensor:
    """A tensor on the array's memory, which it keeps alive. Of a read-only array it must not be written to."""
    dense = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    is_bf16 = dense.dtype == DataType.BF16.numpy
    plain = dense.view(np.int16) if is_bf16 else dense
    tensor = torch.from_numpy(plain)
    return tensor.view(torch.bfloat16) if is_bf16 else tensor


def to_array(tensor: torch.Tensor) -> Array:
    """A copy of a tensor in host memory that nothing else refers to."""
    plain = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    array = np.array(plain.numpy(), order="C", copy=True)
    return array.view(DataType.BF16.numpy) if tensor.dtype is torch.bfloat16 else array
