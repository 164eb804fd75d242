"""Where the rows' pixels come from: torchvision's resize and centre crop as one box, through Exif's orientation."""

from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels; edges, not centres."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """How the upright picture relates to the stored one: swap the axes, then mirror in stored coordinates."""

    swap: bool
    mirror_x: bool
    mirror_y: bool


_TURNS = {
    1: _Turn(swap=False, mirror_x=False, mirror_y=False),
    2: _Turn(swap=False, mirror_x=True, mirror_y=False),
    3: _Turn(swap=False, mirror_x=True, mirror_y=True),
    4: _Turn(swap=False, mirror_x=False, mirror_y=True),
    5: _Turn(swap=True, mirror_x=False, mirror_y=False),
    6: _Turn(swap=True, mirror_x=False, mirror_y=True),
    7: _Turn(swap=True, mirror_x=True, mirror_y=True),
    8: _Turn(swap=True, mirror_x=True, mirror_y=False),
}


def stored_crop_box(width: int, height: int, orientation: int, *, resize: int, crop: int) -> Box:
    """The part of the stored picture that the upright picture's centre crop shows.

    Args:
        width: Stored picture, pixels.
        height: Stored picture, pixels.
        orientation: Exif's 1..8 that will be applied, 1 for none.
        resize: Shorter side after torchvision's resize, pixels.
        crop: Side of the centre crop, pixels, at most `resize`.
    """
    turn = _TURNS[orientation]
    if turn.swap:
        top, left, bottom, right = _crop_box(height, width, resize, crop)
    else:
        left, top, right, bottom = _crop_box(width, height, resize, crop)
    if turn.mirror_x:
        left, right = width - right, width - left
    if turn.mirror_y:
        top, bottom = height - bottom, height - top
    return left, top, right, bottom


def _crop_box(width: int, height: int, resize: int, crop: int) -> Box:
    """The crop in pixels of the picture before the resize.

    The roundings are torchvision's (`_compute_resized_output_size`, `center_crop`): half a pixel of difference is
    visible in the answers.
    """
    short, long = min(width, height), max(width, height)
    resized_long = int(resize * long / short)
    resized_width, resized_height = (resize, resized_long) if width <= height else (resized_long, resize)
    left, top = round((resized_width - crop) / 2.0), round((resized_height - crop) / 2.0)
    x, y = width / resized_width, height / resized_height
    # The minimum is against rounding: decoders refuse a box that is a trillionth of a pixel too wide.
    return left * x, top * y, min((left + crop) * x, width), min((top + crop) * y, height)
