"""Which memory an executor is told to page-lock, and when."""

import os
from collections.abc import Iterator

import pytest

from backends.fake import FakeExecutor
from backends.process.pinning import PinnedRegion
from backends.process.slots import Region
from tests.backends.builders import model


class Locking(FakeExecutor):
    """Notes which memory is locked: sizes by address."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(model())
        self.locked: dict[int, int] = {}
        self.calls = 0
        self._fails = fails

    def pin_memory(self, address: int, nbytes: int) -> None:
        self.calls += 1
        if self._fails:
            raise RuntimeError("no memory may be locked here")
        assert address not in self.locked
        self.locked[address] = nbytes

    def unpin_memory(self, address: int) -> None:
        del self.locked[address]


@pytest.fixture
def fd() -> int:
    return Region.create_fd()


@pytest.fixture
def region(fd: int) -> Iterator[Region]:
    region = Region(fd)
    yield region
    region.close()


def test_the_slot_is_locked_once_and_again_when_it_has_grown(fd: int, region: Region):
    executor = Locking()
    pinned = PinnedRegion(region, executor)

    pinned.follow(region.capacity_bytes)
    pinned.follow(region.capacity_bytes)
    assert executor.locked == {region.address: 4_096}
    writer = Region(os.dup(fd))
    writer.reserve(10_000)
    pinned.follow(writer.capacity_bytes)

    assert (executor.locked, executor.calls) == ({region.address: 12_288}, 2)
    writer.close()


def test_nothing_stays_locked_when_the_executor_closes_and_it_is_locked_again_when_it_runs_again(region: Region):
    executor = Locking()
    pinned = PinnedRegion(region, executor)
    pinned.follow(region.capacity_bytes)

    pinned.unpin()
    pinned.unpin()
    assert executor.locked == {}
    pinned.follow(region.capacity_bytes)

    assert executor.locked == {region.address: 4_096}


def test_an_executor_that_cannot_lock_is_asked_once_and_runs_all_the_same(
    region: Region, caplog: pytest.LogCaptureFixture
):
    executor = Locking(fails=True)
    pinned = PinnedRegion(region, executor)

    pinned.follow(region.capacity_bytes)
    pinned.follow(region.capacity_bytes)

    assert executor.calls == 1
    assert "no memory may be locked here" in caplog.text
    pinned.unpin()
