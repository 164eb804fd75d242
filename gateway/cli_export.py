"""The commands `shoal export` and `shoal quantize`: write model versions, and show how they compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from backends.errors import ExportError
from backends.export.kinds import Format, Precision

if TYPE_CHECKING:
    from backends.export.parity import Deviation, ParityReport, Wishes

_Difference = Annotated[
    float | None,
    typer.Option(
        "--max-logit-difference",
        min=0,
        help="Largest difference of one score; by default a share of the largest score: 0.1 % for fp32, 2 % for fp16, "
        "10 % for bf16, 50 % for int8.",
    ),
]
_Agreement = Annotated[
    float | None,
    typer.Option(
        "--min-top1-agreement",
        min=0,
        max=1,
        help="Share of the pictures that keep their best class; by default 0.99 for fp32, 0.95 for fp16, 0.9 for bf16 "
        "and int8.",
    ),
]
_Photos = typer.Option("--photos", exists=True, file_okay=False, help="A folder of photographs.")
_Force = Annotated[bool, typer.Option("--force", help="Replace the version if it is there.")]


def add_commands(app: typer.Typer) -> None:
    """Make both commands part of `shoal`."""
    app.command()(export)
    app.command()(quantize)


def export(  # noqa: PLR0913 - the command's flags
    *,
    network: Annotated[str, typer.Argument(metavar="NAME", help="A classifier of torchvision, e.g. resnet50.")],
    into: Annotated[Path, typer.Option("--into", file_okay=False, help="The repository; made if missing.")],
    to: Annotated[Format, typer.Option("--format", help="Of the model file.")] = Format.ONNX,
    precision: Annotated[Precision, typer.Option(help="In which it computes.")] = Precision.FP32,
    name: Annotated[str, typer.Option(help="Of the model; the network's by default.")] = "",
    version: Annotated[int, typer.Option(min=0, help="Of the model.")] = 1,
    weights: Annotated[str, typer.Option(help="Name of torchvision's weights.")] = "DEFAULT",
    random_weights: Annotated[bool, typer.Option("--random-weights", help="Download nothing.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of random weights.")] = 0,
    photos: Annotated[Path | None, _Photos] = None,
    max_batch_size: Annotated[int, typer.Option(min=1, help="Largest batch of the model.")] = 8,
    keep_fp32: Annotated[
        bool, typer.Option("--keep-fp32", help="Beside ONNX in fp16: model.fp32.onnx, for non_finite = retry_fp32.")
    ] = False,
    max_logit_difference: _Difference = None,
    min_top1_agreement: _Agreement = None,
    force: _Force = False,
) -> None:
    """Write a classifier of torchvision as a model that serves at once, if it answers as it does in PyTorch."""
    from backends.export import exporting  # noqa: PLC0415 - the other commands need not wait for it

    request = exporting.ExportRequest(
        network=network,
        repository=into,
        name=name,
        version=version,
        format=to,
        precision=precision,
        weights=None if random_weights else weights,
        seed=seed,
        photos=photos,
        wishes=_wishes(max_logit_difference, min_top1_agreement),
        max_batch_rows=max_batch_size,
        keep_fp32=keep_fp32,
        force=force,
    )
    try:
        report = exporting.export(request)
    except ExportError as error:
        raise _failed(error) from error
    _show(report)
    _say(f"wrote {into / report.model / str(report.version)}")
    _say(f"serve it: shoal serve --model-repository {into}")


def quantize(  # noqa: PLR0913 - likewise
    *,
    model: Annotated[Path, typer.Argument(metavar="REPOSITORY/MODEL", help="The model's directory.", file_okay=False)],
    photos: Annotated[Path, _Photos],
    version: Annotated[int | None, typer.Option(min=0, help="To quantise; the newest by default.")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", file_okay=False, help="Another repository; by default the same.")
    ] = None,
    new_version: Annotated[
        int | None, typer.Option(min=0, help="To write; by default one more than the newest.")
    ] = None,
    max_logit_difference: _Difference = None,
    min_top1_agreement: _Agreement = None,
    force: _Force = False,
) -> None:
    """Write an 8-bit version of an ONNX classifier, calibrated on photographs, if it keeps the answers."""
    from backends.export import quantizing  # noqa: PLC0415

    request = quantizing.QuantizeRequest(
        model=model,
        photos=photos,
        version=version,
        repository=into,
        new_version=new_version,
        wishes=_wishes(max_logit_difference, min_top1_agreement),
        force=force,
    )
    try:
        result = quantizing.quantize(request)
    except ExportError as error:
        raise _failed(error) from error
    _show(result.report)
    before, after = result.bytes_before / 1e6, result.bytes_after / 1e6
    written = (into or model.parent) / result.report.model / str(result.report.version)
    _say(f"wrote {written}: {after:.1f} MB, was {before:.1f} MB")


def _wishes(difference: float | None, agreement: float | None) -> "Wishes":
    from backends.export.parity import Wishes  # noqa: PLC0415

    return Wishes(max_logit_difference=difference, min_top1_agreement=agreement)


def _failed(error: Exception) -> typer.Exit:
    """What was measured, if anything, then why nothing was written."""
    from backends.export.parity import MissedError  # noqa: PLC0415

    if isinstance(error, MissedError):
        _show(error.report)
    Console(stderr=True).print(f"shoal: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def _show(report: "ParityReport") -> None:
    table = Table("batch size", "row", "rows compared", "largest difference", "mean difference", "top-1 agreement")
    for size in report.sizes:
        table.add_row(str(size.batch_rows), "all", *_cells(size.overall))
        if size.batch_rows > 1:
            for at, deviation in enumerate(size.positions):
                table.add_row("", str(at), *_cells(deviation))
    if report.preprocessing is not None:
        table.add_row("1", "own transforms", *_cells(report.preprocessing))
    Console(width=120).print(table)
    _say(f"reference: {report.reference}; its largest score is {report.largest_logit:.4g}")
    _say(f"samples: {report.samples}")
    bounds = report.bounds
    _say(
        f"expected: differences up to {bounds.max_logit_difference:.4g}, agreement from {bounds.min_top1_agreement:.4g}"
    )
    for note in report.notes:
        _say(f"note: {note}")


def _cells(deviation: "Deviation") -> tuple[str, ...]:
    return (
        str(deviation.rows),
        f"{deviation.max_logit_difference:.3g}",
        f"{deviation.mean_logit_difference:.3g}",
        f"{deviation.top1_agreement:.3f}",
    )


def _say(line: str) -> None:
    # To copy: neither broken at the width of the terminal nor read as markup.
    Console().print(line, markup=False, highlight=False, soft_wrap=True)
