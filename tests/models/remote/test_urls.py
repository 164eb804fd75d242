"""Which addresses are remote, and what of them may be shown."""

import importlib.util
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import RepositoryError
from models.remote import Mirror, is_remote, split_places
from models.remote.listing import MirrorLimits, RemoteObject, group
from models.remote.urls import parse_url, redact


@pytest.mark.parametrize("text", ["s3://b/p", "S3://b", "gs://b", "az://c/p", "http://h/p", "ftp://h/p", "memory://x"])
def test_what_has_a_scheme_is_remote(text: str) -> None:
    assert is_remote(text)


@pytest.mark.parametrize("text", ["models", "/models", "./a:b", "c:/models", "s3:/b", "", "a b://c"])
def test_everything_else_is_a_directory(text: str) -> None:
    assert not is_remote(text)


@pytest.mark.parametrize(
    ("url", "place", "endpoint"),
    [
        ("s3://bucket/a/b/", "bucket/a/b", None),
        ("s3://127.0.0.1:9000/bucket/a", "bucket/a", "http://127.0.0.1:9000"),
        ("s3://https://store.example:443/bucket", "bucket", "https://store.example:443"),
        ("s3://http://store.example/bucket/a", "bucket/a", "http://store.example"),
        ("gs://bucket", "bucket", None),
    ],
)
def test_buckets_and_servers_of_s3_are_told_apart(url: str, place: str, endpoint: str | None) -> None:
    parsed = parse_url(url)

    assert (parsed.place, parsed.endpoint) == (place, endpoint)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://host/x", "found a scheme that is not served, expected s3://bucket/prefix"),
        ("file:///models", "give the directory without file://"),
        ("s3://", "found no bucket"),
        ("s3:///x", "found no bucket"),
        ("s3://bucket/../x", "a path with empty parts or dots"),
        ("s3://key:secret@bucket/x", "found credentials or a query in the URL"),
        ("gs://bucket/x?token=secret", "found credentials or a query in the URL"),
        ("http:///x", "found no host"),
        ("simplecache::s3://bucket", "a scheme that is not served"),
        ("s3://bucket/zip::x", "'::'"),
        ("http://host/a\nb", "a control character"),
        ("s3://bucket/a\\b", "a backslash"),
    ],
)
def test_an_address_that_is_not_served_says_what_is(url: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=re.escape(text)) as caught:
        Mirror(url, tmp_path)

    assert "secret" not in str(caught.value)


def test_credentials_and_queries_are_never_shown() -> None:
    text = 'Cannot connect to "https://me:pass@host/a?sig=x&y=z" or s3://k:s@b/c?d'

    assert redact(text) == 'Cannot connect to "https://host/a" or s3://b/c'


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="gcsfs is installed")
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"gs:// needs .* not installed; .* pip install 'shoal\[gcs\]'"):
        Mirror("gs://bucket/models", tmp_path).sync()


@pytest.mark.parametrize(
    "places",
    [
        ["a", "b"],
        ["s3://bucket/x", "other"],
        ["a", "s3://https://host:9000/bucket/x", "gs://b", "c"],
        ["s3://host:9000/bucket", "http://me:pass@host:80/x", "d"],
    ],
)
def test_a_list_is_cut_between_places_only(places: list[str]) -> None:
    assert split_places(":".join(places), ":") == places


NAMES = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "1", "x\\y", "x\0y", "\x1b", "C:", "é", "n" * 300]), max_size=6
)


@given(st.lists(NAMES.map("/".join), max_size=8))
def test_no_name_that_passes_leaves_the_repository(names: list[str]) -> None:
    objects = [RemoteObject(key=name, name=name, size_bytes=0, tag="") for name in names if name]

    listing = group(objects, MirrorLimits())

    root = Path("/top/of/mirror")
    for entry, members in listing.models.items():
        for member in members:
            place = Path(f"{root}/{member.name}")
            assert ".." not in place.parts
            assert place.is_relative_to(root / entry)
            assert member.name.isprintable()
