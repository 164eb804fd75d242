"""A repository in a bucket becomes a local one, and stays whole whatever happens on the way."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.errors import RepositoryError
from models.remote import Mirror, MirrorLimits
from models.repository import scan
from tests.models.remote.servers import S3, s3_server

pytestmark = pytest.mark.slow

CONFIG = b"""
backend: "fake"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "x" data_type: TYPE_FP32 dims: 2 }
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as s3:
        yield s3


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def s3(server: S3) -> Iterator[S3]:
    yield server
    server.damaged.clear()
    server.reads.clear()
    server.broken = False
    server.before_read = lambda _key: None


@pytest.fixture
def bucket(request: pytest.FixtureRequest, s3: S3) -> str:
    """A bucket of the test's own with a prefix that holds one model of two versions."""
    name = f"b{abs(hash(request.node.nodeid)) % 10**12}"
    s3.put(f"{name}/repo/echo/config.pbtxt", CONFIG)
    s3.put(f"{name}/repo/echo/1/model.bin", b"one")
    s3.put(f"{name}/repo/echo/2/", b"")
    s3.reads.clear()
    return name


@pytest.fixture
def mirror(s3: S3, bucket: str, tmp_path: Path) -> Mirror:
    return Mirror(f"s3://{s3.url}/{bucket}/repo", tmp_path)


def files_of(mirror: Mirror) -> dict[str, bytes]:
    found = (Path(root) / name for root, _, names in os.walk(mirror.path, followlinks=True) for name in names)
    return {file.relative_to(mirror.path).as_posix(): file.read_bytes() for file in found}


def test_a_bucket_becomes_a_repository(mirror: Mirror) -> None:
    report = mirror.sync()

    assert (report.changed, report.removed, report.problems) == (("echo",), (), ())
    assert files_of(mirror) == {"echo/config.pbtxt": CONFIG, "echo/1/model.bin": b"one"}
    (entry,) = scan([mirror.path]).models
    assert ([spec.version for spec in entry.versions], entry.problems) == ([2], ())


def test_nothing_is_fetched_twice(mirror: Mirror, s3: S3) -> None:
    mirror.sync()
    s3.reads.clear()

    report = mirror.sync()

    assert (report.changed, s3.reads) == ((), [])


def test_another_process_goes_on_with_the_same_mirror(mirror: Mirror, s3: S3, bucket: str, tmp_path: Path) -> None:
    mirror.sync()
    s3.reads.clear()

    report = Mirror(f"s3://{s3.url}/{bucket}/repo/", tmp_path).sync()

    assert (report.changed, s3.reads) == ((), [])


def test_only_changed_objects_are_fetched(mirror: Mirror, s3: S3, bucket: str) -> None:
    mirror.sync()
    s3.reads.clear()
    s3.put(f"{bucket}/repo/echo/1/model.bin", b"new")

    report = mirror.sync()

    assert (report.changed, s3.reads) == (("echo",), [f"{bucket}/repo/echo/1/model.bin"])
    assert files_of(mirror)["echo/1/model.bin"] == b"new"


def test_whoever_reads_the_old_files_may_go_on(mirror: Mirror, s3: S3, bucket: str) -> None:
    mirror.sync()
    old = (mirror.path / "echo").resolve() / "1/model.bin"
    s3.put(f"{bucket}/repo/echo/1/model.bin", b"new")

    mirror.sync()

    assert old.read_bytes() == b"one"


def test_the_second_change_removes_the_first_files(mirror: Mirror, s3: S3, bucket: str) -> None:
    mirror.sync()
    first = (mirror.path / "echo").resolve()

    for content in (b"two", b"three"):
        s3.put(f"{bucket}/repo/echo/1/model.bin", content)
        mirror.sync()

    assert not first.exists()


def test_what_is_removed_from_the_bucket_is_removed_here(mirror: Mirror, s3: S3, bucket: str) -> None:
    s3.put(f"{bucket}/repo/other/1/x", b"x")
    s3.put(f"{bucket}/repo/echo/3/x", b"x")
    mirror.sync()
    s3.delete(f"{bucket}/repo/other/1/x")
    s3.delete(f"{bucket}/repo/echo/3/x")

    report = mirror.sync()

    assert (report.changed, report.removed) == (("echo",), ("other",))
    assert sorted(path.name for path in mirror.path.iterdir()) == ["echo"]
    assert not (mirror.path / "echo/3").exists()


