"""``shoal check``: what is wrong with repositories, without serving them."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import orjson
import typer
from rich.console import Console
from rich.text import Text

from gateway.flags import settings_from

if TYPE_CHECKING:
    from gateway.repository_check import Report
    from models.findings import Finding

_FAILED, _UNUSABLE = 1, 2
_STYLES = {"error": "bold red", "warning": "yellow"}


def check(
    repositories: Annotated[
        list[str], typer.Argument(metavar="REPOSITORY...", help="Directories or URLs, as for --model-repository.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    allow_cpu: Annotated[bool, typer.Option("--allow-cpu", help="As for shoal serve.")] = False,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Report on this model only.")] = None,
) -> None:
    """Find what is wrong with models without serving them; ends with 1 if there are errors, 2 if it cannot look."""
    report = _report(repositories, model, allow_cpu=allow_cpu)
    if as_json:
        typer.echo(orjson.dumps(_as_json(report), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report)
    if any(finding.severity.value == "error" for finding in report.findings):
        raise typer.Exit(_FAILED)


def _report(repositories: Sequence[str], model: str | None, *, allow_cpu: bool) -> "Report":
    # Half a second of imports, which `shoal --help` need not wait for.
    from backends.cpu_budget import cpu_budget  # noqa: PLC0415
    from backends.devices import gpus  # noqa: PLC0415
    from backends.placing import Machine  # noqa: PLC0415
    from backends.ports import Placement  # noqa: PLC0415
    from gateway.repositories import open_repositories  # noqa: PLC0415
    from gateway.repository_check import check_places  # noqa: PLC0415
    from models.errors import RepositoryError  # noqa: PLC0415

    settings = settings_from({"model_repository": list(repositories), "allow_cpu": allow_cpu})
    for repository in settings.model_repository:
        _refuse_model(Path(repository))
    try:
        places = open_repositories(settings)()
    except RepositoryError as error:
        _give_up(str(error))
    if model is not None and model not in places:
        _give_up(f"found no model '{model}', expected one of {', '.join(places) or 'none: there is no model at all'}")
    visible = {gpu.index: gpu.uuid for gpu in gpus()}
    defaults = Placement(cores=cpu_budget().cores, cache_dir=settings.cache_dir)
    return check_places(places, Machine(gpus=visible, defaults=defaults, allow_cpu=settings.allow_cpu), model)


def _refuse_model(directory: Path) -> None:
    if (directory / "config.pbtxt").is_file():
        name = directory.resolve().name
        _give_up(
            f"{directory}: found a model, expected a repository; name the directory above: "
            f"shoal check {directory.parent} --model {name}"
        )


def _as_json(report: "Report") -> dict[str, object]:
    problems = [{**asdict(finding), "severity": finding.severity.value} for finding in report.findings]
    counts = {f"{severity}s": sum(problem["severity"] == severity for problem in problems) for severity in _STYLES}
    return {"models": dict(report.models), **counts, "problems": problems}


def _print(report: "Report") -> None:
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for name, versions in report.models.items():
        readable = f"versions {', '.join(map(str, versions))}" if versions else "no version can be served"
        console.print(Text.assemble((name, "bold"), f"  {readable}"), soft_wrap=True)
        _print_findings(console, report, name)
    if any(not finding.model for finding in report.findings):
        console.print("of no single model", style="bold")
        _print_findings(console, report, "")
    severities = [finding.severity.value for finding in report.findings]
    counted = [_counted(len(report.models), "model"), *(_counted(severities.count(word), word) for word in _STYLES)]
    console.print(", ".join(counted))


def _print_findings(console: Console, report: "Report", model: str) -> None:
    for finding in report.findings:
        for line in _lines(finding) if finding.model == model else ():
            console.print(line, soft_wrap=True)


def _lines(finding: "Finding") -> Iterator[Text]:
    word = finding.severity.value
    where = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    yield Text.assemble("  ", (word, _STYLES[word]), f" {where}".rstrip(), "  ", (finding.field, "bold"))
    for label, value in (("found", finding.found), ("expected", finding.expected), ("fix", finding.fix)):
        if value:
            yield Text.assemble("    ", (f"{label:<9}", "dim"), value)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _give_up(message: str) -> NoReturn:
    Console(stderr=True).print(f"shoal: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(_UNUSABLE)
