"""Random histories of registering and using shared memory, each call compared with a model of what it must do."""

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from gateway.errors import InvalidRegionError, RegionExistsError, RegionFailedError, UnknownRegionError
from gateway.v2.posix_memory import Region
from gateway.v2.shared_memory import SharedMemory
from tests.gateway.v2.segments import cut_off, needs_shared_memory, segment

pytestmark = needs_shared_memory

PAGE = mmap.PAGESIZE
NAMES = ("a", "b")
Outcome = object
"""What a call answers, or the type of its error."""


@dataclass
class Model:
    """What the registry must do, over byte arrays instead of files."""

    contents: dict[str, bytearray]
    regions: dict[str, Region] = field(default_factory=dict)

    def register(self, region: Region) -> Outcome:
        if region.name in self.regions:
            return RegionExistsError
        if region.key not in self.contents:
            return RegionFailedError
        if not 0 < region.size_bytes <= len(self.contents[region.key]) - region.offset or region.offset % PAGE:
            return InvalidRegionError
        self.regions[region.name] = region
        return None

    def unregister(self, name: str | None) -> Outcome:
        for gone in NAMES if name is None else (name,):
            self.regions.pop(gone, None)
        return None

    def read(self, name: str, offset: int, size_bytes: int) -> Outcome:
        place = self._place(name, offset, size_bytes)
        return bytes(self.contents[self.regions[name].key][place]) if isinstance(place, slice) else place

    def write(self, name: str, offset: int, limit_bytes: int, data: bytes) -> Outcome:
        place = self._place(name, offset, limit_bytes)
        if not isinstance(place, slice):
            return place
        if len(data) > limit_bytes:
            return RegionFailedError
        self.contents[self.regions[name].key][place.start : place.start + len(data)] = data
        return None

    def _place(self, name: str, offset: int, size_bytes: int) -> Outcome:
        region = self.regions.get(name)
        if region is None:
            return UnknownRegionError
        start = region.offset + offset
        is_inside = offset < region.size_bytes and 0 < offset + size_bytes <= region.size_bytes
        if not is_inside or start + size_bytes > len(self.contents[region.key]):
            return InvalidRegionError
        return slice(start, start + size_bytes)


class History:
    """Does the same at random to the registry and to the model."""

    def __init__(self, seed: int, paths: list[Path]) -> None:
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret
        self._paths = paths
        self._memory = SharedMemory(is_enabled=True)
        self._model = Model({path.name: bytearray(path.read_bytes()) for path in paths})

    def step(self) -> tuple[Outcome, Outcome]:
        """One call: what the registry and what the model make of it."""
        random = self._random
        verbs = [self._register, self._unregister, self._read, self._write, self._truncate]
        return random.choices(verbs, weights=(12, 1, 12, 12, 1))[0]()

    def differences(self) -> list[str]:
        """What of the registry and the files is not as in the model."""
        found = [path.name for path in self._paths if path.read_bytes() != self._model.contents[path.name]]
        listed = self._memory.status(None) == sorted(self._model.regions.values())
        return found if listed else [*found, "status"]

    def _register(self) -> tuple[Outcome, Outcome]:
        keys = [*(path.name for path in self._paths), "shoal-test-absent"]
        size_bytes = self._random.choice((100, 100, PAGE, 2 * PAGE, PAGE + 1, 1, 0, 2**64 - 1))
        region = Region(self._name(), self._random.choice(keys), self._random.choice((0, 0, 0, PAGE, 1)), size_bytes)
        return outcome(lambda: self._memory.register(*region)), self._model.register(region)

    def _unregister(self) -> tuple[Outcome, Outcome]:
        name = self._random.choice((*NAMES, None))
        return outcome(lambda: self._memory.unregister(name)), self._model.unregister(name)

    def _read(self) -> tuple[Outcome, Outcome]:
        place = self._name(), self._offset(), self._size()
        return outcome(lambda: self._memory.reader().read(*place)), self._model.read(*place)

    def _write(self) -> tuple[Outcome, Outcome]:
        place, data = (self._name(), self._offset(), self._size()), self._random.randbytes(self._random.randrange(130))
        return outcome(lambda: self._memory.output(*place).write(data, "OUT")), self._model.write(*place, data)

    def _truncate(self) -> tuple[Outcome, Outcome]:
        path, size_bytes = self._random.choice(self._paths), self._random.choice((0, 50, PAGE, 2 * PAGE))
        cut_off(path, size_bytes)
        content = self._model.contents[path.name]
        content[:] = content[:size_bytes].ljust(size_bytes, b"\0")
        return None, None

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _offset(self) -> int:
        return self._random.choice((0, 0, 0, 1, 60, 99, 100, PAGE, 2**64 - 1))

    def _size(self) -> int:
        return self._random.choice((1, 40, 40, 64, 100, 0, PAGE, 2**64 - 1))


def outcome(call: Callable[[], Outcome]) -> Outcome:
    try:
        return call()
    except (InvalidRegionError, RegionExistsError, RegionFailedError, UnknownRegionError) as error:
        return type(error)


def play(seed: int, steps: int) -> None:
    """A history; fails at the first call that the model does not foresee."""
    with segment(bytes(2 * PAGE)) as first, segment(bytes(100)) as second:
        history = History(seed, [first, second])
        for number in range(steps):
            found, expected = history.step()
            assert found == expected, (seed, number)
        assert history.differences() == [], seed


@pytest.mark.parametrize("seed", range(10))
def test_a_random_history_is_as_the_model_says(seed: int) -> None:
    play(seed, steps=1000)


@pytest.mark.slow
def test_ten_thousand_random_histories_are_as_the_model_says() -> None:
    for seed in range(10_000):
        play(seed, steps=20)
