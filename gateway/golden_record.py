"""Makes golden photographs of a model: rows and answers as they are today, to be compared at each later load."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from backends.placing import Machine
from backends.pool import InstancePool
from backends.workers import WorkerHouse
from batching.clock import Clock
from gateway.classification import top_predictions
from models.errors import ImageError, ModelsError, RepositoryError
from models.golden import DIRECTORY, Golden, GoldenClass, GoldenPhoto, describe_photo, read_golden
from models.images.decode import Row, decode
from models.images.header import ImageLimits
from models.model_directory import read_model
from models.preprocessing import Preprocessing
from models.problems import as_one
from models.spec import GoldenSpec, ModelSpec
from models.text_files import read_plain

_TOP_K = 5
_ABOUT = "Written by `shoal golden`: what the preprocessing and the model made of these photographs."


async def record_golden(directory: Path, photos: Sequence[Path], *, machine: Machine, clock: Clock) -> Golden:
    """Run photographs through all versions of a model and write what comes out beside them.

    The photographs are copied into the model's directory ``golden/``; the file is written last, so that a server that
    watches the repository sees it complete.

    Args:
        directory: The model's, resolved: its name is the model's.
        photos: Encoded images.
        machine: Where the model runs for that.
        clock: Stamps the batches.

    Returns:
        What was written.

    Raises:
        ModelsError: The model is wrong, cannot classify, or a photograph cannot be decoded.
        BackendError: The model cannot be loaded or run.
        OSError: A file cannot be read or written.
    """
    specs, how = await asyncio.to_thread(_classifiers, directory)
    files = _files(photos)
    contents = {name: await asyncio.to_thread(_read, photo) for name, photo in files.items()}
    rows = {name: await asyncio.to_thread(_row, files[name], data, how) for name, data in contents.items()}
    tops = {spec.version: await _answers(spec, how, list(rows.values()), machine, clock) for spec in specs}
    golden = Golden(
        about=_ABOUT,
        photos=tuple(
            _with_answers(describe_photo(name, contents[name], row, how), {v: top[place] for v, top in tops.items()})
            for place, (name, row) in enumerate(rows.items())
        ),
    )
    rules = specs[0].golden or GoldenSpec(directory=directory)
    await asyncio.to_thread(_write, rules, golden, files)
    return golden


def earlier_record(directory: Path) -> Golden | None:
    """What was recorded of the model in this directory before; None if nothing that can be read. Blocks."""
    rules = next((spec.golden for spec in read_model(directory).versions if spec.golden is not None), None)
    return None if rules is None else _read_record(rules)


def _read_record(rules: GoldenSpec) -> Golden | None:
    try:
        return read_golden(rules)
    except (ModelsError, OSError):  # it is about to be replaced
        return None


def _classifiers(directory: Path) -> tuple[Sequence[ModelSpec], Preprocessing]:
    entry = read_model(directory)
    if entry.problems:
        raise as_one(entry.problems)
    how = next((spec.preprocessing for spec in entry.versions if spec.preprocessing is not None), None)
    if how is None:
        raise RepositoryError(
            f"{directory.name}: found a model without preprocessing, expected [preprocessing] in its shoal.toml"
        )
    return entry.versions, how


def _files(photos: Sequence[Path]) -> Mapping[str, Path]:
    """By place in the model's directory."""
    files = {f"{DIRECTORY}/{photo.name}": photo for photo in photos}
    if len(files) < len(photos):
        names = sorted(photo.name for photo in photos)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise RepositoryError(f"photographs: found the name '{twice}' twice, expected each once")
    return files


def _read(photo: Path) -> bytes:
    return read_plain(photo, str(photo), ImageLimits().max_bytes)


def _row(photo: Path, content: bytes, how: Preprocessing) -> Row:
    try:
        return decode(content, how, ImageLimits())
    except ImageError as error:
        raise RepositoryError(f"{photo}: {error}") from error


async def _answers(
    spec: ModelSpec, how: Preprocessing, rows: Sequence[Row], machine: Machine, clock: Clock
) -> Sequence[Sequence[GoldenClass]]:
    """The most probable classes of each row; none for an ensemble, which needs its other models for that."""
    if spec.steps:
        return [()] * len(rows)
    group = replace(spec.instance_groups[0], count=1, is_default_count=False)
    alone = replace(spec, instance_groups=(group,))
    async with WorkerHouse(clock) as workers:
        pool = InstancePool(alone, clock=clock, machine=machine, workers=workers)
        try:
            await pool.start()
            return [await _answer(spec, how, pool, row) for row in rows]
        finally:
            await pool.aclose()


async def _answer(spec: ModelSpec, how: Preprocessing, pool: InstancePool, row: Row) -> Sequence[GoldenClass]:
    batch = await pool.instances[0].execute([{spec.inputs[0].name: row[np.newaxis]}])
    (outputs,) = batch.results
    if isinstance(outputs, Exception):
        raise outputs
    output = spec.scores_output
    return tuple(
        GoldenClass(
            index=guess.index,
            label=guess.label if guess.index < len(output.labels) else "",
            probability=round(guess.probability, 6),
        )
        for guess in top_predictions(outputs[output.name][0], output.labels, _TOP_K, how.output)
    )


def _with_answers(photo: GoldenPhoto, tops: Mapping[int, Sequence[GoldenClass]]) -> GoldenPhoto:
    return photo.model_copy(update={"top": {str(version): tuple(top) for version, top in tops.items() if top}})


def _write(rules: GoldenSpec, golden: Golden, files: Mapping[str, Path]) -> None:
    (rules.directory / DIRECTORY).mkdir(exist_ok=True)
    earlier = _read_record(rules)
    for name, photo in files.items():
        target = rules.directory / name
        if not (target.exists() and target.samefile(photo)):
            shutil.copyfile(photo, target)
    file = rules.directory / rules.name
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(golden.model_dump_json() + "\n", encoding="utf-8")
    unfinished.replace(file)
    for known in earlier.photos if earlier else ():
        copy = rules.directory / known.file
        if known.file not in files and copy.parent == rules.directory / DIRECTORY:
            copy.unlink(missing_ok=True)