def test_a_neighbouring_prefix_is_another_repository(mirror: Mirror, s3: S3, bucket: str) -> None:
    s3.put(f"{bucket}/repository/other/1/x", b"x")

    mirror.sync()

    assert [path.name for path in mirror.path.iterdir()] == ["echo"]


def test_a_bucket_without_prefix_and_one_archive_are_repositories_too(s3: S3, bucket: str, tmp_path: Path) -> None:
    s3.put(f"{bucket}/store/cat.mar", b"archive")
    whole, one = Mirror(f"s3://{s3.url}/{bucket}", tmp_path), Mirror(f"s3://{s3.url}/{bucket}/store/cat.mar", tmp_path)

    whole.sync()
    one.sync()

    assert "store/cat.mar" in files_of(whole)
    assert files_of(one) == {"cat.mar": b"archive"}


def test_content_that_is_not_what_its_tag_says_is_never_seen(mirror: Mirror, s3: S3, bucket: str) -> None:
    mirror.sync()
    s3.put(f"{bucket}/repo/echo/1/model.bin", b"new")
    s3.damaged.add(f"{bucket}/repo/echo/1/model.bin")

    report = mirror.sync()

    assert "expected 22af645d1859cb5ca6da0c484f1f37ea as listed" in str(report.problems[0])
    assert files_of(mirror)["echo/1/model.bin"] == b"one"


def test_the_tag_of_an_encrypted_object_is_no_digest(mirror: Mirror, s3: S3, bucket: str) -> None:
    key = f"{bucket}/repo/echo/1/model.bin"
    s3.put(key, b"two", **{"x-amz-server-side-encryption": "aws:kms"})
    s3.damaged.add(key)

    report = mirror.sync()

    assert (report.changed, report.problems) == (("echo",), ())


