import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.errors import (
    InvalidRegionError,
    RegionExistsError,
    RegionFailedError,
    RequestTooLargeError,
    SharedMemoryOffError,
    UnknownRegionError,
)
from gateway.v2.posix_memory import Region
from gateway.v2.shared_memory import INLINE_BYTES, MAX_NAME_LENGTH, MAX_REGIONS, SharedMemory
from tests.gateway.v2.segments import DIRECTORY, cut_off, needs_shared_memory, new_key, open_files, segment

pytestmark = needs_shared_memory

PAGE = mmap.PAGESIZE
CONTENT = bytes(range(256))
CUT_OFF = "Invalid offset + byte size for shared memory region: 'r'"


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(is_enabled=True)


@pytest.fixture
def path() -> Iterator[Path]:
    with segment(CONTENT) as made:
        yield made


@pytest.fixture
def registered(memory: SharedMemory, path: Path) -> SharedMemory:
    memory.register("r", path.name, 0, len(CONTENT))
    return memory


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_a_key_may_begin_with_slashes(memory: SharedMemory, path: Path, slashes: str) -> None:
    memory.register("r", slashes + path.name, 0, 4)

    assert memory.status("r") == [Region("r", slashes + path.name, 0, 4)]


def test_all_regions_are_listed_by_name(memory: SharedMemory, path: Path) -> None:
    for name in ("b", "a"):
        memory.register(name, path.name, 0, 4)

    assert [region.name for region in memory.status(None)] == ["a", "b"]


def test_a_region_is_read_from_its_own_start() -> None:
    memory = SharedMemory(is_enabled=True)

    with segment(bytes(PAGE) + CONTENT) as path:
        memory.register("r", path.name, PAGE, len(CONTENT))

        assert memory.reader().read("r", 3, 5) == CONTENT[3:8]


def test_an_output_lands_where_the_client_reads_it(registered: SharedMemory, path: Path) -> None:
    registered.output("r", 8, 4).write(b"\xff\xfe\xfd", "OUT")

    assert path.read_bytes() == CONTENT[:8] + b"\xff\xfe\xfd" + CONTENT[11:]


@pytest.mark.parametrize("offset", [0, 200])
def test_an_empty_output_needs_no_room(registered: SharedMemory, path: Path, offset: int) -> None:
    registered.output("r", offset, 1).write(b"", "OUT")

    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("offset", "size_bytes", "text"),
    [
        (256, 1, "Invalid offset for shared memory region: 'r'"),
        (2**64 - 1, 1, "Invalid offset for shared memory region: 'r'"),
        (255, 2, CUT_OFF),
        (0, 257, CUT_OFF),
        (0, 2**64 - 1, CUT_OFF),
        (0, 0, CUT_OFF),
        (
            1,
            2**64 - 1,
            f"Integer overflow detected: byte_size ({2**64 - 1}) + offset (1) exceeds maximum value ({2**64 - 1}) for "
            "region 'r'",
        ),
    ],
)
def test_bytes_outside_the_region_are_refused(
    registered: SharedMemory, offset: int, size_bytes: int, text: str
) -> None:
    for use in (registered.reader().read, registered.output):
        with pytest.raises(InvalidRegionError) as caught:
            use("r", offset, size_bytes)

        assert str(caught.value) == text


def test_no_bytes_behind_the_start_can_be_read(registered: SharedMemory) -> None:
    assert registered.reader().read("r", 1, 0) == b""


def test_an_unknown_region_is_not_found(memory: SharedMemory) -> None:
    for use in (memory.reader().read, memory.output):
        with pytest.raises(UnknownRegionError, match=r"^Unable to find shared memory region: 'r'$"):
            use("r", 0, 1)


def test_the_status_of_an_unknown_region_is_not_found(memory: SharedMemory) -> None:
    with pytest.raises(UnknownRegionError, match=r"^Unable to find system shared memory region: 'r'$"):
        memory.status("r")


