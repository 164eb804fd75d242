"""Archives become private folders, complete or not at all; what is hostile changes nothing anywhere."""

import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.archives.extraction import extract
from models.archives.folders import PrivateFolders
from models.archives.limits import ExtractionLimits
from models.errors import ArchiveError
from tests.models.archives.builders import (
    files,
    folders_in,
    gzip_of,
    manifest,
    patched,
    tar_info,
    write_directory,
    write_tar,
    write_tar_members,
    write_zip,
    zip_with,
)

SMALL = ExtractionLimits(
    max_entries=20, max_bytes=100_000, max_ratio=50, ratio_free_bytes=20_000, max_levels=8, max_name_bytes=300
)
Build = Callable[[Path], Path]


def everything_below(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(directory.rglob("*"))
    }


def of_zip(name: str, mode: int = stat.S_IFREG | 0o644, data: bytes = b"x") -> Build:
    return lambda path: zip_with(path.with_name("a.mar"), name, mode=mode, data=data)


def of_tar(*members: tarfile.TarInfo, data: bytes = b"") -> Build:
    return lambda path: write_tar_members(path.with_name("a.tar.gz"), [(member, data) for member in members])


def zip_twice(first: str, second: str) -> Build:
    return lambda path: write_zip(path.with_name("a.mar"), {first: "1", second: "2"})


def repeated(path: Path) -> Path:
    """The same name twice, which zipfile does not write without a warning."""
    return patched(write_zip(path.with_name("a.mar"), {"one.py": "1", "two.py": "2"}), b"two.py", b"one.py")


def lying(path: Path) -> Path:
    """A member that says in both its headers that it has ten bytes, and has more."""
    archive = write_zip(path.with_name("a.mar"), {"x": bytes(3_000)})
    return patched(archive, struct.pack("<I", 3_000), struct.pack("<I", 10))


def truncated(build: Build, left: float) -> Build:
    def cut(path: Path) -> Path:
        archive = build(path)
        content = archive.read_bytes()
        archive.write_bytes(content[: int(len(content) * left)])
        return archive

    return cut


def corrupt_zip(path: Path) -> Path:
    archive = path.with_name("a.mar")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr("x", b"content that is not changed")
    return patched(archive, b"not changed", b"now changed")


def pointing_before(path: Path) -> Path:
    """The end of the file says that its table stands ten bytes further than it does, so members begin at -10."""
    archive = write_zip(path.with_name("a.mar"), {"x": "1"})
    content = bytearray(archive.read_bytes())
    at = content.rindex(b"PK\x05\x06") + 16
    content[at : at + 4] = struct.pack("<I", struct.unpack("<I", content[at : at + 4])[0] + 10)
    archive.write_bytes(content)
    return archive


def of_method(path: Path) -> Path:
    archive = path.with_name("a.mar")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("x", b"x" * 100)
    return archive


def encrypted(path: Path) -> Path:
    """The flag alone is enough: nothing is decrypted."""
    archive = write_zip(path.with_name("a.mar"), {"x": "1"})
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    return archive


def long_header(path: Path) -> Path:
    """A long name of 10 GB, of which only the first kilobytes are there."""
    info = tar_info("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    info.size = 10 << 30
    return gzip_of(path.with_name("a.tar.gz"), info.tobuf(tarfile.GNU_FORMAT) + bytes(3 << 20))


def sparse(path: Path) -> Path:
    info = tar_info("x", tarfile.GNUTYPE_SPARSE)
    return gzip_of(path.with_name("a.tar.gz"), info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))


