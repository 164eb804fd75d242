"""The command `shoal`."""

import asyncio
import enum
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway import cli_check, cli_export, cli_golden
from gateway.client import Client, ClientError, Guess
from gateway.flags import settings_from, with_setting_flags
from gateway.refused_flags import ServeCommand

_DEFAULT_URL = "http://127.0.0.1:8000"

app = typer.Typer(
    name="shoal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli_export.add_commands(app)
app.command()(cli_check.check)
app.command()(cli_golden.golden)
_console = Console(width=None if sys.stdout.isatty() else 200)  # a pipe has no edge to wrap at

Url = Annotated[str, typer.Option(help="Base URL of the running server.", envvar="SHOAL_URL")]


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - 20 ms that only this flag needs

        _console.print(f"shoal {version('shoal')}", highlight=False)
        raise typer.Exit


@app.callback()
def shoal(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda wanted: _print_version(wanted=wanted), is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """An inference gateway for image classification."""


@app.command(cls=ServeCommand)
@with_setting_flags
def serve(
    *,
    try_photo: Annotated[
        Path | None,
        typer.Option("--try", exists=True, dir_okay=False, help="Classify this photograph as soon as ready."),
    ] = None,
    **given: Any,
) -> None:
    """Serve models until Ctrl-C. Each flag can be set in the environment too: --http-port is SHOAL_HTTP_PORT."""
    import uvloop  # noqa: PLC0415 - the server's imports take half a second, which `shoal --help` need not wait for

    from gateway import assembly, logs  # noqa: PLC0415
    from gateway.demo import Demo  # noqa: PLC0415

    settings = settings_from(given)
    logs.configure(settings.log_format, verbose=settings.log_verbose > 0)
    demo = Demo(try_photo, _console) if try_photo is not None else None
    _spare_garbage_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(assembly.serve(settings, demo))
        except assembly.EXPECTED_ERRORS as error:
            _fail(error)


def _spare_garbage_collector() -> None:
    """What has been imported is never garbage; looking through it takes 50 ms, in which nobody is answered."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 10)  # the usual 700 are the objects of fifteen requests that are being answered


class Example(enum.Enum):
    """What `shoal init` can write."""

    EMBEDDED = "embedded"
    ENSEMBLE = "ensemble"


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write it; made if missing.", file_okay=False)],
    example: Annotated[
        Example, typer.Option(help="The embedded model alone, or an ensemble around it that labels photographs.")
    ] = Example.EMBEDDED,
) -> None:
    """Write the embedded model as an ordinary repository that you can edit and serve."""
    from models.errors import RepositoryError  # noqa: PLC0415
    from models.examples.writing import write_ensemble  # noqa: PLC0415
    from models.zoo.embedded import MODEL_NAME, write_repository  # noqa: PLC0415

    try:
        written = write_repository(directory) / MODEL_NAME if example is Example.EMBEDDED else write_ensemble(directory)
    except RepositoryError as error:
        _fail(error)
    # Lines to copy: neither broken at the width of the terminal nor read as markup.
    for line in (f"wrote {written}", f"serve it: shoal serve --model-repository {directory}"):
        _console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def classify(
    photos: Annotated[list[Path], typer.Argument(metavar="FILE", help="Photographs.", exists=True, dir_okay=False)],
    url: Url = _DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="Needed if several models can classify.")] = None,
    top_k: Annotated[int, typer.Option(min=1, max=1000, help="Classes per photograph.")] = 5,
) -> None:
    """Send photographs to a running server and print their labels."""
    client = Client(url)
    failed = False
    for photo in photos:
        try:
            guesses = client.classify(photo, model, top_k)
        except (ClientError, OSError) as error:
            failed = True
            _print_error(f"{photo}: {error}")
        else:
            print_guesses(_console, photo, guesses)
    if failed:
        raise typer.Exit(1)


@app.command()
def models(url: Url = _DEFAULT_URL) -> None:
    """List the models of a running server."""
    try:
        entries = Client(url).models()
    except ClientError as error:
        _fail(error)
    columns = ("name", "versions", "ready", "backend", "policy", "max_batch_size", "instances", "classifies_images")
    table = Table(*(column.replace("_", " ") for column in columns))
    for entry in entries:
        table.add_row(*(escape(_cell(entry.get(column))) for column in columns))
    _console.print(table)
    for entry in entries:
        if "problem" in entry:
            _console.print(f"{entry['name']}: {entry['problem']}", markup=False, highlight=False, soft_wrap=True)


def print_guesses(console: Console, photo: Path, guesses: Sequence[Guess]) -> None:
    """Labels with their probabilities, below the file's name."""
    console.print(f"[bold]{escape(str(photo))}[/]", highlight=False, soft_wrap=True)
    for guess in guesses:
        console.print(f"  {guess.probability:6.1%}  {escape(guess.label)}", highlight=False, soft_wrap=True)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value)) or "-"
        case _:
            return str(value)


def _print_error(message: str) -> None:
    Console(stderr=True).print(f"shoal: {message}", style="red", markup=False, highlight=False, soft_wrap=True)


def _fail(error: Exception) -> NoReturn:
    _print_error(str(error))
    raise typer.Exit(1)


def main() -> None:
    """Entry point."""
    app(prog_name="shoal")
