"""The tables of docs/export.md beside the commands."""

from typing import Any

import pytest
from typer.main import get_command

from backends.export.kinds import Format
from gateway import cli
from models.spec import NonFinite
from tests.docs.pages import ROOT, table_of

PAGE = ROOT / "docs/export.md"


def flags_of(command: str) -> list[list[Any]]:
    parameters = get_command(cli.app).commands[command].params  # type: ignore[attr-defined]
    return [
        [parameter.opts[0], parameter.help.replace("`", "")]
        for parameter in parameters
        if parameter.opts[0].startswith("--")
    ]


@pytest.mark.parametrize(("command", "heading"), [("quantize", "8 bits"), ("export", "Classifiers of torchvision")])
def test_every_flag_is_listed_with_its_meaning(command: str, heading: str) -> None:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = section.partition(f"| flag of `shoal {command}` | meaning |\n")[2].splitlines()[1:]
    rows = [line.strip("| ").split(" | ") for line in table if line.startswith("|")]

    assert [[flag.strip("`"), meaning] for flag, meaning in rows] == flags_of(command)


def test_every_format_is_listed() -> None:
    assert [row[0] for row in table_of(PAGE, "Classifiers of torchvision")[: len(Format)]] == list(Format)


def test_every_wish_about_numbers_that_are_none_is_listed() -> None:
    assert [row[0] for row in table_of(PAGE, "Answers that are no numbers")] == [wish.value for wish in NonFinite]