def test_an_output_that_does_not_fit_is_refused(registered: SharedMemory, path: Path) -> None:
    output = registered.output("r", 0, 3)

    with pytest.raises(RegionFailedError) as caught:
        output.write(bytes(4), "OUT")

    assert str(caught.value) == (
        "shared memory size specified with the request for output 'OUT' (3 bytes) should be at least 4 bytes to hold "
        "the results"
    )
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("offset", "size_bytes", "reason"),
    [
        (0, 257, "invalid args"),
        (256, 1, "invalid args"),
        (0, 2**64 - 1, "invalid args"),
        (PAGE, 1, "invalid args"),
        (0, 0, "unable to process address spaceInvalid argument"),
        (8, 8, "unable to process address spaceInvalid argument"),
        (2, 2**64 - 1, "unable to process address spaceInvalid argument"),
        (PAGE, 2**64 - PAGE, "unable to process address spaceCannot allocate memory"),
    ],
)
def test_a_region_outside_its_memory_is_refused(
    memory: SharedMemory, path: Path, offset: int, size_bytes: int, reason: str
) -> None:
    with pytest.raises(InvalidRegionError) as caught:
        memory.register("r", path.name, offset, size_bytes)

    assert str(caught.value) == f"failed to register shared memory region 'r': {reason}"
    assert memory.status(None) == []


@pytest.mark.parametrize("key", ["", "/", ".", "..", "../etc/passwd", "a/b", "a\0b", "\udc80", "n" * 300])
def test_a_key_that_names_no_memory_cannot_be_opened(memory: SharedMemory, key: str) -> None:
    with pytest.raises(RegionFailedError) as caught:
        memory.register("r", key, 0, 1)

    assert str(caught.value) == f"Unable to open shared memory region: '{key}'"


def test_a_link_out_of_the_directory_is_refused_like_a_key_that_does_not_exist(
    memory: SharedMemory, tmp_path: Path
) -> None:
    secret, link = tmp_path / "secret", DIRECTORY / new_key()
    secret.write_bytes(CONTENT)
    link.symlink_to(secret)
    try:
        with pytest.raises(RegionFailedError, match=r"^Unable to open shared memory region"):
            memory.register("r", link.name, 0, 1)
    finally:
        link.unlink()


def test_a_directory_is_refused_like_a_key_that_does_not_exist(memory: SharedMemory) -> None:
    place = DIRECTORY / new_key()
    place.mkdir()
    try:
        with pytest.raises(RegionFailedError, match=r"^Unable to open shared memory region"):
            memory.register("r", place.name, 0, 1)
    finally:
        place.rmdir()


def test_a_pipe_is_refused_like_a_key_that_does_not_exist(memory: SharedMemory) -> None:
    pipe = DIRECTORY / new_key()
    os.mkfifo(pipe)
    try:
        with pytest.raises(RegionFailedError, match=r"^Unable to open shared memory region"):
            memory.register("r", pipe.name, 0, 1)
    finally:
        pipe.unlink()


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_memory_of_tritons_workers_is_reserved(memory: SharedMemory, slash: str) -> None:
    key = f"{slash}triton_python_backend_shm_region_x"

    with pytest.raises(InvalidRegionError) as caught:
        memory.register("r", key, 0, 1)

    assert str(caught.value) == (
        f"cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix "
        "'triton_python_backend_shm_region_'"
    )


def test_a_name_is_taken_until_it_is_unregistered(registered: SharedMemory, path: Path) -> None:
    with pytest.raises(RegionExistsError, match=r"^shared memory region 'r' already in manager$"):
        registered.register("r", path.name, 0, 8)
    registered.unregister("r")

    registered.register("r", path.name, 0, 8)

    assert registered.status("r")[0].size_bytes == 8


@pytest.mark.parametrize("name", ["r", None])
def test_an_unregistered_region_is_gone(registered: SharedMemory, name: str | None) -> None:
    registered.unregister(name)

    assert registered.status(None) == []


def test_unregistering_an_unknown_region_changes_nothing(registered: SharedMemory) -> None:
    registered.unregister("other")

    assert len(registered.status(None)) == 1


def test_no_descriptor_is_left_behind(registered: SharedMemory, path: Path) -> None:
    output = registered.output("r", 0, 4)
    with pytest.raises(InvalidRegionError):
        registered.register("too large", path.name, 0, 257)
    registered.unregister("r")
    held = open_files().count(str(path))
    del output

    assert (held, open_files().count(str(path))) == (1, 0)


def test_there_are_never_more_regions_than_the_limit(memory: SharedMemory, path: Path) -> None:
    for number in range(MAX_REGIONS):
        memory.register(str(number), path.name, 0, 1)

    with pytest.raises(InvalidRegionError, match=f"found {MAX_REGIONS} regions"):
        memory.register("one more", path.name, 0, 1)


