"""Built engines on disk: kept whole, or not at all."""

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from backends.tensorrt_engine.store import EngineState, EngineStore
from tests.backends.tensorrt_builders import MACHINE


def entry(directory: Path) -> Path:
    (file,) = (directory / "tensorrt").glob("*.engine")
    return file


def test_an_engine_is_found_again(tmp_path: Path) -> None:
    store = EngineStore(tmp_path, MACHINE)

    before = store.state("key")
    store.save("key", b"plan")

    assert (before, store.state("key"), store.load("key")) == (EngineState.MISSING, EngineState.READY, b"plan")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"", lambda data: data[:40] + b"?" * 9]
)
def test_a_damaged_engine_is_none(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    store = EngineStore(tmp_path, MACHINE)
    store.save("key", b"a plan of some bytes")

    entry(tmp_path).write_bytes(damage(entry(tmp_path).read_bytes()))

    assert (store.state("key"), store.load("key")) == (EngineState.STALE, None)


def test_an_engine_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    store = EngineStore(tmp_path, MACHINE)
    store.save("key", b"plan")

    entry(tmp_path).rename(entry(tmp_path).with_name("other.engine"))

    assert store.load("other") is None


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    store = EngineStore(tmp_path, MACHINE)
    store.save("key", b"old")
    (tmp_path / "tensorrt" / "blocked.engine").mkdir()

    with pytest.raises(OSError, match="directory"):
        store.save("blocked", b"new")

    assert sorted(file.name for file in (tmp_path / "tensorrt").iterdir()) == ["blocked.engine", "key.engine"]


def test_a_discarded_engine_is_missing(tmp_path: Path) -> None:
    store = EngineStore(tmp_path, MACHINE)
    store.save("key", b"plan")

    store.discard("key")
    store.discard("key")

    assert store.state("key") is EngineState.MISSING


def test_timings_belong_to_one_machine(tmp_path: Path) -> None:
    EngineStore(tmp_path, MACHINE).save_timings(b"timings")

    other = EngineStore(tmp_path, replace(MACHINE, gpu_name="Fake 2000"))

    assert (EngineStore(tmp_path, MACHINE).load_timings(), other.load_timings()) == (b"timings", b"")


def test_a_refusal_is_remembered_for_the_machine_that_refused(tmp_path: Path) -> None:
    EngineStore(tmp_path, MACHINE).note_refused("digest", "another version")

    other = EngineStore(tmp_path, replace(MACHINE, tensorrt_version="10.9.0"))

    assert EngineStore(tmp_path, MACHINE).is_refused("digest")
    assert not other.is_refused("digest")


def test_an_engine_is_built_by_one_process_at_a_time(tmp_path: Path) -> None:
    store = EngineStore(tmp_path, MACHINE)

    with store.building("key"):
        (lock,) = (tmp_path / "tensorrt").glob("*.lock")
        with lock.open() as another, pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with lock.open() as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
