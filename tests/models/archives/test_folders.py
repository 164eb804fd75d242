"""Private folders that a living process has read stay; others go when nobody has used them for a day."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.archives.extraction import extract
from models.archives.folders import PrivateFolders
from models.archives.limits import DEFAULT_LIMITS
from tests.models.archives.builders import files, folders_in, manifest, write_zip


def unpacked(directory: Path, version: str, folders: PrivateFolders) -> str:
    """The folder's name."""
    archive = write_zip(directory / "a.mar", files(manifest(version=version)))
    return extract(archive, folders, DEFAULT_LIMITS).name


def make_old(folder: Path, days: float) -> None:
    then_ns = folder.stat().st_mtime_ns - int(days * 24 * 3600 * 1e9)
    os.utime(folder, ns=(then_ns, then_ns))


UNPACK_AND_CRASH = """
import os, sys
from pathlib import Path
from models.archives.extraction import extract
from models.archives.folders import PrivateFolders
from models.archives.limits import DEFAULT_LIMITS

folders = PrivateFolders(Path(sys.argv[2]))
extract(Path(sys.argv[1]), folders, DEFAULT_LIMITS)
os._exit(0)
"""


@pytest.fixture
def of_another(tmp_path: Path) -> Path:
    """The folder that a process has unpacked before it ended."""
    archive = write_zip(tmp_path / "a.mar", files(manifest(version="1.0")))
    subprocess.run([sys.executable, "-c", UNPACK_AND_CRASH, archive, tmp_path / "work"], check=True, timeout=30)
    (name,) = folders_in(tmp_path / "work")
    return tmp_path / "work" / name


@pytest.mark.slow
def test_what_a_process_that_has_ended_used_two_days_ago_is_removed_with_its_requirements(
    tmp_path: Path, of_another: Path
) -> None:
    make_old(of_another, 2)
    of_another.with_name(f"{of_another.name}-cpython-311").mkdir()

    new = unpacked(tmp_path, "2.0", PrivateFolders(tmp_path / "work"))

    assert folders_in(tmp_path / "work") == {new}


@pytest.mark.slow
def test_what_was_used_within_a_day_stays(tmp_path: Path, of_another: Path) -> None:
    make_old(of_another, 0.9)

    new = unpacked(tmp_path, "2.0", PrivateFolders(tmp_path / "work"))

    assert folders_in(tmp_path / "work") == {new, of_another.name}


@pytest.mark.slow
def test_a_folder_that_is_found_again_counts_as_used_and_is_kept_from_then_on(tmp_path: Path, of_another: Path) -> None:
    make_old(of_another, 2)
    here = PrivateFolders(tmp_path / "work")

    assert unpacked(tmp_path, "1.0", here) == of_another.name
    make_old(of_another, 2)
    new = unpacked(tmp_path, "2.0", PrivateFolders(tmp_path / "work"))

    assert folders_in(tmp_path / "work") == {new, of_another.name}


def test_what_another_server_that_runs_has_read_stays_however_long_ago(tmp_path: Path) -> None:
    running = PrivateFolders(tmp_path / "work")
    used = unpacked(tmp_path, "1.0", running)
    make_old(tmp_path / "work" / used, 400)

    new = unpacked(tmp_path, "2.0", PrivateFolders(tmp_path / "work"))

    assert folders_in(tmp_path / "work") == {used, new}


def test_what_is_let_go_of_is_removed_and_so_is_what_was_only_begun(tmp_path: Path) -> None:
    folders = PrivateFolders(tmp_path / "work")
    used = unpacked(tmp_path, "1.0", folders)
    begun = tmp_path / "work" / ".0123456789abcdef"
    begun.mkdir()
    (tmp_path / "work" / "of-somebody-else").mkdir()
    for name in (used, begun.name, "of-somebody-else"):
        make_old(tmp_path / "work" / name, 2)
    del folders

    new = unpacked(tmp_path, "2.0", PrivateFolders(tmp_path / "work"))

    assert folders_in(tmp_path / "work") == {new, "of-somebody-else"}


def test_lists_of_servers_that_have_ended_do_not_pile_up(tmp_path: Path) -> None:
    for _ in range(5):
        unpacked(tmp_path, "1.0", PrivateFolders(tmp_path / "work"))

    assert len(list((tmp_path / "work").glob(".in-use-*"))) == 1
