"""Arrays by DLPack; those of bfloat16 too, which numpy leaves out."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU = (1, 0)  # DLPack's kDLCPU, and the device's number
_UNSIGNED, _BFLOAT = 1, 4  # DLPack's kDLUInt and kDLBfloat
# Where the tensor begins in what a capsule holds: version, owner, deleter and flags come before a versioned one.
_TENSOR_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}


class _DLTensor(ctypes.Structure):
    """The head of DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
    )


_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Capsule:
    """What other libraries call a DLPack capsule, as an object that numpy reads."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU  # what numpy finds out for itself, and refuses if it is not so


def export(array: NDArray[Any], bfloat16: Any, options: dict[str, Any]) -> Any:
    """A capsule of an array; `bfloat16` is the numpy type of that name, if there is one.

    Raises:
        BufferError: It cannot be had that way; or TypeError.
    """
    if bfloat16 is None or array.dtype != bfloat16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _tensor_of(capsule).code = _BFLOAT
    return capsule


def read(source: Any, bfloat16: Any) -> NDArray[Any]:
    """The array of an object with ``__dlpack__``.

    Raises:
        BufferError: It cannot be had that way; or AttributeError, RuntimeError, TypeError, ValueError.
    """
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError):
        capsule = source.__dlpack__()
        tensor = _tensor_of(capsule)
        if bfloat16 is None or (tensor.code, tensor.bits) != (_BFLOAT, 16):
            raise
        tensor.code = _UNSIGNED  # numpy reads it as the same bits
        return np.from_dlpack(Capsule(capsule)).view(bfloat16)


def _tensor_of(capsule: Any) -> _DLTensor:
    """The capsule's own description of its elements, to read and to change while nobody has taken it."""
    name = _name(capsule)
    if name not in _TENSOR_OFFSETS:
        raise BufferError("the capsule has been used already")
    return _DLTensor.from_address(_pointer(capsule, name) + _TENSOR_OFFSETS[name])
