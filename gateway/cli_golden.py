"""``shoal golden``: remembers what a model makes of photographs."""

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console


def golden(
    directory: Annotated[
        Path, typer.Argument(metavar="MODEL_DIRECTORY", help="With its shoal.toml.", exists=True, file_okay=False)
    ],
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTO", help="Photographs.", exists=True, dir_okay=False)],
    *,
    allow_cpu: Annotated[bool, typer.Option("--allow-cpu", help="As for shoal serve.")] = False,
) -> None:
    """Remember what a model makes of photographs today; from then on it is compared whenever the model is loaded."""
    # Half a second of imports, which `shoal --help` need not wait for.
    from backends.cpu_budget import cpu_budget  # noqa: PLC0415
    from backends.devices import gpus  # noqa: PLC0415
    from backends.errors import BackendError  # noqa: PLC0415
    from backends.placing import Machine  # noqa: PLC0415
    from backends.ports import Placement  # noqa: PLC0415
    from batching.clock import MonotonicClock  # noqa: PLC0415
    from gateway.golden_record import record_golden  # noqa: PLC0415
    from models.errors import ModelsError  # noqa: PLC0415

    defaults = Placement(cores=cpu_budget().cores)
    machine = Machine(gpus={gpu.index: gpu.uuid for gpu in gpus()}, defaults=defaults, allow_cpu=allow_cpu)
    try:
        written = asyncio.run(record_golden(directory.resolve(), photos, machine=machine, clock=MonotonicClock()))
    except (ModelsError, BackendError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or directory}: {error.strerror}")
    console = Console()
    for photo in written.photos:
        for version, (first, *_) in photo.top.items():
            line = f"{photo.file}, version {version}: {first.label or first.index} ({first.probability:.1%})"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    line = f"recorded {len(written.photos)} photographs; they are compared whenever the model is loaded"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"shoal: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)
