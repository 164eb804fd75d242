"""What variants are tried on: photos, decoded exactly as they are when the model is served, or random rows."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.errors import ExportError
from models.errors import ImageError
from models.images.decode import decode
from models.images.header import ImageLimits
from models.preprocessing import Preprocessing

Rows = NDArray[np.generic]
"""Shape (rows, *row shape)."""

_MOST_PHOTOS = 256
"""Of a larger folder so many are taken, evenly spread: they are in memory all at once, 0.6 MB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Rows of a model's input.

    Attributes:
        rows: Shape (rows, *row shape).
        description: What they are, for people.
        files: Where each row comes from; empty for random rows.
    """

    rows: Rows
    description: str
    files: tuple[Path, ...] = ()


def read_photos(directory: Path, how: Preprocessing) -> Samples:
    """The photos in and below a directory, by name; files that are no pictures are left out.

    Raises:
        ExportError: There is no photo that can be decoded.
    """
    present = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    step = max(1, -(-len(present) // _MOST_PHOTOS))
    rows, files, skipped = [], [], 0
    for file in present[::step]:
        try:
            rows.append(decode(file.read_bytes(), how, ImageLimits()))
        except ImageError:
            skipped += 1
        else:
            files.append(file)
    if not rows:
        raise ExportError(
            f"photos: found {len(present)} files and no picture among them in {directory.name}, expected photographs "
            "(JPEG, PNG, WebP, ...)"
        )
    left_out = f" ({skipped} files left out, which cannot be decoded)" if skipped else ""
    return Samples(rows=np.stack(rows), description=f"{len(rows)} photos{left_out}", files=tuple(files))


def random_rows(how: Preprocessing, count: int = 16) -> Samples:
    """The same noise each time, with the range of values that photos have."""
    levels = np.random.default_rng(0).integers(0, 256, (count, *how.row_shape), np.uint8)
    description = f"{count} random inputs (give photos to see what matters: real pictures)"
    if how.dtype == "uint8":
        return Samples(rows=levels, description=description)
    shape = (3, 1, 1) if how.layout == "CHW" else (3,)
    mean, std = (np.array(values, np.float32).reshape(shape) for values in (how.mean, how.std))
    return Samples(rows=(levels.astype(np.float32) - mean) / std, description=description)


def mirrored(rows: Rows, how: Preprocessing) -> Rows:
    """The rows, and after them the same pictures mirrored left to right."""
    return np.concatenate([rows, np.flip(rows, axis=3 if how.layout == "CHW" else 2)])