def test_a_name_has_a_longest_length(memory: SharedMemory, path: Path) -> None:
    with pytest.raises(InvalidRegionError, match="expected at most 1024"):
        memory.register("n" * (MAX_NAME_LENGTH + 1), path.name, 0, 1)


def test_memory_that_was_cut_off_is_refused_and_does_not_grow_again(registered: SharedMemory, path: Path) -> None:
    output = registered.output("r", 0, 256)
    cut_off(path, 100)

    with pytest.raises(InvalidRegionError) as read:
        registered.reader().read("r", 0, 101)
    with pytest.raises(InvalidRegionError) as written:
        output.write(bytes(256), "OUT")

    assert {str(read.value), str(written.value)} == {CUT_OFF}
    assert path.read_bytes() == CONTENT[:100]


def test_what_is_left_of_memory_that_was_cut_off_can_be_used(registered: SharedMemory, path: Path) -> None:
    cut_off(path, 100)

    assert registered.reader().read("r", 90, 10) == CONTENT[90:100]


def test_memory_whose_name_is_gone_stays_usable(registered: SharedMemory, path: Path) -> None:
    path.unlink()

    assert registered.reader().read("r", 0, 4) == CONTENT[:4]


def test_an_output_is_written_though_its_region_was_unregistered_meanwhile(
    registered: SharedMemory, path: Path
) -> None:
    output = registered.output("r", 0, 4)
    registered.unregister(None)

    output.write(b"late", "OUT")

    assert path.read_bytes()[:4] == b"late"


def test_one_request_reads_no_more_than_the_limit(path: Path) -> None:
    memory = SharedMemory(is_enabled=True, max_read_bytes=300)
    memory.register("r", path.name, 0, 256)
    reader = memory.reader()
    reader.read("r", 0, 200)

    with pytest.raises(RequestTooLargeError) as caught:
        reader.read("r", 0, 101)

    assert caught.value.limit_bytes == 300
    assert len(memory.reader().read("r", 0, 101)) == 101


def test_reading_counts_as_slow_while_a_large_region_is_registered(memory: SharedMemory) -> None:
    with segment(bytes(INLINE_BYTES + 1)) as path:
        memory.register("small", path.name, 0, INLINE_BYTES)
        small = memory.is_slow
        memory.register("large", path.name, 0, INLINE_BYTES + 1)
        large = memory.is_slow
        memory.unregister("large")

        assert (small, large, memory.is_slow) == (False, True, False)


def test_nothing_can_be_registered_unless_it_is_allowed(path: Path) -> None:
    memory = SharedMemory(is_enabled=False)
    text = "^Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.$"

    for call in (
        lambda: memory.register("r", path.name, 0, 1),
        lambda: memory.unregister(None),
        lambda: memory.register_cuda("r"),
    ):
        with pytest.raises(SharedMemoryOffError, match=text):
            call()

    assert memory.status(None) == []


def test_the_memory_of_gpus_is_refused(registered: SharedMemory) -> None:
    with pytest.raises(InvalidRegionError, match=r"^failed to register shared memory region: invalid args$"):
        registered.register_cuda("c")
    with pytest.raises(RegionExistsError):
        registered.register_cuda("r")

    assert registered.cuda_status(None) == []


def test_the_status_of_gpu_memory_knows_no_region(registered: SharedMemory) -> None:
    with pytest.raises(UnknownRegionError, match=r"^Unable to find cuda shared memory region: 'c'$"):
        registered.cuda_status("c")
    with pytest.raises(UnknownRegionError, match=r"^The region named 'r' is registered as system shared memory"):
        registered.cuda_status("r")


def test_threads_that_read_while_others_unregister_get_the_bytes_or_a_typed_error(path: Path) -> None:
    memory = SharedMemory(is_enabled=True)
    answers: list[bytes] = []

    def read() -> None:
        found = 0
        while found < 200:
            with suppress(UnknownRegionError):
                answers.append(memory.reader().read("r", 0, 256))
                found += 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        memory.register("r", path.name, 0, 256)
        memory.reader().read("r", 0, 1)  # lets the others run meanwhile
        memory.unregister(None)

    assert len(answers) == 400
    assert set(answers) == {CONTENT}
