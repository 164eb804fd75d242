"""A server whose repository is a bucket: load, replace, survive an outage; and who may do that."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from models.remote import Mirror
from tests.e2e.models import add_echo
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import echoed, infer_body
from tests.models.remote.servers import S3, s3_server

pytestmark = [pytest.mark.e2e, pytest.mark.long]
TOKEN = "0123456789abcdef0123"  # noqa: S105 - of these tests only


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A bucket with the model `echo` in version 1."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with s3_server() as s3:
        upload(s3, tmp_path / "local")
        yield s3


def upload(s3: S3, root: Path) -> None:
    add_echo(root, "echo")
    for file in [path for path in root.rglob("*") if path.is_file()]:
        s3.put(f"bucket/repo/{file.relative_to(root).as_posix()}", file.read_bytes())
    s3.put("bucket/repo/echo/1/")


def flags(s3: S3, tmp_path: Path, *more: str) -> list[str]:
    return [f"--model-repository=s3://{s3.url}/bucket/repo", f"--cache-dir={tmp_path / 'cache'}", *more]


def versions_of(server: Server) -> list[str]:
    return list(server.client.get("/v2/models/echo").json()["versions"])


def test_a_bucket_is_served_and_followed(s3: S3, tmp_path: Path) -> None:
    poll = ("--model-control-mode=poll", "--repository-poll-secs=0.2")
    with Server(*flags(s3, tmp_path, *poll)) as server:
        assert echoed(server.client.post("/v2/models/echo/infer", json=infer_body(7)).json()) == [7]

        s3.put("bucket/repo/echo/2/")

        wait_until(lambda: versions_of(server) == ["2"], "version 2")
        assert "very secret" not in server.log


def test_a_model_is_loaded_from_a_bucket_when_asked(s3: S3, tmp_path: Path) -> None:
    with Server(*flags(s3, tmp_path, "--model-control-mode=explicit")) as server:
        index = server.client.post("/v2/repository/index").json()
        loaded = server.client.post("/v2/repository/models/echo/load")
        s3.broken = True
        reloaded = server.client.post("/v2/repository/models/echo/load")
        answer = server.client.post("/v2/models/echo/infer", json=infer_body(7))

    assert index == [{"name": "echo"}]
    assert (loaded.status_code, reloaded.status_code, echoed(answer.json())) == (200, 200, [7])
    assert "what was fetched before goes on" in server.log


def test_a_mirror_serves_when_the_store_is_gone_at_the_start(s3: S3, tmp_path: Path) -> None:
    Mirror(f"s3://{s3.url}/bucket/repo", tmp_path / "cache" / "repositories").sync()  # an earlier server
    s3.broken = True

    with Server(*flags(s3, tmp_path)) as server:
        answer = server.client.post("/v2/models/echo/infer", json=infer_body(7))

    assert echoed(answer.json()) == [7]


def test_beyond_loopback_only_the_token_opens_the_verbs(s3: S3, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    explicit = ("--model-control-mode=explicit", "--http-address=0.0.0.0", f"--control-token-file={file}")
    with Server(*flags(s3, tmp_path, *explicit)) as server:
        path, token = "/v2/repository/models/echo/load", {"authorization": f"Bearer {TOKEN}"}
        url = f"http://127.0.0.1:{server.port}{path}"
        statuses = [httpx.post(url, headers=headers, trust_env=False).status_code for headers in ({}, token)]

    assert statuses == [401, 200]
    assert TOKEN not in server.log


def test_beyond_loopback_there_is_no_start_without_a_token(s3: S3, tmp_path: Path) -> None:
    explicit = ("--model-control-mode=explicit", "--http-address=0.0.0.0")

    with (
        pytest.raises(AssertionError, match="would let everyone load models: give --control-token-file"),
        Server(*flags(s3, tmp_path, *explicit)),
    ):
        pass
