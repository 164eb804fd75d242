"""A repository behind a plain web server: listings and single archives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import RepositoryError
from models.remote import Mirror
from tests.models.remote.servers import Web, web_server


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    root = tmp_path / "root"
    root.mkdir()
    with web_server(root) as web:
        web.put("repo/echo/config.pbtxt", b"config")
        web.put("repo/echo/1/model.bin", b"one")
        web.put("repo/cat v1.mar", b"archive")
        yield web


@pytest.fixture
def mirror(web: Web, tmp_path: Path) -> Mirror:
    return Mirror(f"{web.url}repo", tmp_path / "cache")


def files_of(mirror: Mirror) -> dict[str, bytes]:
    return {
        file.relative_to(entry.parent.resolve()).as_posix(): file.read_bytes()
        for entry in (link.resolve() for link in mirror.path.iterdir())
        for file in ([entry] if entry.is_file() else sorted(entry.rglob("*")))
        if file.is_file()
    }


def test_listings_are_followed_down(mirror: Mirror) -> None:
    report = mirror.sync()

    assert report.changed == ("cat v1.mar", "echo")
    assert files_of(mirror) == {"cat v1.mar": b"archive", "echo/config.pbtxt": b"config", "echo/1/model.bin": b"one"}


def test_one_archive_is_a_repository(web: Web, tmp_path: Path) -> None:
    mirror = Mirror(f"{web.url}repo/cat%20v1.mar?signature=secret", tmp_path / "cache")

    mirror.sync()

    assert files_of(mirror) == {"cat v1.mar": b"archive"}
    assert web.reads[-1].endswith("?signature=secret")


def test_an_answer_that_ends_early_is_never_seen_and_is_fetched_the_next_time(mirror: Mirror, web: Web) -> None:
    mirror.sync()
    web.put("repo/echo/2/model.bin", b"second version")
    web.cut.add("/repo/echo/2/model.bin")

    report = mirror.sync()

    assert (report.changed, len(report.problems)) == ((), 1)
    assert "echo/2/model.bin" not in files_of(mirror)
    web.cut.clear()
    assert mirror.sync().changed == ("echo",)
    assert files_of(mirror)["echo/2/model.bin"] == b"second version"


def test_links_elsewhere_are_not_followed(mirror: Mirror, web: Web) -> None:
    links = "".join(
        f'<a href="{target}">x</a>'
        for target in (
            "../secret.txt",
            "/secret.txt",
            "http://169.254.169.254/latest/",
            "//169.254.169.254/x",
            "http://[bad/",
            "?C=N",
            "1/model.bin#part",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "..",
            ".",
            "config.pbtxt",
        )
    )
    web.put("secret.txt", b"secret")
    web.put("repo/echo/index.html", links.encode())

    mirror.sync()

    assert files_of(mirror) == {"cat v1.mar": b"archive", "echo/config.pbtxt": b"config"}


def test_names_that_hide_a_way_up_are_refused(mirror: Mirror, web: Web, tmp_path: Path) -> None:
    web.redirects.clear()
    web.put("repo/echo/index.html", b'<a href="%2e%2e%2f%2e%2e%2fevil">x</a>')
    web.put("evil", b"evil")

    report = mirror.sync()

    assert ["empty or dotted parts" in str(problem) for problem in report.problems] == [True]
    assert not list(tmp_path.glob("cache/**/evil"))


def test_redirects_are_refused(mirror: Mirror, web: Web) -> None:
    mirror.sync()
    web.put("repo/echo/1/model.bin", b"another one")
    web.redirects["/repo/echo/1/model.bin"] = "http://127.0.0.1:9/inside"

    report = mirror.sync()

    assert "found status 302, expected 200; redirects are not followed" in str(report.problems[0])


def test_what_is_no_listing_is_refused_with_what_is_served(web: Web, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="found status 404, expected a directory listing in HTML"):
        Mirror(f"{web.url}repo/echo/config.pbtxt", tmp_path / "cache").sync()


def test_neither_errors_nor_logs_nor_names_of_files_hold_secrets(
    web: Web, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = web.url.removeprefix("http://")
    mirror = Mirror(f"http://user:hunter2@{address}nothing.mar?sig=topsecret", tmp_path / "cache")

    with pytest.raises(RepositoryError) as caught:
        mirror.sync()

    files = [str(path) for path in (tmp_path / "cache").rglob("*")]
    said = f"{caught.value} {mirror.url} {mirror!r} {caplog.text} {files}"
    assert "found status 404" in said
    assert not {"user", "hunter2", "topsecret"} & set(said.replace(":", " ").replace("@", " ").split())


def test_a_server_that_is_gone_leaves_the_last_copy(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with web_server(tmp_path / "root") as web:
        web.put("echo/1/model.bin", b"one")
        mirror = Mirror(web.url, tmp_path / "cache")
        mirror.sync()

    report = mirror.sync()

    assert (report.changed, len(report.problems)) == ((), 1)
    assert files_of(mirror) == {"echo/1/model.bin": b"one"}
