"""The commands, in this process, against a server in a thread."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from gateway.cli import app
from gateway.client import Client, ClientError
from gateway.demo import Demo
from models.errors import UnsupportedImageError
from models.inference import ClassifyRequest, ClassifyResponse, Prediction
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.serving import listening, rest_app

NOWHERE = "http://127.0.0.1:9"


class Zoo(FakeEngine):
    """Sees a cat in everything but PDFs."""

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        (image,) = request.images
        if isinstance(image, bytes) and image.startswith(b"%PDF"):
            return ClassifyResponse(model="m", version=1, results=(UnsupportedImageError("found: PDF"),))
        guesses = [Prediction(index=index, label=f"[cat] {index}", probability=0.5) for index in range(request.top_k)]
        return ClassifyResponse(model="m", version=1, results=(tuple(guesses),))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    engine = Zoo()
    engine.unready.add("scalar")
    with listening(rest_app(engine)) as url:
        yield url


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"a photograph")
    return file


def shoal(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_version_is_printed() -> None:
    assert shoal("--version").output.startswith("shoal 0.")


def test_labels_are_printed_as_they_are(url: str, photo: Path) -> None:
    ended = shoal("classify", photo, "--url", url, "--top-k", 2, "--model", "m")

    assert ended.exit_code == 0
    assert [line.strip() for line in ended.stdout.splitlines()[-2:]] == ["50.0%  [cat] 0", "50.0%  [cat] 1"]


def test_a_bad_photograph_does_not_keep_the_others_from_being_classified(url: str, photo: Path) -> None:
    bad = photo.with_name("bad.jpg")
    bad.write_bytes(b"%PDF-1.7")

    ended = shoal("classify", bad, photo, "--url", url)

    assert ended.exit_code == 1
    assert f"shoal: {bad}: found: PDF" in ended.stderr
    assert "[cat] 0" in ended.stdout


def test_models_are_listed_with_those_that_are_not_ready(url: str) -> None:
    lines = {
        line.split("│")[1].strip(): line for line in shoal("models", "--url", url).stdout.splitlines() if "│" in line
    }

    assert [cell.strip() for cell in lines["scalar"].split("│")[1:4]] == ["scalar", "-", "no"]
    assert [cell.strip() for cell in lines["cls"].split("│")[1:9]] == [
        "cls", "1", "yes", "fake", "shoal", "8", "1", "no",
    ]  # fmt: skip


@pytest.mark.parametrize("command", [("models",), ("classify", __file__)])
def test_without_a_server_the_command_says_how_to_start_one(command: tuple[str, ...]) -> None:
    ended = shoal(*command, "--url", NOWHERE)

    assert ended.exit_code == 1
    assert "is `shoal serve` running there?" in ended.stderr


def test_a_server_of_another_kind_is_recognised() -> None:
    async def page(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    with listening(page) as url, pytest.raises(ClientError, match="answered 200 without JSON"):
        Client(url + "/").models()


def test_init_writes_a_repository_once(tmp_path: Path) -> None:
    repository = tmp_path / "[red]" / ("long" * 40)

    first, second = shoal("init", repository), shoal("init", repository)

    assert (first.exit_code, second.exit_code) == (0, 1)
    assert f"serve it: shoal serve --model-repository {repository}" in first.stdout
    assert "found files in the repository already" in second.stderr


def test_a_server_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    ended = shoal("serve", "--model-repository", tmp_path / "nowhere", "--http-port", 0, "--try", __file__)

    assert ended.exit_code == 1
    assert "nowhere: found No such file or directory" in ended.stderr


def told(photo: Path, url: str) -> str:
    """What the demonstration prints."""
    console = Console(file=io.StringIO(), width=300)
    asyncio.run(Demo(photo, console)(url))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_demonstration_shows_a_label_and_how_to_get_it(url: str, photo: Path) -> None:
    lines = told(photo, url).splitlines()

    assert lines[0] == "photo.jpg shows: [cat] 0 (50.0%)"
    assert f"curl --data-binary @{photo} {url}/classify" in lines[2]


def test_the_demonstration_says_why_it_failed(photo: Path) -> None:
    assert f"could not classify {photo}: cannot reach {NOWHERE}" in told(photo, NOWHERE)
