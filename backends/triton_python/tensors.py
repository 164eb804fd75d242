"""`Tensor` of Triton's python backend, and the element types under the names and numbers that it has for them."""

import importlib
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.triton_python import dlpack

Array = NDArray[Any]


class TritonModelException(Exception):  # noqa: N818 - the name that code knows
    """What the functions of ``triton_python_backend_utils`` raise, and model code may raise, too."""


def _bfloat16() -> Any:
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        return None


_BFLOAT16 = _bfloat16()
_BYTES_NUMBER = 13
_TYPES: list[tuple[int, str, Any]] = [
    (1, "TYPE_BOOL", np.bool_),
    (2, "TYPE_UINT8", np.uint8),
    (3, "TYPE_UINT16", np.uint16),
    (4, "TYPE_UINT32", np.uint32),
    (5, "TYPE_UINT64", np.uint64),
    (6, "TYPE_INT8", np.int8),
    (7, "TYPE_INT16", np.int16),
    (8, "TYPE_INT32", np.int32),
    (9, "TYPE_INT64", np.int64),
    (10, "TYPE_FP16", np.float16),
    (11, "TYPE_FP32", np.float32),
    (12, "TYPE_FP64", np.float64),
    (_BYTES_NUMBER, "TYPE_STRING", np.object_),
]
if _BFLOAT16 is not None:
    _TYPES.append((14, "TYPE_BF16", _BFLOAT16))

TRITON_TO_NUMPY_TYPE = {number: numpy_type for number, _, numpy_type in _TYPES}
NUMPY_TO_TRITON_TYPE = {numpy_type: number for number, _, numpy_type in _TYPES}
TRITON_STRING_TO_NUMPY = {word: numpy_type for _, word, numpy_type in _TYPES}


class Tensor:
    """A named array, in the memory of this process.

    Args:
        name: Of the input or output.
        array: Its elements; of ``TYPE_STRING`` an array of ``bytes`` or ``str``.

    Raises:
        TritonModelException: It is no numpy array, or has elements of a type that Triton does not know.
    """

    def __init__(self, name: str, array: Array) -> None:
        if not isinstance(array, np.ndarray):
            raise TritonModelException(f"tensor '{name}' is of type {type(array).__name__}, expected a numpy array")
        self._name = name
        self._array = array
        self._number = _number_of(name, array.dtype)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> "Tensor":
        """A tensor of another library, by DLPack: an object with ``__dlpack__``, or a capsule.

        A tensor on a GPU is copied to the CPU, which needs its method ``cpu``.

        Raises:
            TritonModelException: It cannot be had that way.
        """
        source: Any = tensor if hasattr(tensor, "__dlpack__") else dlpack.Capsule(tensor)
        try:
            if source.__dlpack_device__()[0] != dlpack.CPU[0]:
                source = source.cpu()
            return Tensor(name, dlpack.read(source, _BFLOAT16))
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            expected = "expected a tensor in the CPU's memory of an element type that numpy has"
            raise TritonModelException(f"tensor '{name}' cannot be read by DLPack ({error}), {expected}") from error

    def name(self) -> str:
        """Its name."""
        return self._name

    def as_numpy(self) -> Array:
        """Its elements. Those of a request are the model's own: it may keep them and write to them."""
        return self._array

    def triton_dtype(self) -> int:
        """The number of its element type in Triton's schema, see `numpy_to_triton_type`."""
        return self._number

    def shape(self) -> list[int]:
        """Batch dimension included."""
        return list(self._array.shape)

    def is_cpu(self) -> bool:
        """Always: tensors come and go in the CPU's memory."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule of it. Raises TritonModelException for element types that DLPack or numpy cannot hand on."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        try:
            return dlpack.export(self._array, _BFLOAT16, options)
        except (BufferError, TypeError) as error:
            text = f"tensor '{self._name}' has elements of type {self._array.dtype}, which DLPack cannot hand on"
            raise TritonModelException(f"{text} ({error}); use as_numpy()") from error

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU


def triton_to_numpy_type(data_type: int) -> Any:
    """The numpy type of an element type's number. Raises KeyError."""
    return TRITON_TO_NUMPY_TYPE[data_type]


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of a numpy type, or dtype. Raises KeyError."""
    return NUMPY_TO_TRITON_TYPE[np.dtype(data_type).type]


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a word of config.pbtxt, e.g. ``TYPE_FP32``. Raises KeyError."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: Array) -> bytes | None:
    """Elements of a BYTES tensor in row-major order, each after its length (4 bytes, little endian).

    Returns:
        None for an array of another type, as Triton has it.
    """
    if input_tensor.dtype != np.object_ and input_tensor.dtype.kind != "S":
        return None
    parts: list[bytes] = []
    for element in input_tensor.ravel().tolist():
        value = element if isinstance(element, bytes) else str(element).encode()
        parts += (struct.pack("<I", len(value)), value)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> Array:
    """The inverse of `serialize_byte_tensor`: an array of one dimension."""
    values: list[bytes] = []
    offset = 0
    while offset < len(encoded_tensor):
        (length,) = struct.unpack_from("<I", encoded_tensor, offset)
        offset += 4
        values.append(bytes(encoded_tensor[offset : offset + length]))
        offset += length
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array


def _number_of(name: str, dtype: "np.dtype[Any]") -> int:
    if dtype.kind in "SU":
        return _BYTES_NUMBER
    try:
        return NUMPY_TO_TRITON_TYPE[dtype.type]
    except KeyError:
        known = ", ".join(TRITON_STRING_TO_NUMPY)
        text = f"tensor '{name}' has elements of type {dtype}, expected one of {known}"
        raise TritonModelException(text) from None
