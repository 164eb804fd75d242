"""Golden photographs: what a model's declared preprocessing made of them once, and what the model saw in them.

The file ``golden.json`` in a model's directory, which ``shoal golden`` writes, holds for each photograph its digest, a
coarse fingerprint of its row and, by version, the most probable classes. Compared with today's rows and answers, it
tells of a changed decoder, declaration or model before anybody is answered wrongly.

Where an error can be expressed in levels of 0..255, tolerances are in levels: they mean the same for every mean and
std.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import ConfigError
from models.golden_reasons import likely_reason
from models.inference import Array
from models.preprocessing import Preprocessing
from models.spec import GoldenSpec
from models.text_files import file_inside, read_text

DIRECTORY = "golden"
"""Of the model's directory: where ``shoal golden`` copies photographs to."""

Cells: TypeAlias = NDArray[np.float64]
"""Shape [3, side, side]: means of a row in cells, by channel of the row, in the row's own unit."""

_MOST_CELLS = 8  # a side
# By which sharpness may differ. Measured on photographs: bicubic is 0.13 to 0.27 above bilinear, nearest 0.4 to 1.
_DETAIL_SHARE = 0.05
_DETAIL_LEVELS = 0.5  # and by so much in any case: photographs without detail have nothing to differ in

_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GoldenClass(_Part):
    """One class of an answer; the label is for people."""

    index: Annotated[int, Field(ge=0)]
    label: str = ""
    probability: Annotated[float, Field(ge=0, le=1)]


class GoldenPhoto(_Part):
    """One photograph.

    Attributes:
        file: Below the model's directory.
        sha256: Of the file, in hexadecimal digits.
        cells: `Cells` as lists.
        detail: How sharp each channel is: root mean square of neighbours' differences, in the row's unit.
        top: By version, the most probable classes; a version that is not in it is not asked.
    """

    file: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    cells: tuple[tuple[tuple[_Number, ...], ...], ...]
    detail: tuple[_Number, _Number, _Number]
    top: dict[str, tuple[GoldenClass, ...]] = Field(default_factory=dict)


class Golden(_Part):
    """The whole file."""

    about: str = ""
    photos: Annotated[tuple[GoldenPhoto, ...], Field(min_length=1)]


