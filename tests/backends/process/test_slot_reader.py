"""Batches of the same layout, one after the other: found without looking again, and never mixed up."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from backends.process.slot_reader import SlotReader
from backends.process.slots import Region, SlotWriter, TensorPlace
from models.inference import Tensors


class Slot:
    """Both sides of a region."""

    def __init__(self) -> None:
        fd = Region.create_fd()
        self.written, self.read = Region(os.dup(fd)), Region(fd)
        self.writer, self.reader = SlotWriter(self.written), SlotReader(self.read)

    def cross(self, tensors: Tensors) -> tuple[tuple[TensorPlace, ...], Tensors]:
        places = self.writer.write(tensors)
        self.read.follow(self.written.capacity_bytes)
        return places, self.reader.read(places)


@contextmanager
def opened() -> Iterator[Slot]:
    slot = Slot()
    try:
        yield slot
    finally:
        slot.writer.close()
        slot.reader.close()


def numbers(value: int, rows: int = 3) -> Tensors:
    return {"x": np.full((rows, 2), value, np.float32), "n": np.full(rows, value, np.int64)}


def test_a_batch_of_the_same_layout_is_at_the_same_places_and_is_read_anew():
    with opened() as slot:
        places, first = slot.cross(numbers(1))
        kept = first["x"].copy()
        again = slot.writer.write(numbers(2))
        second = slot.reader.read(places)

    assert again == places
    assert (kept.min(), second["x"].min(), second["n"].max()) == (1, 2, 2)


def test_what_is_done_to_an_array_does_not_reach_the_next_batch():
    with opened() as slot:
        places, first = slot.cross(numbers(1))
        first["x"].shape = (6,)
        del first["n"]
        second = slot.reader.read(places)

    assert {name: array.shape for name, array in second.items()} == {"x": (3, 2), "n": (3,)}
    assert not second["x"].flags.writeable


def test_byte_strings_at_the_same_places_are_read_again():
    with opened() as slot:
        places, first = slot.cross({"t": np.array([b"ab", b"c"], np.object_)})
        again = slot.writer.write({"t": np.array([b"x", b"yz"], np.object_)})
        second = slot.reader.read(places)

    assert again == places
    assert (first["t"].tolist(), second["t"].tolist()) == ([b"ab", b"c"], [b"x", b"yz"])


@pytest.mark.parametrize("rows", [[3, 1, 3], [3, 5_000, 3, 5_000]], ids=["smaller", "growing"])
def test_batches_of_changing_sizes_arrive_whole(rows: list[int]):
    with opened() as slot:
        found = [slot.cross(numbers(value, count))[1]["n"].copy() for value, count in enumerate(rows)]

    assert [(len(array), array.min(), array.max()) for array in found] == [
        (count, value, value) for value, count in enumerate(rows)
    ]


def test_an_input_may_change_its_element_type_under_the_same_shape():
    with opened() as slot:
        slot.cross({"x": np.ones(4, np.float32)})
        _, second = slot.cross({"x": np.arange(4, dtype=np.int32)})

    assert (second["x"].dtype, second["x"].tolist()) == (np.int32, [0, 1, 2, 3])


def test_staged_memory_is_the_same_in_the_next_batch():
    with opened() as slot:
        first = slot.writer.stage("x", (3,), np.dtype(np.float32))
        slot.writer.write({"x": first})
        second = slot.writer.stage("x", (3,), np.dtype(np.float32))

    assert np.shares_memory(first, second)
