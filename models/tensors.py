"""Data types and tensor declarations: the v2 protocol's words, the config's words and numpy's, in one table."""

import enum
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

_NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}


class DataType(enum.Enum):
    """One element type. The value is its name on the wire (v2 protocol).

    Attributes:
        numpy: The numpy element type; BYTES are Python ``bytes`` in an object array.
    """

    numpy: np.dtype[Any]

    def __init__(self, wire_name: str) -> None:
        self.numpy = _NUMPY[wire_name]

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def config_name(self) -> str:
        """The enum word of config.pbtxt, e.g. ``TYPE_FP32``."""
        return "TYPE_STRING" if self is DataType.BYTES else f"TYPE_{self.value}"

    @property
    def element_bytes(self) -> int | None:
        """Size of one element, or None for BYTES, whose elements vary."""
        return None if self is DataType.BYTES else self.numpy.itemsize

    @staticmethod
    def from_config_name(word: str) -> "DataType":
        """The type for a word of config.pbtxt; raises KeyError for TYPE_INVALID and unknown words."""
        return _BY_CONFIG_NAME[word]

    @staticmethod
    def from_numpy(dtype: np.dtype[Any]) -> "DataType":
        """The type of a numpy array; raises KeyError for types without a name on the wire."""
        return _BY_NUMPY[dtype]


_BY_CONFIG_NAME = {data_type.config_name: data_type for data_type in DataType}
_BY_NUMPY = {data_type.numpy: data_type for data_type in DataType}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Declaration of one input or output of a model.

    Attributes:
        name: Tensor name.
        data_type: Element type.
        dims: Shape of one row, without the batch dimension; -1 is a variable dimension.
        optional: The request may leave this input out.
        labels: For an output that scores classes: one label a class, in order; else empty.
        reshape: Shape of one row as the model has it, where that is not `dims`; as many elements.
    """

    name: str
    data_type: DataType
    dims: tuple[int, ...]
    optional: bool = False
    labels: tuple[str, ...] = ()
    reshape: tuple[int, ...] | None = None

    @property
    def has_variable_dims(self) -> bool:
        """Whether two valid rows may differ in shape, so that they may not share a batch."""
        return any(dim < 0 for dim in self.dims)

    def accepts(self, row_shape: tuple[int, ...]) -> bool:
        """Whether a row of this shape (without batch dimension) fits the declaration."""
        return len(row_shape) == len(self.dims) and all(
            declared in (-1, found) for declared, found in zip(self.dims, row_shape, strict=True)
        )


def element_count(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape, in arbitrary precision: compare it with a limit before allocating."""
    return math.prod(shape)