def test_a_process_that_is_killed_while_it_fetches_leaves_what_was_whole(
    mirror: Mirror, s3: S3, bucket: str, tmp_path: Path
) -> None:
    mirror.sync()
    s3.put(f"{bucket}/repo/echo/1/model.bin", b"new")
    s3.put(f"{bucket}/repo/other/1/x", b"x")
    url = f"s3://{s3.url}/{bucket}/repo"
    code = (
        f"from pathlib import Path; from models.remote import Mirror; Mirror({url!r}, Path({str(tmp_path)!r})).sync()"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    s3.before_read = lambda _key: process.kill()

    code_of_end = process.wait()

    assert (code_of_end, files_of(mirror)["echo/1/model.bin"]) == (-signal.SIGKILL, b"one")
    s3.before_read = lambda _key: None
    assert mirror.sync().changed == ("echo", "other")
    assert files_of(mirror)["echo/1/model.bin"] == b"new"
    assert not list(tmp_path.glob("**/*.part"))


def test_calls_from_several_threads_share_their_looks(mirror: Mirror, s3: S3) -> None:
    calls = 8
    with ThreadPoolExecutor(calls) as threads:
        reports = list(threads.map(lambda _: mirror.sync(), range(calls)))

    assert sorted(report.changed for report in reports)[-2:] == [(), ("echo",)]


def test_one_bad_model_does_not_keep_the_others_away(mirror: Mirror, s3: S3, bucket: str) -> None:
    s3.put(f"{bucket}/repo/bad/1/model.bin", b"x")
    s3.damaged.add(f"{bucket}/repo/bad/1/model.bin")

    report = mirror.sync()

    assert (report.changed, len(report.problems)) == (("echo",), 1)
    s3.damaged.clear()
    assert mirror.sync().changed == ("bad",)


def test_a_model_that_changes_while_it_is_fetched_waits_for_the_next_time(mirror: Mirror, s3: S3, bucket: str) -> None:
    late = f"{bucket}/repo/echo/3/model.bin"
    s3.put(f"{bucket}/repo/other/1/x", b"x")
    s3.before_read = lambda _key: s3.put(late, b"late")

    report = mirror.sync()

    assert report.changed == ("other",)
    assert "echo: changed while it was fetched" in str(report.problems[0])
    s3.before_read = lambda _key: None
    assert mirror.sync().changed == ("echo",)
    assert files_of(mirror)["echo/3/model.bin"] == b"late"


def test_objects_of_a_try_that_failed_are_not_fetched_again(mirror: Mirror, s3: S3, bucket: str) -> None:
    s3.put(f"{bucket}/repo/other/1/x", b"x")
    s3.damaged.add(f"{bucket}/repo/echo/1/model.bin")
    mirror.sync()
    s3.damaged.clear()
    s3.reads.clear()

    mirror.sync()

    assert s3.reads == [f"{bucket}/repo/echo/1/model.bin"]


def test_files_that_somebody_changed_here_are_fetched_again(mirror: Mirror, s3: S3) -> None:
    mirror.sync()
    (mirror.path / "echo/1/model.bin").write_bytes(b"shortened"[:1])

    report = mirror.sync()

    assert report.changed == ("echo",)
    assert files_of(mirror)["echo/1/model.bin"] == b"one"


def test_a_store_that_fails_leaves_the_last_copy_and_says_so_once(
    mirror: Mirror, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.sync()
    s3.broken = True

    with caplog.at_level(logging.WARNING, logger="models.remote.mirror"):
        reports = [mirror.sync(), mirror.sync()]

    assert [len(report.problems) for report in reports] == [1, 1]
    assert "echo/1/model.bin" in files_of(mirror)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.endswith("what was fetched before goes on") for text in said] == [True]


def test_without_any_copy_a_store_that_fails_is_an_error(mirror: Mirror, s3: S3) -> None:
    s3.broken = True

    with pytest.raises(RepositoryError, match=f"model repository s3://{s3.url}/b.*/repo: "):
        mirror.sync()


def test_a_prefix_with_nothing_below_is_a_mistake_and_removes_nothing(mirror: Mirror, s3: S3, bucket: str) -> None:
    mirror.sync()
    for name in ("config.pbtxt", "1/model.bin", "2/"):
        s3.delete(f"{bucket}/repo/echo/{name}")

    report = mirror.sync()

    assert "found nothing, expected one directory a model" in str(report.problems[0])
    assert "echo/1/model.bin" in files_of(mirror)


def test_a_bucket_that_does_not_exist_is_named(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"/nowhere/repo: The specified bucket does not exist"):
        Mirror(f"s3://{s3.url}/nowhere/repo", tmp_path).sync()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("echo/%2E%2E/%2E%2E/evil", "empty or dotted parts"),
        ("echo//evil", "empty or dotted parts"),
        ("echo/a%5Cb", "a backslash"),
        ("echo/a%07b", "a control character"),
        ("echo/" + "d/" * 40 + "x", "42 levels, expected at most 32"),
        ("echo/" + "n" * 300, "a name of 305 bytes"),
        ("echo/1", "both an object and a directory"),
    ],
)
def test_a_name_that_could_do_harm_spoils_its_model_only(
    key: str, text: str, s3: S3, bucket: str, tmp_path: Path
) -> None:
    s3.put(f"{bucket}/repo/good/1/x", b"x")
    s3.put(f"{bucket}/repo/{key}", b"x")
    mirror = Mirror(f"s3://{s3.url}/{bucket}/repo", tmp_path / "cache")

    report = mirror.sync()

    assert [text in str(problem) for problem in report.problems] == [True]
    assert files_of(mirror) == {"good/1/x": b"x"}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_more_than_the_limits_is_refused(s3: S3, bucket: str, tmp_path: Path) -> None:
    url = f"s3://{s3.url}/{bucket}/repo"

    with pytest.raises(RepositoryError, match="found more than 2 objects"):
        Mirror(url, tmp_path, MirrorLimits(max_objects=2)).sync()
    with pytest.raises(RepositoryError, match="found more than 20 bytes"):
        Mirror(url, tmp_path, MirrorLimits(max_bytes=20)).sync()
    with pytest.raises(RepositoryError, match="bytes, expected at most 20"):
        Mirror(url, tmp_path, MirrorLimits(max_object_bytes=20)).sync()