ZOO: dict[str, tuple[Build, str]] = {
    "traversal in zip": (of_zip("../../evil.py"), "'../../evil.py' that leads out of the archive"),
    "traversal inside": (of_zip("a/../../evil.py"), "leads out of the archive"),
    "traversal in tar": (of_tar(tar_info("m/../../evil.py")), "leads out of the archive"),
    "absolute in zip": (of_zip("/tmp/evil.py"), "with an absolute path"),  # noqa: S108 - never written
    "absolute in tar": (of_tar(tar_info("/evil.py")), "with an absolute path"),
    "drive letter": (of_zip("C:evil.py"), "with an absolute path"),
    "backslash": (of_zip("..\\evil.py"), "with a backslash in its name"),
    "NUL": (of_zip("a\0b.py"), "with a control character in its name"),
    "line break": (of_zip("a\nb.py"), "with a control character in its name"),
    "line break in tar": (of_tar(tar_info("a\nb.py")), "with a control character in its name"),
    "empty step": (of_zip("a//b.py"), "with an empty step in its path"),
    "dot": (of_zip("./a.py"), "with an empty step in its path"),
    "no name": (of_zip(""), "with an empty step in its path"),
    "not UTF-8": (
        lambda path: patched(of_zip("aXb.py")(path), b"aXb.py", b"a\xe4b.py"),
        "whose name is not UTF-8",
    ),
    "not UTF-8 in tar": (of_tar(tar_info("a\udce4b")), "whose name is not UTF-8"),
    "link in zip": (of_zip("x", stat.S_IFLNK | 0o777, b"/etc/passwd"), "'x', which is a link"),
    "link in tar": (of_tar(tar_info("x", tarfile.SYMTYPE, "/etc/passwd")), "'x', which is a link"),
    "file through a link": (of_tar(tar_info("x", tarfile.SYMTYPE, ".."), tar_info("x/evil.py")), "which is a link"),
    "hard link": (of_tar(tar_info("x", tarfile.LNKTYPE, "../../secret")), "'x', which is a link"),
    "device": (of_tar(tar_info("x", tarfile.CHRTYPE)), "'x', which is a device"),
    "device in zip": (of_zip("x", stat.S_IFBLK | 0o600), "'x', which is a device"),
    "pipe": (of_tar(tar_info("x", tarfile.FIFOTYPE)), "'x', which is a pipe"),
    "sparse file": (sparse, "which is a sparse file"),
    "unknown kind": (of_tar(tar_info("x", b"Z")), "which is something special"),
    "same name twice": (repeated, "one would replace the other"),
    "same name in other case": (zip_twice("a/Model.py", "a/model.py"), "one would replace the other"),
    "same name, other accents": (zip_twice("\u00e4", "a\u0308"), "one would replace the other"),
    "directory in other case": (zip_twice("A/x", "a/y"), "one would replace the other"),
    "file, then directory": (zip_twice("a", "a/b"), "one would replace the other"),
    "directory, then file": (zip_twice("a/b", "a"), "one would replace the other"),
    "file twice in tar": (of_tar(tar_info("x"), tar_info("x")), "one would replace the other"),
    "300 levels": (of_zip("d/" * 300 + "x"), "below more than 8 directories"),
    "long name": (of_zip("/".join(["n" * 150] * 3)), "with a name of more than 300 bytes"),
    "long step": (of_zip("n" * 280), "with a step of more than 255 bytes"),
    "many members": (lambda path: write_zip(path.with_name("a.mar"), {f"f{i}": "" for i in range(30)}), "at most 20"),
    "many directories": (of_tar(*(tar_info(f"a/b{i}/c{i}/x") for i in range(8))), "at most 20"),
    "many nothings": (of_tar(*(tar_info("./", tarfile.DIRTYPE) for _ in range(30))), "at most 20"),
    "much content": (of_zip("x", data=os.urandom(120_000)), "at most 100000 bytes"),
    "much content in tar": (of_tar(tar_info("x"), data=os.urandom(120_000)), "at most 100000 bytes"),
    "lying size": (lying, "damaged archive"),
    "10 GB header": (long_header, "headers of more than 1 MiB"),
    "encrypted": (encrypted, "the encrypted member 'x'"),
    "other compression": (of_method, "in compression 12"),
    "wrong check sum": (corrupt_zip, "damaged archive"),
    "members before the beginning": (pointing_before, "damaged archive"),
    "half a zip": (truncated(lambda path: write_zip(path.with_name("a.mar"), files()), 0.5), "damaged archive"),
    "half a tar": (truncated(lambda path: write_tar(path.with_name("a.tar.gz"), files()), 0.5), "damaged archive"),
    "nothing": (lambda path: gzip_of(path.with_name("a.tar.gz"), b"no tar at all" * 100), "damaged archive"),
}


@pytest.mark.parametrize(("build", "sentence"), ZOO.values(), ids=ZOO)
def test_a_hostile_archive_is_refused_with_a_sentence_and_changes_nothing(
    tmp_path: Path, build: Build, sentence: str
) -> None:
    archive = build(tmp_path / "archive")
    before = everything_below(tmp_path)

    with pytest.raises(ArchiveError) as refused:
        extract(archive, PrivateFolders(tmp_path / "work"), SMALL)

    assert str(refused.value).startswith(f"{archive.name}: found ")
    assert sentence in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
    assert everything_below(tmp_path) == {"work": (stat.S_IFDIR | 0o700, b""), **before}


@pytest.mark.parametrize("suffix", [".mar", ".tar.gz"])
def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path, suffix: str) -> None:
    zeros = {"zeros": bytes(50_000)}
    archive = (write_zip if suffix == ".mar" else write_tar)(tmp_path / f"a{suffix}", zeros)

    with pytest.raises(ArchiveError, match=r"content of 50\d{3} bytes or more in a file of \d+, expected at most 50 t"):
        extract(archive, PrivateFolders(tmp_path / "work"), SMALL)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mar").write_text("a text")

    with pytest.raises(ArchiveError, match=r"a\.mar: found neither a zip nor a tar\.gz file"):
        extract(tmp_path / "a.mar", PrivateFolders(tmp_path / "work"), SMALL)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_unpacked_archive_with_something_special_is_refused(tmp_path: Path, kind: str) -> None:
    directory = write_directory(tmp_path / "m", files())
    if kind == "link":
        (directory / "x").symlink_to("/etc/passwd")
    else:
        os.mkfifo(directory / "x")

    with pytest.raises(ArchiveError, match=r"m: found 'x', which is "):
        extract(directory, PrivateFolders(tmp_path / "work"), SMALL)
    assert list((tmp_path / "work").iterdir()) == []


