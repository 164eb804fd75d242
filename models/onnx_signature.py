"""Inputs and outputs of an ONNX file, read without touching its weights.

The `onnx` package parses a file as a whole, weights included (up to 2 GiB, copied). The signature is a few hundred
bytes of it, so this module steps over the file's length-prefixed fields in a memory map and hands only the
declarations to `onnx`.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, ValueInfoProto

from models.errors import RepositoryError
from models.tensors import DataType

# Field numbers of onnx.proto, which are part of the format.
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE_INITIALIZER = 5, 11, 12, 15
_TENSOR_NAME = 8
_SPARSE_TENSOR_VALUES = 1

_VARINT, _FIXED64, _LENGTH_PREFIXED, _FIXED32 = 0, 1, 2, 5

_DATA_TYPES = {
    TensorProto.BOOL: DataType.BOOL,
    TensorProto.UINT8: DataType.UINT8,
    TensorProto.UINT16: DataType.UINT16,
    TensorProto.UINT32: DataType.UINT32,
    TensorProto.UINT64: DataType.UINT64,
    TensorProto.INT8: DataType.INT8,
    TensorProto.INT16: DataType.INT16,
    TensorProto.INT32: DataType.INT32,
    TensorProto.INT64: DataType.INT64,
    TensorProto.FLOAT16: DataType.FP16,
    TensorProto.BFLOAT16: DataType.BF16,
    TensorProto.FLOAT: DataType.FP32,
    TensorProto.DOUBLE: DataType.FP64,
    TensorProto.STRING: DataType.BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxTensor:
    """One declared input or output.

    Attributes:
        name: Tensor name.
        kind: ONNX's own word for the type, e.g. ``FLOAT`` or ``sequence_type``.
        data_type: Element type; None for everything that is no tensor of a type with a name on the wire.
        dims: The whole shape, -1 for every dimension without a fixed size; None if the file leaves the rank open.
    """

    name: str
    kind: str
    data_type: DataType | None
    dims: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSignature:
    """What a model file takes and gives, in the file's order. Initializers are not inputs, even if listed as such."""

    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]


def read_signature(file: Path, source: str) -> OnnxSignature:
    """Read the signature of an ONNX file.

    Args:
        file: The file.
        source: Its name for messages, e.g. ``resnet/1/model.onnx``.

    Raises:
        RepositoryError: The file is no ONNX model or is damaged where the signature stands.
        OSError: The file cannot be read.
    """
    try:
        signature = _read(file)
    except (_MalformedError, DecodeError) as error:
        raise RepositoryError(f"{source}: found {error}, expected an ONNX model; export or copy it again") from error
    if not signature.outputs:
        raise RepositoryError(f"{source}: found no graph with outputs, expected an ONNX model; export or copy it again")
    return signature


def _read(file: Path) -> OnnxSignature:
    if file.stat().st_size == 0:
        raise _MalformedError("an empty file")
    inputs: list[OnnxTensor] = []
    outputs: list[OnnxTensor] = []
    initializers: set[str] = set()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, start, end in _graph_fields(data):
            if number == _GRAPH_INPUT:
                inputs.append(_tensor(data[start:end]))
            elif number == _GRAPH_OUTPUT:
                outputs.append(_tensor(data[start:end]))
            elif number == _GRAPH_INITIALIZER:
                initializers.add(_tensor_name(data, start, end))
            elif number == _GRAPH_SPARSE_INITIALIZER:
                initializers.update(
                    _tensor_name(data, first, last)
                    for inner, first, last in _length_prefixed(data, start, end)
                    if inner == _SPARSE_TENSOR_VALUES
                )
    return OnnxSignature(
        inputs=tuple(tensor for tensor in inputs if tensor.name not in initializers), outputs=tuple(outputs)
    )


def _tensor(declaration: bytes) -> OnnxTensor:
    value = ValueInfoProto.FromString(declaration)
    form = value.type.WhichOneof("value")
    if form != "tensor_type":
        return OnnxTensor(name=value.name, kind=form or "no type", data_type=None, dims=None)
    tensor = value.type.tensor_type
    known = tensor.elem_type in TensorProto.DataType.values()
    kind = TensorProto.DataType.Name(tensor.elem_type) if known else f"type {tensor.elem_type}"
    dims = tuple(dim.dim_value if dim.dim_value > 0 else -1 for dim in tensor.shape.dim)
    return OnnxTensor(
        name=value.name,
        kind=kind,
        data_type=_DATA_TYPES.get(tensor.elem_type),
        dims=dims if tensor.HasField("shape") else None,
    )


def _tensor_name(data: mmap.mmap, start: int, end: int) -> str:
    for number, first, last in _length_prefixed(data, start, end):
        if number == _TENSOR_NAME:
            return data[first:last].decode(errors="replace")
    return ""


class _MalformedError(Exception):
    """The bytes are not protobuf."""


def _graph_fields(data: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    for number, start, end in _length_prefixed(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            yield from _length_prefixed(data, start, end)


def _length_prefixed(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start, end) of the length-prefixed fields of one message; other fields are skipped."""
    while position < end:
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _LENGTH_PREFIXED:
            size, start = _varint(data, position)
            position = start + size
            if position > end:
                raise _MalformedError("a file that ends too early")
            yield tag >> 3, start, position
        elif wire_type == _VARINT:
            _, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise _MalformedError("bytes that are no protobuf message")


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _MalformedError("a file that ends too early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _MalformedError("bytes that are no protobuf message")
