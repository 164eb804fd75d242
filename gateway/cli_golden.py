"""``shoal golden``: remembers what a model makes of photographs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from models.golden import Golden, GoldenClass


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
    from gateway.golden_record import earlier_record, record_golden  # noqa: PLC0415
    from models.errors import ModelsError  # noqa: PLC0415

    defaults = Placement(cores=cpu_budget().cores)
    machine = Machine(gpus={gpu.index: gpu.uuid for gpu in gpus()}, defaults=defaults, allow_cpu=allow_cpu)
    earlier = earlier_record(directory.resolve())
    try:
        written = asyncio.run(record_golden(directory.resolve(), photos, machine=machine, clock=MonotonicClock()))
    except (ModelsError, BackendError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or directory}: {error.strerror}")
    for line in _lines(written, earlier):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


def _lines(written: "Golden", earlier: "Golden | None") -> Iterator[str]:
    before = {photo.file: photo.top for photo in earlier.photos} if earlier else {}
    for photo in written.photos:
        for version, (first, *_) in photo.top.items():
            was = before.get(photo.file, {}).get(version)
            changed = f", was {_shown(was[0])}" if was and was[0].index != first.index else ""
            yield f"{photo.file}, version {version}: {_shown(first)}{changed}"
    if before:
        yield f"the earlier record, of {_counted(len(before))}, is replaced"
    they_are = "it is" if len(written.photos) == 1 else "they are"
    yield f"recorded {_counted(len(written.photos))}; {they_are} compared whenever the model is loaded"


def _counted(photos: int) -> str:
    return f"{photos} photograph{'' if photos == 1 else 's'}"


def _shown(guess: "GoldenClass") -> str:
    return f"{guess.label or guess.index} ({guess.probability:.1%})"


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"shoal: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)
