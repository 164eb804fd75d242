"""Nobody changes which models are served without being allowed to, whatever the request looks like."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest

from gateway.app import Gateway, create_rest_app
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.control_access import ControlAccess, ControlAccessError, GuardedControl
from gateway.settings import Settings
from tests.gateway.fake_control import FakeControl
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import make_surface

TOKEN = "0123456789abcdef0123"  # noqa: S105 - of these tests only
VERBS = ("/v2/repository/models/simple/load", "/v2/repository/models/simple/unload", "/models/simple/scale?instances=2")
GUARDED = ControlAccess(mode="explicit", address="0.0.0.0", token=TOKEN.encode())
LOCAL = ControlAccess(mode="explicit", address="127.0.0.1")


class Answer(NamedTuple):
    status_code: int
    headers: dict[str, str]
    text: str


async def ask(
    control: FakeControl,
    access: ControlAccess,
    target: str,
    *,
    method: str = "POST",
    host: str = "shoal:8000",
    **headers: str,
) -> Answer:
    """One request to the whole server, without a client that would tidy it; decoded as uvicorn does.

    Underscores at the end of headers' names are left away, so that a header can be sent twice.
    """
    engine, guarded = FakeEngine(), GuardedControl(control, access)
    rest = create_rest_app(engine, ClassifySurface(engine, ClassifyLimits(), offload=asyncio.to_thread), "1", guarded)
    path, _, query = target.partition("?")
    sent = [(name.rstrip("_").encode(), value.encode()) for name, value in {"host": host, **headers}.items()]
    scope = {"type": "http", "method": method, "path": unquote(path), "query_string": query.encode(), "headers": sent}
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await Gateway(make_surface(engine, guarded), rest)({**scope, "root_path": ""}, receive, send)
    start, *bodies = messages
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part.get("body", b"") for part in bodies).decode())


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", VERBS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_right_token_is_let_in(path: str, scheme: str) -> None:
    control = FakeControl()

    reply = await ask(control, GUARDED, path, authorization=f"{scheme} {TOKEN}")

    assert (reply.status_code, len(control.calls)) == (200, 1)


WRONG = ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer null"]


@pytest.mark.parametrize("path", VERBS)
@pytest.mark.parametrize("authorization", [None, *WRONG])
async def test_every_other_token_is_401_and_changes_nothing(path: str, authorization: str | None) -> None:
    control = FakeControl()

    reply = await ask(control, GUARDED, path, **({} if authorization is None else {"authorization": authorization}))

    assert (reply.status_code, reply.headers["www-authenticate"], control.calls) == (401, "Bearer", [])
    assert TOKEN not in reply.text


def disguises(path: str) -> list[str]:
    """Other spellings of a path, which some parts of a server may read as the same."""
    bare, _, query = path.partition("?")
    tail = f"?{query}" if query else ""
    spellings = [
        f"{bare}/", f"/{bare}", bare.replace("/models/", "//models/"), bare.replace("/models/", "/%2e/models/"),
        bare.replace("/models/", "/x/../models/"), bare.replace("simple", "%73imple"), bare.replace("/", "%2f"),
        bare.upper(), f"{bare};x=1", f"{bare}%00", f"{bare}%20", bare.replace("/simple", "\\simple"),
        f"/classify/..{bare}", f"{bare}#x", f"/v2{bare}", f"/v2/..{bare}",
    ]  # fmt: skip
    return [f"{spelling}{tail}" for spelling in spellings]


@pytest.mark.parametrize("path", [disguise for path in VERBS for disguise in disguises(path)])
async def test_no_other_spelling_of_a_path_leads_past_the_check(path: str) -> None:
    control = FakeControl()

    reply = await ask(control, GUARDED, path)

    assert reply.status_code in {401, 404, 405, 501}
    assert control.calls == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "LOAD"])
@pytest.mark.parametrize("path", VERBS)
async def test_no_other_method_changes_anything(path: str, method: str) -> None:
    control = FakeControl()

    without = await ask(control, GUARDED, path, method=method)
    with_token = await ask(control, GUARDED, path, method=method, **bearer(TOKEN))

    assert {without.status_code, with_token.status_code} <= {401, 405}
    assert control.calls == []


async def test_the_index_is_for_everyone() -> None:
    reply = await ask(FakeControl(), GUARDED, "/v2/repository/index")

    assert reply.status_code == 200


LOCAL_NAMES = ["localhost", "localhost:8000", "LOCALHOST:9", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000", "[::1]"]
OTHER_NAMES = [
    "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.1", "",
    "localhost@evil.example", "evil.example#localhost", "[::2]:8000", "localhost:8000:80", "0.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("host", LOCAL_NAMES)
@pytest.mark.parametrize("path", VERBS)
async def test_on_loopback_no_token_is_needed(path: str, host: str) -> None:
    control = FakeControl()

    reply = await ask(control, LOCAL, path, host=host)

    assert (reply.status_code, len(control.calls)) == (200, 1)


@pytest.mark.parametrize("host", OTHER_NAMES)
@pytest.mark.parametrize("path", VERBS)
async def test_on_loopback_other_names_of_the_server_are_refused(path: str, host: str) -> None:
    control = FakeControl()

    reply = await ask(control, LOCAL, path, host=host)

    assert (reply.status_code, control.calls) == (403, [])
    assert "found the header Host" in reply.text


FOREIGN = ["https://evil.example", "null", "http://localhost:9000", "http://localhost", "localhost:8000", "file://", ""]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("path", VERBS)
async def test_pages_of_other_sites_are_refused(path: str, origin: str) -> None:
    control = FakeControl()

    reply = await ask(control, LOCAL, path, host="localhost:8000", origin=origin)

    assert (reply.status_code, control.calls) == (403, [])
    assert "found the header Origin" in reply.text


@pytest.mark.parametrize("path", VERBS)
async def test_the_servers_own_pages_are_let_in(path: str) -> None:
    control = FakeControl()

    reply = await ask(control, LOCAL, path, host="localhost:8000", origin="http://localhost:8000")

    assert (reply.status_code, len(control.calls)) == (200, 1)


@pytest.mark.parametrize("path", VERBS)
@pytest.mark.parametrize(
    ("name", "value"), [("host", "localhost"), ("origin", "http://localhost"), ("authorization", "")]
)
async def test_a_header_that_decides_must_come_once(path: str, name: str, value: str) -> None:
    control = FakeControl()

    once = await ask(control, LOCAL, path, **{"host": "localhost", name: value})
    twice = await ask(control, LOCAL, path, **{"host": "localhost", name: value, f"{name}_": value})

    assert (once.status_code, twice.status_code, len(control.calls)) == (200, 403, 1)


async def test_a_configured_token_is_needed_on_loopback_too() -> None:
    control = FakeControl()
    access = ControlAccess(mode="explicit", address="127.0.0.1", token=TOKEN.encode())

    without = await ask(control, access, VERBS[0], host="localhost")
    with_token = await ask(control, access, VERBS[0], host="localhost", **bearer(TOKEN))

    assert (without.status_code, with_token.status_code) == (401, 200)


async def test_without_a_token_nobody_is_let_in_from_outside() -> None:
    control = FakeControl()

    reply = await ask(control, ControlAccess(mode="explicit", address="0.0.0.0"), VERBS[0], **bearer(""))

    assert (reply.status_code, control.calls) == (401, [])


@pytest.mark.parametrize(
    ("query", "status"),
    [("instances=0", 200), ("instances=3&version=1", 200), ("instances=3&version=stable", 200), ("", 400)]
    + [(f"instances={text}", 400) for text in ("-1", "x", "1.5", "1e3", "٣", "9999999")]
    + [("instances=1&version=canary", 404), (f"instances=1&version={'9' * 30}", 400)],
)
async def test_scaling_takes_a_number_and_maybe_a_version(query: str, status: int) -> None:
    control = FakeControl()

    reply = await ask(control, GUARDED, f"/models/simple/scale?{query}", **bearer(TOKEN))

    assert (reply.status_code, len(control.calls)) == (status, int(status == 200))


def settings(tmp_path: Path, token: bytes | None = None, **more: object) -> Settings:
    file = tmp_path / "token"
    if token is not None:
        file.write_bytes(token)
        more["control_token_file"] = file
    return Settings(**{"model_control_mode": "explicit", **more})  # type: ignore[arg-type]


def test_the_token_is_the_files_content_without_the_line_break(tmp_path: Path) -> None:
    access = ControlAccess.of(settings(tmp_path, f"{TOKEN}\n".encode(), http_address="0.0.0.0"))

    assert (access.token, access.is_allowed) == (TOKEN.encode(), True)
    assert TOKEN not in repr(access)


@pytest.mark.parametrize("token", [b"", b"short", b"two words of a token", b"\xff" * 32, b"x" * 5000])
def test_a_file_without_a_usable_token_is_refused(tmp_path: Path, token: bytes) -> None:
    with pytest.raises(ControlAccessError, match=r"--control-token-file: found \d+ bytes, expected one token"):
        ControlAccess.of(settings(tmp_path, token))


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ControlAccessError, match="cannot be read: No such file"):
        ControlAccess.of(settings(tmp_path, control_token_file=tmp_path / "nothing"))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.1", "shoal.example"])
def test_beyond_loopback_a_token_is_a_must(tmp_path: Path, address: str) -> None:
    with pytest.raises(ControlAccessError, match="would let everyone load models: give --control-token-file"):
        ControlAccess.of(settings(tmp_path, http_address=address))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_it_is_not(tmp_path: Path, address: str) -> None:
    assert ControlAccess.of(settings(tmp_path, http_address=address)).is_allowed


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_modes_without_verbs_need_no_token_and_let_nobody_in(tmp_path: Path, mode: str) -> None:
    access = ControlAccess.of(settings(tmp_path, model_control_mode=mode, http_address="0.0.0.0"))

    assert not access.is_allowed


@pytest.mark.parametrize("mode", ["none", "poll"])
async def test_scale_in_another_mode_names_it(mode: str) -> None:
    control = FakeControl()

    reply = await ask(control, ControlAccess(mode=mode), VERBS[2])

    assert (reply.status_code, control.calls) == (503, [])
    assert f"scale is not allowed in the mode {mode}; start the server with --model-control-mode=explicit" in reply.text


def test_a_grpc_port_that_others_reach_needs_a_token_too(tmp_path: Path) -> None:
    with pytest.raises(ControlAccessError, match=r"on 0\.0\.0\.0 would let everyone"):
        ControlAccess.of(settings(tmp_path, grpc_address="0.0.0.0"))

    assert ControlAccess.of(settings(tmp_path, grpc_address="0.0.0.0", allow_grpc=False)).is_allowed
