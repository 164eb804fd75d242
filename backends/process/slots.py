"""Tensors in memory that two processes share.

A `Region` has one writer, who grows it, and one reader. Its memory has no name and no size limit other than the
machine's (it does not count against a container's ``/dev/shm``), and is gone with the last process that has it.
A batch is written by a `SlotWriter`; the `TensorPlace`s that say where its tensors are travel as a message, and a
`SlotReader` of the module beside this one finds them by it.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from backends.errors import ExecutionError
from models.inference import Array, Tensors
from models.tensors import DataType, TensorSpec, element_count

ALIGNMENT_BYTES = 64
"""Tensors begin at multiples of this: cache lines, and the widest vector registers."""

_LENGTH = np.dtype(np.int64)

Natural = Annotated[int, Field(ge=0)]


class ProtocolError(Exception):
    """The other process said something that cannot be."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor is in a region.

    Attributes:
        name: Of the tensor.
        data_type: Its elements. BYTES are laid out as all lengths (int64), then all values.
        shape: Batch dimension included.
        offset_bytes: From the region's start.
        size_bytes: What it takes up.
    """

    name: str
    data_type: DataType
    shape: tuple[Natural, ...]
    offset_bytes: Natural
    size_bytes: Natural


class Region:
    """Shared memory that never shrinks. Views stay valid for as long as somebody has them, whatever happens to it.

    Args:
        fd: Of the memory, as `create_fd` makes it; owned from now on.

    Raises:
        OSError: It cannot be mapped.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        except OSError:
            os.close(fd)
            raise
        self.capacity_bytes = len(self._memory)

    @staticmethod
    def create_fd() -> int:
        """New memory of one page. Raises OSError."""
        fd = os.memfd_create("shoal-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, mmap.PAGESIZE)
        # If model code could shrink it, the gateway would die of reading what is no longer there.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return fd

    @property
    def address(self) -> int:
        """Where the memory starts in this process; growth changes it."""
        return int(np.frombuffer(self._memory, np.uint8).__array_interface__["data"][0])

    def reserve(self, size_bytes: int) -> None:
        """For the writer: hold at least so many bytes. Raises OSError where there is not enough memory."""
        if size_bytes > self.capacity_bytes:
            pages = -(-size_bytes // mmap.PAGESIZE)
            os.ftruncate(self._fd, pages * mmap.PAGESIZE)
            self._map(pages * mmap.PAGESIZE)

    def follow(self, capacity_bytes: int) -> bool:
        """For the reader: map what the writer says it has reserved; returns whether that is news.

        Raises:
            ProtocolError: There is not as much.
        """
        if capacity_bytes <= self.capacity_bytes:
            return False
        if capacity_bytes > os.fstat(self._fd).st_size:
            raise ProtocolError(f"found a slot smaller than the {capacity_bytes} bytes that were announced")
        self._map(capacity_bytes)
        return True

    def view(self, shape: Sequence[int], dtype: "np.dtype[Any]", offset_bytes: int) -> Array:
        """A writeable array in the memory, which must hold it."""
        return np.ndarray(tuple(shape), dtype, self._memory, offset_bytes)

    def close(self) -> None:
        """Let go of the memory, which lives on while there are views. Only `close` may follow."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._memory = mmap.mmap(-1, mmap.PAGESIZE)  # something else in its place drops it
            self.capacity_bytes = 0

    def _map(self, capacity_bytes: int) -> None:
        # All pages at once: touching each for the first time would make the first batch several times slower. The old
        # mapping shows the same pages and goes with its last view.
        self._memory = mmap.mmap(self._fd, capacity_bytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.capacity_bytes = capacity_bytes


class _Area(NamedTuple):
    """Where a tensor is, on the writer's side.

    Attributes:
        array: A view of the memory.
        place: The same for the reader.
        end_bytes: Where the next tensor may begin.
        capacity_bytes: Of the region when the view was made: a view that is older than the mapping would keep the old
            mapping alive.
    """

    array: Array
    place: TensorPlace
    end_bytes: int
    capacity_bytes: int

    def fits(self, shape: tuple[int, ...], data_type: DataType, offset_bytes: int, capacity_bytes: int) -> bool:
        place = self.place
        return (
            place.shape == shape
            and place.data_type is data_type
            and place.offset_bytes == offset_bytes
            and self.capacity_bytes == capacity_bytes
        )


class SlotWriter:
    """Lays out one batch after the other, from the start of a region. Used by one thread at a time.

    What stays the same from one batch to the next is not made again: the caches are cold after a batch was copied, and
    then it is the number of objects touched that costs time.

    Args:
        region: Closed by `close`.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        self._used_bytes = 0
        self._areas: dict[str, _Area] = {}  # of this batch, by tensor
        self._last_areas: dict[str, _Area] = {}  # of the one before

    def stage(self, name: str, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """Memory for one tensor of the next `write`, in the region where the element type allows it.

        Staging a name a second time begins a new batch: the last one was given up before it was written.

        Raises:
            ExecutionError: Elements are of no type that can be served.
            OSError: There is not enough memory.
        """
        if dtype.hasobject or not dtype.isnative:
            return np.empty(shape, dtype)
        if name in self._areas:
            self._end_batch()
        return self._area(name, shape, _data_type(name, dtype)).array

    def write(self, tensors: Tensors) -> tuple[TensorPlace, ...]:
        """Put a batch into the region, of which staged arrays already are a part.

        Raises:
            ExecutionError: A tensor's elements are of no type that can be served.
            OSError: There is not enough memory.
        """
        try:
            return tuple([self._write(name, np.asarray(array)) for name, array in tensors.items()])
        finally:
            self._end_batch()

    def close(self) -> None:
        """Let go of the region. Only `close` may follow."""
        self._areas.clear()
        self._last_areas.clear()
        self._region.close()

    def _write(self, name: str, array: Array) -> TensorPlace:
        staged = self._areas.get(name)
        if staged is not None and staged.array is array:
            return staged.place
        data_type = _data_type(name, array.dtype)
        if data_type is DataType.BYTES:
            return self._write_texts(name, array)
        area = self._area(name, array.shape, data_type)
        np.copyto(area.array, array, casting="equiv")  # any strides and byte order
        return area.place

    def _write_texts(self, name: str, array: Array) -> TensorPlace:
        values = array.ravel().tolist()
        try:
            data = b"".join(values)
        except TypeError as error:
            raise ExecutionError(f"tensor '{name}': elements of a BYTES tensor have to be bytes, {error}") from error
        lengths = np.fromiter(map(len, values), _LENGTH, len(values))
        target, place, *_ = self._area(name, (lengths.nbytes + len(data),), DataType.UINT8)
        target[: lengths.nbytes] = lengths.view(np.uint8)
        target[lengths.nbytes :] = np.frombuffer(data, np.uint8)
        return replace(place, data_type=DataType.BYTES, shape=array.shape)

    def _area(self, name: str, shape: tuple[int, ...], data_type: DataType) -> _Area:
        area = self._last_areas.get(name)
        if area is None or not area.fits(shape, data_type, self._used_bytes, self._region.capacity_bytes):
            area = self._new_area(name, shape, data_type)
        self._areas[name] = area
        self._used_bytes = area.end_bytes
        return area

    def _new_area(self, name: str, shape: tuple[int, ...], data_type: DataType) -> _Area:
        offset_bytes = self._used_bytes
        size_bytes = element_count(shape) * data_type.numpy.itemsize
        self._region.reserve(offset_bytes + size_bytes)
        array = self._region.view(shape, data_type.numpy, offset_bytes)
        place = TensorPlace(name, data_type, shape, offset_bytes, size_bytes)
        return _Area(array, place, _aligned(offset_bytes + size_bytes), self._region.capacity_bytes)

    def _end_batch(self) -> None:
        self._used_bytes = 0
        self._last_areas, self._areas = self._areas, {}


def read_tensors(region: Region, places: Iterable[TensorPlace]) -> Tensors:
    """The tensors in a region: read-only views, except BYTES, which are copied.

    Raises:
        ProtocolError: A place is not in the region, or does not hold what it should.
    """
    try:
        return {place.name: _read(region, place) for place in places}
    except (ValueError, OverflowError) as error:  # a shape that no array can have
        raise ProtocolError(str(error)) from error


def declared_bytes(tensors: Iterable[TensorSpec], rows: int, *, has_batch_dimension: bool) -> int:
    """What a batch of these tensors takes up in a region; those whose size is not declared are left out."""
    used_bytes = 0
    for tensor in tensors:
        if not tensor.has_variable_dims and tensor.data_type is not DataType.BYTES:
            elements = element_count(tensor.dims) * (rows if has_batch_dimension else 1)
            used_bytes = _aligned(used_bytes + elements * tensor.data_type.numpy.itemsize)
    return used_bytes


def _read(region: Region, place: TensorPlace) -> Array:
    if place.offset_bytes + place.size_bytes > region.capacity_bytes:
        raise ProtocolError(f"tensor '{place.name}' ends beyond the slot's {region.capacity_bytes} bytes")
    if place.data_type is DataType.BYTES:
        return _read_texts(region, place)
    expected_bytes = element_count(place.shape) * place.data_type.numpy.itemsize
    if expected_bytes != place.size_bytes:
        raise ProtocolError(
            f"tensor '{place.name}' has {place.size_bytes} bytes, its shape {place.shape} needs {expected_bytes}"
        )
    array = region.view(place.shape, place.data_type.numpy, place.offset_bytes)
    array.flags.writeable = False
    return array


def _read_texts(region: Region, place: TensorPlace) -> Array:
    data = region.view((place.size_bytes,), np.dtype(np.uint8), place.offset_bytes).tobytes()
    count = element_count(place.shape)
    start = count * _LENGTH.itemsize
    lengths = np.frombuffer(data, _LENGTH, count).tolist() if start <= len(data) else []
    if len(lengths) != count or any(length < 0 for length in lengths) or start + sum(lengths) != len(data):
        raise ProtocolError(f"tensor '{place.name}' does not hold the {count} values of its shape {place.shape}")
    array = np.empty(count, np.object_)
    for index, length in enumerate(lengths):
        array[index] = data[start : start + length]
        start += length
    return array.reshape(place.shape)


def _data_type(name: str, dtype: "np.dtype[Any]") -> DataType:
    try:
        return DataType.from_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))
    except KeyError:
        expected = ", ".join(str(data_type.numpy) for data_type in DataType)
        raise ExecutionError(f"tensor '{name}' has elements {dtype}, expected one of {expected}") from None


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