@given(
    names=st.lists(
        st.one_of(
            st.text(st.sampled_from("ab./\\:\0\nAB\u00e4 "), min_size=1, max_size=12),
            st.sampled_from(["../x", "/x", "a/../../x", "a/.", "..", "a/..", "A", "a", "a/b", "a/b/c", "C:x", "~/x"]),
        ),
        max_size=8,
        unique=True,
    ),
    packed=st.sampled_from(["zip", "tar"]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_names_are_nothing_is_written_outside(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], packed: str
) -> None:
    place = tmp_path_factory.mktemp("outside")
    archive = place / "a.mar"
    if packed == "zip":
        write_hostile_zip(archive, names)
    else:
        write_tar_members(archive, [(tar_info(name), b"evil") for name in names])
    before = everything_below(place)

    try:
        folder = extract(archive, PrivateFolders(place / "inner" / "work"), SMALL)
        accepted = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert accepted <= {plain(name) for name in names}
    except ArchiveError:
        pass

    outside = {name: value for name, value in everything_below(place).items() if not name.startswith("inner")}
    assert outside == before


def plain(name: str) -> str:
    """What formats leave of a name: tar ends it at a NUL, and slashes at the end only mark directories."""
    return name.partition("\0")[0].removeprefix("./").rstrip("/")


def write_hostile_zip(path: Path, names: list[str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo("placeholder")
            info.filename = info.orig_filename = name
            archive.writestr(info, b"evil")


@given(data=st.data(), packed=st.sampled_from(["zip", "tar"]))
@settings(max_examples=60, deadline=None)
def test_a_damaged_archive_never_fails_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, packed: str
) -> None:
    place = tmp_path_factory.mktemp("damaged")
    archive = (write_zip if packed == "zip" else write_tar)(place / "a.mar", files())
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])

    try:
        folder = extract(archive, PrivateFolders(place / "work"), SMALL)
    except ArchiveError:
        assert list((place / "work").iterdir()) == []
    else:
        assert folder.parent == place / "work"


@pytest.mark.parametrize("form", ["zip", "tar", "directory"])
def test_what_is_unpacked_is_private_and_complete(tmp_path: Path, form: str) -> None:
    content = {**files(), "data/deep/labels.txt": "cat\n"}
    write = {
        "zip": write_zip,
        "tar": lambda path, members: write_tar(path, members, prefix=""),
        "directory": write_directory,
    }
    archive = write[form](tmp_path / "a.mar", content)

    folder = extract(archive, PrivateFolders(tmp_path / "work"), SMALL)

    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    assert {name: path.read_text() for name, path in found.items() if path.is_file()} == content
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent, *found.values()) if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found.values() if path.is_file()} == {0o600}


@pytest.mark.parametrize("form", ["zip", "directory"])
def test_the_same_content_has_one_folder_and_other_content_another(tmp_path: Path, form: str) -> None:
    write = write_zip if form == "zip" else write_directory
    first = extract(write(tmp_path / "a", files()), PrivateFolders(tmp_path / "work"), SMALL)
    again = extract(tmp_path / "a", PrivateFolders(tmp_path / "work"), SMALL)
    other = extract(write(tmp_path / "a", files(manifest(version="2.0"))), PrivateFolders(tmp_path / "work"), SMALL)

    assert first == again != other
    assert folders_in(tmp_path / "work") == {first.name, other.name}


def test_bytecode_of_an_unpacked_archive_is_not_its_content(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "m", files())
    first = extract(directory, PrivateFolders(tmp_path / "work"), SMALL)
    write_directory(directory, {"__pycache__/handler.cpython-311.pyc": "bytes"})

    assert extract(directory, PrivateFolders(tmp_path / "work"), SMALL) == first


def test_a_tar_with_a_leading_dot_is_an_ordinary_one(tmp_path: Path) -> None:
    members = [
        (tar_info("./", tarfile.DIRTYPE), b""),
        (tar_info("./a/", tarfile.DIRTYPE), b""),
        (tar_info("./a/x"), b"1"),
    ]
    archive = write_tar_members(tmp_path / "a.tar.gz", members)

    folder = extract(archive, PrivateFolders(tmp_path / "work"), SMALL)

    assert (folder / "a" / "x").read_bytes() == b"1"
