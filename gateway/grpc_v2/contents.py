"""The typed lists of `InferTensorContents` to arrays."""

from typing import Any, NamedTuple

import numpy as np

from gateway.grpc_v2.parameters import Message
from gateway.grpc_v2.wire import varint
from gateway.v2 import tensors
from models.errors import MalformedRequestError
from models.inference import Array


class _List(NamedTuple):
    """One of the lists.

    Attributes:
        field: Its name.
        word: The data type that Triton names it by.
        words: The data types that it may hold.
        dtype: What its elements are read as; None for BYTES.
        is_packed: Whether its bytes in the message are those of the array.
    """

    field: str
    word: str
    words: frozenset[str]
    dtype: np.dtype[Any] | None
    is_packed: bool = False


_AT_ONCE = 16384  # elements: a millisecond
_LISTS = (
    _List("bool_contents", "BOOL", frozenset(("BOOL",)), np.dtype(np.bool_), is_packed=True),
    _List("int_contents", "INT32", frozenset(("INT8", "INT16", "INT32")), np.dtype(np.int32)),
    _List("int64_contents", "INT64", frozenset(("INT64",)), np.dtype(np.int64)),
    _List("uint_contents", "UINT32", frozenset(("UINT8", "UINT16", "UINT32")), np.dtype(np.uint32)),
    _List("uint64_contents", "UINT64", frozenset(("UINT64",)), np.dtype(np.uint64)),
    _List("fp32_contents", "FP32", frozenset(("FP32",)), np.dtype(np.float32), is_packed=True),
    _List("fp64_contents", "FP64", frozenset(("FP64",)), np.dtype(np.float64), is_packed=True),
    _List("bytes_contents", "BYTES", frozenset(("BYTES",)), None),
)  # in the order of Triton's checks


def read_contents(item: Message, model: str) -> Array:
    """The elements of an input's typed list, one-dimensional; narrow integers are cut to their width.

    Args:
        item: The `InferInputTensor`.
        model: Its model, for the error.

    Raises:
        MalformedRequestError: A list holds something that is not for the input's data type.
    """
    word = item.datatype if item.datatype in tensors.WIRES else "<invalid>"
    filled = [each for each in _LISTS if len(getattr(item.contents, each.field))]
    for each in filled:
        if word not in each.words:
            raise MalformedRequestError(
                f"unexpected explicit tensor data for input tensor '{item.name}' for model '{model}' of type "
                f"'{each.word}', expected datatype '{word}'"
            )
    if not filled:
        return np.empty(0, tensors.WIRES[word].dtype if word in tensors.WIRES else np.uint8)
    return _array(filled[0], item.contents, word)


def _array(found: _List, contents: Message, word: str) -> Array:
    elements = getattr(contents, found.field)
    if found.dtype is None:
        return tensors.object_array(list(elements))
    if not found.is_packed:
        read = np.empty(len(elements), found.dtype)
        for start in range(0, len(elements), _AT_ONCE):  # in between others get their turn, and there is no long list
            read[start : start + _AT_ONCE] = elements[start : start + _AT_ONCE]
        return read.astype(tensors.WIRES[word].dtype)
    # Written out again, the list is one field: a tag, its length, and the elements as they are in an array.
    size_bytes = len(elements) * found.dtype.itemsize
    packed: bytes = contents.SerializeToString()
    return np.frombuffer(packed, found.dtype, len(elements), 1 + len(varint(size_bytes)))
