"""Flags of tritonserver that are not offered are known by name."""

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from gateway.cli import app
from gateway.refused_flags import UNOFFERED, Unoffered, without_unoffered

CASES = [pytest.param(entry, name, id=name) for entry in UNOFFERED for name in entry.names]


def example(name: str) -> str:
    return name.replace("*", "anything")


@pytest.mark.parametrize("form", ["{}=1000", "{} 1000"])
@pytest.mark.parametrize(("entry", "name"), CASES)
def test_a_flag_is_refused_or_taken_with_its_sentence(entry: Unoffered, name: str, form: str) -> None:
    arguments = ["--id", "x", *form.format(example(name)).split(), "--log-requests=true"]

    if entry.harmless is None:
        rest, notes = without_unoffered(arguments)
        assert (rest, notes) == (["--id", "x", "--log-requests=true"], [f"{name} has no effect: {entry.sentence}"])
    else:
        with pytest.raises(typer.BadParameter, match=r"not offered here: ") as caught:
            without_unoffered(arguments)
        assert (caught.value.param_hint, entry.sentence in str(caught.value)) == (example(name), True)


@pytest.mark.parametrize(("entry", "name"), [case for case in CASES if case.values[0].harmless])  # type: ignore[union-attr]
def test_a_value_that_asks_for_what_is_so_anyway_is_taken(entry: Unoffered, name: str) -> None:
    rest, notes = without_unoffered([f"{name}={value}" for value in entry.harmless or ()])

    assert (rest, len(notes)) == ([], len(entry.harmless or ()))


@pytest.mark.parametrize("flag", ["--trace-config", "--host-policy", "--disable-auto-complete-config"])
def test_a_flag_without_value_is_refused_too(flag: str) -> None:
    for arguments in ([flag], [flag, "--http-port=0"]):
        with pytest.raises(typer.BadParameter, match="not offered here"):
            without_unoffered(arguments)


def test_what_is_none_of_them_stays_as_it_is() -> None:
    arguments = [
        "--http-port",
        "0",
        "--id=--grpc-port",
        "--log-format=a=b",
        "--model-repository",
        "",
        "--",
        "--grpc-port",
    ]

    assert without_unoffered(arguments) == (arguments, [])


def test_no_flag_of_the_server_is_among_them() -> None:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]  # a group
    own = [option for parameter in command.params for option in parameter.opts]

    assert without_unoffered([f"{option}=1" for option in own]) == ([f"{option}=1" for option in own], [])


def test_the_command_says_it_in_one_line() -> None:
    ended = CliRunner().invoke(app, ["serve", "--allow-vertex-ai=true"], env={"COLUMNS": "200", "NO_COLOR": "1"})

    assert ended.exit_code == 2
    assert "--allow-vertex-ai: not offered here: it has no paths of its own: use those of v2" in ended.stderr


@pytest.mark.parametrize("arguments", [["--start", "--models", "all", "--ncs"], ["--start", "--foreground"]])
def test_a_command_line_of_torchserve_that_asks_for_what_is_so_anyway_is_taken(arguments: list[str]) -> None:
    rest, notes = without_unoffered([*arguments, "--model-store=store"])

    assert rest == ["--model-store=store"]
    assert len(notes) == len([argument for argument in arguments if argument.startswith("--")])
