"""Every command on the pages works, and prints what the pages show.

A block of language `sh` is one script; the block right after it in JSON or text, if any, is what it prints.
Configuration blocks whose first line is a comment with a path are saved there, as the page tells its reader to.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, name_of
from tests.docs.session import Terminal, clean_environment

ELSEWHERE = {
    "make setup": "the environment that runs this test was made the same way",
    "make test": "runs this test",
    "shoal export mobilenet_v3_large --into my-models --photos photos": "needs PyTorch; tests/torch/test_export.py",
    "shoal export resnet50 --into my-models --format torchscript --precision bf16 --photos photos": "likewise",
    "shoal export resnet50 --into my-models --name resnet50-rt --format tensorrt --precision fp16 --photos photos": (
        "likewise"
    ),
    "docker build -t shoal .": "needs a container engine; tests/docs/test_deploy.py reads the Dockerfile",
    "docker run --rm -p 127.0.0.1:8000:8000 -p 127.0.0.1:8001:8001 -p 127.0.0.1:8002:8002 shoal": "likewise",
    'docker run --rm -p 127.0.0.1:8000:8000 -p 127.0.0.1:8001:8001 -v "$PWD/my-models:/models:ro" '
    "shoal serve --http-address=0.0.0.0 "
    "--model-repository=/models": "likewise",
}
WITH_COMMANDS = [page for page in PAGES if blocks_of(page, "sh")]
PHOTOGRAPH = ROOT / ".cache/foolbox/foolbox/data/imagenet_10_541.jpg"
_SAVED_AS = re.compile(r"# (\w[\w./-]*\.(?:toml|pbtxt))\n")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl, which is not installed"),
]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if not PHOTOGRAPH.exists():
        pytest.skip(f"no photographs in {PHOTOGRAPH.parent.relative_to(ROOT)}: run `make photos`")
    with Terminal(tmp_path) as terminal:
        yield terminal


def scripts_of(block: Block) -> str:
    """The block without the commands that are run elsewhere."""
    return "".join(f"{line}\n" for line in block.text.splitlines() if line not in ELSEWHERE)


def is_server(script: str) -> bool:
    return script == "make run\n" or re.search(r"^\S*shoal serve ", script) is not None


def recipe_of_make_run() -> str:
    """The last command of the target, which needs what this test has already."""
    command = ["make", "--dry-run", "--no-print-directory", "run"]
    plan = subprocess.run(command, cwd=ROOT, env=clean_environment(), check=True, capture_output=True, text=True)
    return next(line for line in plan.stdout.splitlines() if "shoal serve" in line)


def save(block: Block, directory: Path) -> None:
    target = _SAVED_AS.match(block.text)
    if target is not None:
        (directory / target[1]).write_text(block.text)


def run(block: Block, terminal: Terminal) -> str:
    script = scripts_of(block)
    if not is_server(script):
        return terminal.run(script)
    if script == "make run\n":
        return terminal.serve(recipe_of_make_run(), until="Ctrl-C")
    return terminal.serve(script, until="started models=")


def assert_as_shown(shown: Block, printed: str) -> None:
    if shown.language == "json":
        assert shape_of(json.loads(printed)) == shape_of(json.loads(shown.text)), printed
    elif shown.language == "text":
        found = {blurred(line) for line in printed.splitlines()}
        missing = [line for line in shown.text.splitlines() if blurred(line) not in found]
        assert missing == [], printed


def shape_of(value: object) -> object:
    """Names, texts and whole numbers of a document; of measured numbers only that they are there."""
    match value:
        case dict():
            # How many instances are best is measured, and depends on the machine.
            return {key: int if key == "instances" else shape_of(member) for key, member in value.items()}
        case list():
            return [shape_of(member) for member in value]
        case str():
            return blurred(value)
        case float():
            return float
        case _:
            return value


def blurred(text: str) -> str:
    """A text without its numbers and its padding, which may differ from run to run."""
    return " ".join(_NUMBER.sub("0", text).split())


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_do_what_it_says(page: Path, terminal: Terminal) -> None:
    blocks = blocks_of(page)
    if not any(is_server(scripts_of(block)) for block in blocks):
        terminal.serve("shoal serve", until="started models=")  # the page takes a running server for granted
    for block, following in pairwise([*blocks, Block(page, 0, "", "")]):
        save(block, terminal.directory)
        if block.language == "sh" and scripts_of(block):
            assert_as_shown(following, run(block, terminal))


def test_the_image_finds_a_ready_server_healthy(terminal: Terminal) -> None:
    check = re.search(r'^    CMD \["python", "-c", "(.*)"\]$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert check is not None

    terminal.serve("shoal serve", until="started models=")

    assert terminal.run(f'python -c "{check[1]}"\n') == ""


def test_every_command_that_is_run_elsewhere_is_on_a_page() -> None:
    lines = {line for page in PAGES for block in blocks_of(page, "sh") for line in block.text.splitlines()}

    assert ELSEWHERE.keys() <= lines
