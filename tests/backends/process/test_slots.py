"""The layout of tensors in shared memory: whatever is written is read."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backends.errors import ExecutionError
from backends.process.slots import (
    ALIGNMENT_BYTES,
    ProtocolError,
    Region,
    SlotWriter,
    TensorPlace,
    declared_bytes,
    read_tensors,
)
from models.inference import Array
from models.tensors import DataType
from tests.backends.builders import tensor

NUMBERS = [data_type for data_type in DataType if data_type is not DataType.BYTES]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@contextmanager
def shared() -> Iterator[tuple[Region, Region]]:
    """A region as its writer and as its reader have it."""
    fd = Region.create_fd()
    writer, reader = Region(os.dup(fd)), Region(fd)
    try:
        yield writer, reader
    finally:
        writer.close()
        reader.close()


def crossed(tensors: Mapping[str, Array]) -> Mapping[str, Array]:
    with shared() as (written, read):
        places = SlotWriter(written).write(tensors)
        read.follow(written.capacity_bytes)
        return read_tensors(read, places)


@st.composite
def numbers(draw: st.DrawFn) -> Array:
    """Any bits of any type and shape, in either byte order, with any strides."""
    data_type, shape = draw(st.sampled_from(NUMBERS)), draw(SHAPES)
    count = int(np.prod(shape))
    bits = draw(st.binary(min_size=count * data_type.numpy.itemsize, max_size=count * data_type.numpy.itemsize))
    array: Array = np.frombuffer(bits, np.uint8).view(data_type.numpy).reshape(shape)
    if data_type is DataType.BOOL:
        array = np.frombuffer(bits, np.uint8).reshape(shape) > 127
    if data_type is not DataType.BF16 and draw(st.booleans()):
        array = array.astype(array.dtype.newbyteorder(">"))
    if draw(st.booleans()):
        array = array.T
    if array.ndim and draw(st.booleans()):
        array = array[::-1]
    return array


@st.composite
def texts(draw: st.DrawFn) -> Array:
    shape = draw(SHAPES)
    array = np.empty(shape, np.object_)
    for index in np.ndindex(shape):
        array[index] = draw(st.binary(max_size=9))
    return array


def bits_of(array: Array) -> bytes:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="), copy=False).tobytes()


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), numbers(), max_size=4))
def test_numbers_of_any_type_shape_order_and_strides_arrive_bit_by_bit(tensors: dict[str, Array]):
    found = crossed(tensors)

    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert (found[name].shape, bits_of(found[name])) == (array.shape, bits_of(array))
        assert DataType.from_numpy(found[name].dtype).numpy == array.dtype.newbyteorder("=")


@given(texts(), numbers())
def test_byte_strings_of_any_shape_arrive_between_numbers(array: Array, other: Array):
    found = crossed({"before": other, "x": array, "after": other})

    assert (found["x"].shape, found["x"].ravel().tolist()) == (array.shape, array.ravel().tolist())
    assert bits_of(found["after"]) == bits_of(other)


@given(st.permutations(["a", "b", "c", "d"]), st.sets(st.sampled_from(["a", "b", "c", "d"])), SHAPES)
def test_staged_and_other_tensors_arrive_in_any_order(order: list[str], staged: set[str], shape: tuple[int, ...]):
    wanted = {name: np.full(shape, ord(name), np.float32) for name in "abcd"}
    with shared() as (written, read):
        writer = SlotWriter(written)
        given_ = dict(wanted)
        for name in order:
            if name in staged:
                given_[name] = writer.stage(name, shape, np.dtype(np.float32))
                given_[name][...] = wanted[name]
        places = writer.write(given_)
        read.follow(written.capacity_bytes)
        found = read_tensors(read, places)

    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_what_was_staged_before_the_slot_grew_is_still_part_of_the_batch():
    with shared() as (written, read):
        writer = SlotWriter(written)
        small = writer.stage("small", (3,), np.dtype(np.int64))
        large = writer.stage("large", (1 << 20,), np.dtype(np.uint8))
        small[:], large[:] = 7, 8
        places = writer.write({"small": small, "large": large})
        read.follow(written.capacity_bytes)
        found = read_tensors(read, places)

    assert found["small"].tolist() == [7, 7, 7]
    assert bool((found["large"] == 8).all())


def test_staged_tensors_are_aligned_and_not_copied():
    with shared() as (written, read):
        writer = SlotWriter(written)
        staged = {name: writer.stage(name, (3,), np.dtype(np.uint8)) for name in "abc"}
        places = writer.write(staged)
        staged["b"][:] = 9  # after it was written: the memory is the same
        found = read_tensors(read, places)

    assert [place.offset_bytes % ALIGNMENT_BYTES for place in places] == [0, 0, 0]
    assert found["b"].tolist() == [9, 9, 9]


def test_a_batch_that_was_given_up_takes_no_room_from_the_next_ones():
    with shared() as (written, _):
        writer = SlotWriter(written)
        for _ in range(1_000):
            writer.stage("x", (1_000,), np.dtype(np.uint8))
        capacity_bytes = written.capacity_bytes

    assert capacity_bytes == 4_096


def test_views_outlive_the_region():
    found = crossed({"x": np.arange(5)})

    assert found["x"].tolist() == [0, 1, 2, 3, 4]


def test_tensors_are_read_only_for_the_reader():
    found = crossed({"x": np.arange(5)})

    with pytest.raises(ValueError, match="read-only"):
        found["x"][0] = 1


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1j]), "complex128, expected one of bool"),
        (np.array(["a"]), "<U1"),
        (np.array(["a"], np.object_), "expected a bytes-like object, str found"),
        (np.array([b"a", 1], np.object_), "int found"),
    ],
)
def test_elements_of_other_types_are_refused_by_name(array: Array, text: str):
    with pytest.raises(ExecutionError, match=f"tensor 'x'.*{text}"):
        crossed({"x": array})


def test_nobody_can_shrink_a_slot_that_others_read():
    fd = Region.create_fd()
    region = Region(fd)

    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    region.close()


@pytest.mark.parametrize(
    "place",
    [
        TensorPlace("x", DataType.FP32, (1025,), 0, 4_100),
        TensorPlace("x", DataType.UINT8, (1,), 4_096, 1),
        TensorPlace("x", DataType.FP32, (2,), 0, 4),
        TensorPlace("x", DataType.UINT8, (0, 1 << 70), 0, 0),
        TensorPlace("x", DataType.UINT8, (1,) * 99, 0, 1),
        TensorPlace("x", DataType.BYTES, (1,), 0, 7),
        TensorPlace("x", DataType.BYTES, (1 << 70,), 0, 8),
        TensorPlace("x", DataType.BYTES, (1,), 0, 9),
        TensorPlace("x", DataType.BYTES, (2,), 8, 24),
    ],
)
def test_a_place_that_cannot_be_is_not_read(place: TensorPlace):
    with shared() as (written, read):
        written.view((4,), np.dtype(np.int64), 0)[:] = (0, 16, -8, 0)
        with pytest.raises(ProtocolError):
            read_tensors(read, [place])


def test_a_capacity_that_was_never_reserved_is_not_followed():
    with shared() as (_, read), pytest.raises(ProtocolError, match="1000000 bytes"):
        read.follow(1_000_000)


def test_the_declared_size_is_what_a_batch_takes_up():
    declared = (tensor("a", DataType.BF16, (3,)), tensor("b", DataType.FP64, ()), tensor("c", DataType.BYTES, (1,)))
    with shared() as (written, _):
        places = SlotWriter(written).write({"a": np.zeros((5, 3), ml_dtypes.bfloat16), "b": np.zeros(5)})

    end_bytes = places[-1].offset_bytes + places[-1].size_bytes
    assert 0 <= declared_bytes(declared, 5, has_batch_dimension=True) - end_bytes < ALIGNMENT_BYTES
    assert declared_bytes([tensor("v", DataType.FP32, (-1,))], 5, has_batch_dimension=True) == 0
