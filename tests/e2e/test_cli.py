"""The command `shoal` as a person runs it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings import Settings
from tests.e2e.conftest import GOOD_PHOTO
from tests.e2e.models import add_echo
from tests.e2e.server import COMMAND, PATIENCE_S, ROOT, Server
from tests.e2e.wire import classified

pytestmark = pytest.mark.e2e


def shoal(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run to the end; a command never shows a traceback."""
    ended = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        check=False,
        env={"PATH": str(Path(sys.executable).parent), "HOME": str(Path.home()), "COLUMNS": "120", "NO_COLOR": "1"},
    )
    assert "Traceback" not in ended.stderr
    return ended


def unboxed(text: str) -> str:
    """The words of an error without the frame around them."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    file = tmp_path / "photo.jpg"
    file.write_bytes(GOOD_PHOTO)
    return file


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository written by `shoal init`."""
    directory = tmp_path_factory.mktemp("init") / "repository"
    ended = shoal("init", str(directory))
    assert ended.returncode == 0, ended.stderr
    return directory


def test_the_version_is_one_line() -> None:
    ended = shoal("--version")

    assert (ended.returncode, ended.stdout.split()[0], len(ended.stdout.splitlines())) == (0, "shoal", 1)


def test_without_a_command_help_is_shown() -> None:
    assert "Usage: shoal [OPTIONS] COMMAND" in shoal().stdout


@pytest.mark.parametrize("command", ["serve", "init", "classify", "models"])
def test_every_command_explains_itself(command: str) -> None:
    ended = shoal(command, "--help")

    assert ended.returncode == 0
    assert f"Usage: shoal {command}" in ended.stdout


def test_the_help_of_serve_shows_a_flag_for_every_setting() -> None:
    shown = shoal("serve", "--help").stdout

    assert [name for name in Settings.model_fields if f"--{name.replace('_', '-')}"[:24] not in shown] == []


def test_an_initialised_repository_can_be_served(initialised: Path) -> None:
    with Server(f"--model-repository={initialised}") as server:
        predictions = classified(server.client.post("/classify/efficientnet-lite0", content=GOOD_PHOTO))

    assert len(predictions) == 5
    assert all(prediction["label"] for prediction in predictions)


def test_init_never_overwrites(initialised: Path) -> None:
    config = initialised / "efficientnet-lite0" / "config.pbtxt"
    before = config.read_bytes()

    ended = shoal("init", str(initialised))

    assert ended.returncode == 1
    assert "found files in the repository already, expected none" in ended.stderr
    assert config.read_bytes() == before


def test_classify_prints_labels_of_several_photographs(lite0: Server, photo: Path) -> None:
    other = photo.with_name("other.jpg")
    other.write_bytes(GOOD_PHOTO)

    ended = shoal("classify", str(photo), str(other), f"--url={lite0.url}", "--top-k=3")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("%") == 6
    assert (str(photo) in ended.stdout, str(other) in ended.stdout) == (True, True)


def test_classify_goes_on_after_a_bad_file_and_ends_with_1(lite0: Server, photo: Path) -> None:
    bad = photo.with_name("bad.jpg")
    bad.write_bytes(b"%PDF-1.7")

    ended = shoal("classify", str(bad), str(photo), f"--url={lite0.url}")

    assert ended.returncode == 1
    assert ended.stdout.count("%") == 5
    assert f"shoal: {bad}: found: PDF; accepted: JPEG" in ended.stderr


def test_a_missing_file_is_a_mistake_of_usage(lite0: Server, photo: Path) -> None:
    ended = shoal("classify", str(photo), str(photo.with_name("missing.jpg")), f"--url={lite0.url}")

    assert ended.returncode == 2
    assert "does not exist" in unboxed(ended.stderr)


def test_a_server_that_is_not_there_is_one_line(photo: Path) -> None:
    ended = shoal("models", "--url=http://127.0.0.1:9")

    assert ended.returncode == 1
    assert "cannot reach http://127.0.0.1:9" in ended.stderr
    assert "is `shoal serve` running there?" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_models_lists_what_is_served(lite0: Server) -> None:
    ended = shoal("models", f"--url={lite0.url}")

    assert ended.returncode == 0
    for word in ("efficientnet-lite0", "onnxruntime", "shoal", "yes"):
        assert word in ended.stdout


BAD_FLAGS = {
    "--http-port=70000": "less than or equal to 65535",
    "--http-port=eighty": "valid integer",
    "--http-port=-1": "greater than or equal to 0",
    "--strict-readiness=perhaps": "should be a valid boolean",
    "--log-format=xml": "should be 'text', 'json', 'default' or 'ISO8601'",
    "--model-control-mode=push": "should be 'none', 'poll' or 'explicit'",
    "--request-timeout-secs=0": "greater than 0",
    "--no-such-flag": "No such option",
}


@pytest.mark.parametrize("flag", BAD_FLAGS)
def test_a_bad_flag_is_refused_by_name_with_2(flag: str) -> None:
    ended = shoal("serve", flag)

    assert ended.returncode == 2
    assert flag.partition("=")[0] in unboxed(ended.stderr)
    assert BAD_FLAGS[flag] in unboxed(ended.stderr)


@pytest.fixture
def one_model(tmp_path: Path) -> Iterator[Path]:
    return add_echo(tmp_path, "echo")


def test_tritons_forms_of_flags_are_understood(one_model: Path) -> None:
    flags = ("--model-store", str(one_model), "--strict-readiness=false", "--exit-on-error=true", "--host=127.0.0.1")
    with Server(*flags, "--id=mine", "--log-verbose=1") as server:
        assert server.client.get("/v2").json()["name"] == "mine"
        assert server.client.get("/v2/models/echo/ready").status_code == 200


def test_a_photograph_is_tried_as_soon_as_the_server_is_ready(photo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Server("--try", str(photo), "--log-requests=true") as server:
        server.logged("request")
        assert server.client.get("/v2/health/ready").status_code == 200

    shown = capfd.readouterr().out
    assert "photo.jpg shows: " in shown
    assert f"curl --data-binary @{photo} {server.url}/classify" in shown