def read_golden(spec: GoldenSpec) -> Golden:
    """Read the file of a model.

    Raises:
        ConfigError: There is none, or it is none.
        OSError: It cannot be read.
    """
    source = f"{spec.directory.name}/{spec.name}"
    file = file_inside(spec.directory, spec.name)
    if file is None:
        expected = "one; write it with: shoal golden MODEL_DIRECTORY PHOTOS"
        raise ConfigError(source=source, field="golden.file", found="no such file", expected=expected)
    try:
        return Golden.model_validate_json(read_text(file, source), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "(top level)"
        expected = f"{first['msg'][:1].lower()}{first['msg'][1:]}; write it anew with: shoal golden"
        raise ConfigError(source=source, field=field, found="something else", expected=expected) from error


def read_photo(spec: GoldenSpec, photo: GoldenPhoto) -> bytes:
    """The photograph's file, which is the one that was recorded.

    Raises:
        ConfigError: It is missing, or another one.
        OSError: It cannot be read.
    """
    source = f"{spec.directory.name}/{spec.name}"
    file = file_inside(spec.directory, photo.file)
    if file is None:
        raise ConfigError(source=source, field=photo.file, found="no such photograph", expected="it beside the file")
    content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != photo.sha256:
        expected = f"{photo.sha256[:12]}...; restore the photograph, or write the file anew with: shoal golden"
        raise ConfigError(source=source, field=photo.file, found=f"the SHA-256 {found[:12]}...", expected=expected)
    return content


def describe_photo(file: str, content: bytes, row: Array, how: Preprocessing) -> GoldenPhoto:
    """What is remembered of a photograph and its row."""
    cells, detail = fingerprint(row, how)
    first, second, third = (_rounded(value) for value in detail)
    return GoldenPhoto(
        file=file,
        sha256=hashlib.sha256(content).hexdigest(),
        cells=tuple(tuple(tuple(map(_rounded, line)) for line in plane) for plane in cells.tolist()),
        detail=(first, second, third),
    )


def fingerprint(row: Array, how: Preprocessing) -> tuple[Cells, Sequence[float]]:
    """Means of a row in 8 x 8 cells (fewer for smaller rows), and the sharpness of each channel.

    Args:
        row: Shape ``how.row_shape``.
        how: Its layout.
    """
    planes = np.asarray(row, np.float64)
    if how.layout == "HWC":
        planes = planes.transpose(2, 0, 1)
    side = min(_MOST_CELLS, how.crop)
    edges = np.arange(side) * how.crop // side
    sizes = np.diff([*edges, how.crop])
    cells = np.add.reduceat(np.add.reduceat(planes, edges, axis=1), edges, axis=2) / np.outer(sizes, sizes)
    steps = [np.square(np.diff(planes, axis=axis)).sum((1, 2)) for axis in (1, 2)]
    detail = np.sqrt((steps[0] + steps[1]) / planes[0].size)
    return cells, detail.tolist()


def check_row(photo: GoldenPhoto, row: Array, how: Preprocessing, tolerance_levels: float) -> str | None:
    """What is wrong with today's row of a photograph and the likely reason, or None.

    Args:
        photo: What is expected.
        row: Today's, of shape ``how.row_shape``.
        how: Today's declaration.
        tolerance_levels: By how much the mean of a cell may differ.
    """
    found, detail = fingerprint(row, how)
    try:
        expected = np.array(photo.cells, np.float64)
    except ValueError:  # lists of different lengths
        expected = np.empty(0)
    if expected.shape != found.shape:
        shape = " x ".join(map(str, found.shape))
        return f"photograph '{photo.file}': the recorded cells are not {shape}; write them anew with: shoal golden"
    units = _levels_per_unit(how)
    differences = np.abs(found - expected) * units[:, None, None]
    problem = None
    if differences.mean() <= tolerance_levels / 2:  # by and large the same: then sharpness explains more
        problem = _detail_problem(photo, detail, how, units)
    if problem is not None or differences.max() <= tolerance_levels:
        return problem
    channel, line, column = map(int, np.unravel_index(np.argmax(differences), differences.shape))
    cell = f"cell {line}, {column} of {found.shape[1]} x {found.shape[2]}"
    values = f"{found[channel, line, column]:.4g}, expected {expected[channel, line, column]:.4g}"
    reason = likely_reason(found, expected, how, tolerance_levels)
    return (
        f"photograph '{photo.file}': channel {channel} ({_colour(how, channel)}) in {cell}: found {values} within "
        f"{tolerance_levels / units[channel]:.2g}: {reason}"
    )


def check_scores(photo: GoldenPhoto, version: int, probabilities: Sequence[float], tolerance: float) -> str | None:
    """What is wrong with today's answer, or None.

    Args:
        photo: What is expected.
        version: Of the model.
        probabilities: By class.
        tolerance: By how much each probability may differ.
    """
    for wanted in photo.top.get(str(version), ()):
        name = f"class {wanted.index}" + (f" ({wanted.label})" if wanted.label else "")
        where = f"photograph '{photo.file}': {name}"
        if wanted.index >= len(probabilities):
            return f"{where}: found {len(probabilities)} classes: another model?"
        found = probabilities[wanted.index]
        if not abs(found - wanted.probability) <= tolerance:  # NaN is no match either
            return (
                f"{where}: found a probability of {found:.3f}, expected {wanted.probability:.3f} within {tolerance:g}: "
                "the row is as expected, so the model's file, precision or engine has changed"
            )
    return None


def _detail_problem(photo: GoldenPhoto, detail: Sequence[float], how: Preprocessing, units: Array) -> str | None:
    for channel, (found, expected, unit) in enumerate(zip(detail, photo.detail, units.tolist(), strict=True)):
        if abs(found - expected) > max(_DETAIL_SHARE * expected, _DETAIL_LEVELS / unit):
            kind = "sharper" if found > expected else "softer"
            share = "" if not expected else f" ({found / expected:.2f} times as much)"
            return (
                f"photograph '{photo.file}': channel {channel} ({_colour(how, channel)}): neighbours differ by "
                f"{found:.4g}, expected {expected:.4g}{share}: the row is {kind}: another resize filter, or without "
                "antialiasing?"
            )
    return None


def _levels_per_unit(how: Preprocessing) -> NDArray[np.float64]:
    """By channel: how many levels one unit of the row stands for."""
    return np.abs(np.array(how.std if how.dtype == "float32" else (1.0, 1.0, 1.0), np.float64))


def _colour(how: Preprocessing, channel: int) -> str:
    names: Mapping[str, str] = {"R": "red", "G": "green", "B": "blue"}
    return names[how.colour[channel]]


def _rounded(value: float) -> float:
    """To six digits: a fingerprint of levels needs no more."""
    return 0.0 if value == 0 else round(value, 5 - math.floor(math.log10(abs(value))))


def photo_name(file: Path) -> str:
    """Where a photograph goes, below the model's directory."""
    return f"{DIRECTORY}/{file.name}"
