"""Why a row is not the expected one: the usual mistakes are tried on its cells, and the one that fits is named."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from models.preprocessing import Preprocessing

Cells = NDArray[np.float64]

_TURNS: tuple[tuple[str, Callable[[Cells], Cells]], ...] = (
    ("mirrored", lambda cells: cells[:, :, ::-1]),
    ("upside down", lambda cells: cells[:, ::-1]),
    ("turned by 180 degrees", lambda cells: cells[:, ::-1, ::-1]),
    ("turned by 90 degrees", lambda cells: np.rot90(cells, 1, (1, 2))),
    ("turned by 90 degrees", lambda cells: np.rot90(cells, -1, (1, 2))),
    ("turned and mirrored", lambda cells: cells.transpose(0, 2, 1)),
    ("turned and mirrored", lambda cells: np.rot90(cells, 2, (1, 2)).transpose(0, 2, 1)),
)
_LIKE = 0.6  # correlation of the cells of one photograph in two geometries


def likely_reason(found: Cells, expected: Cells, how: Preprocessing, tolerance_levels: float) -> str:
    """The most likely reason, as the end of a sentence.

    Args:
        found: Means of today's row, shape [3, side, side], in the row's unit.
        expected: Those that were recorded.
        how: Today's declaration.
        tolerance_levels: How near is equal.
    """
    if _is_swapped(found, expected, how, tolerance_levels):
        return f'red and blue are swapped: is colour = "{how.colour}" right?'
    scale = _other_scale(found, expected, how, tolerance_levels)
    if scale is not None:
        return scale
    units = np.abs(_std(how))[:, None, None]
    for name, turn in _TURNS:
        # A turned crop may be off by a pixel.
        if (np.abs(turn(found) - expected) * units).mean() <= tolerance_levels:
            return f'the picture is {name}: is exif = "{how.exif}" right?'
    if _likeness(found, expected) > _LIKE:
        return f"the same picture in another size or place: are resize = {how.resize} and crop = {how.crop} right?"
    return "the picture is decoded to something else: another decoder, or another photograph was recorded?"


def _likeness(found: Cells, expected: Cells) -> float:
    """Correlation of the cells; 0 if one of the two is of one colour."""
    left, right = found - found.mean(), expected - expected.mean()
    scale = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float((left * right).sum()) / scale if scale else 0.0


def _std(how: Preprocessing) -> NDArray[np.float64]:
    return np.array(how.std if how.dtype == "float32" else (1.0, 1.0, 1.0))


def _mean(how: Preprocessing) -> NDArray[np.float64]:
    return np.array(how.mean if how.dtype == "float32" else (0.0, 0.0, 0.0))


def _is_swapped(found: Cells, expected: Cells, how: Preprocessing, tolerance_levels: float) -> bool:
    """Whether the first channel is the last one: with mean and std left in place, or swapped with the colours."""
    std, mean = _std(how)[:, None, None], _mean(how)[:, None, None]
    in_place = np.abs((found * std + mean)[::-1] - (expected * std + mean))
    with_colours = np.abs(found[::-1] - expected) * np.abs(std)
    return bool(min(in_place.max(), with_colours.max()) <= tolerance_levels)


def _other_scale(found: Cells, expected: Cells, how: Preprocessing, tolerance_levels: float) -> str | None:
    """The mean and std that would explain the expected row, if any do."""
    means, stds = [], []
    for channel, (mean, std) in enumerate(zip(_mean(how), _std(how), strict=True)):
        levels, wanted = found[channel].ravel() * std + mean, expected[channel].ravel()
        if np.ptp(levels) <= 2 * tolerance_levels:
            return None  # a picture of one colour fits everything
        slope, offset = np.polyfit(levels, wanted, 1)
        if not slope or np.abs(slope * levels + offset - wanted).max() / abs(slope) > tolerance_levels:
            return None
        means.append(round(float(-offset / slope), 1))
        stds.append(round(float(1 / slope), 1))
    return f"the same picture in another scale: mean = {means} and std = {stds} would fit"
