"""Pixels of every kind to levels 0..255, transparency laid on a background.

Only RGB and grey pictures may wait with their conversion until they are resized: resizing would mix palette indices,
weigh colours by alpha, and let the colours that hide below transparent pixels bleed into their neighbours.
"""

import numpy as np
from PIL import Image

from models.errors import UnsupportedImageError
from models.images.structure import Container

Level3 = tuple[int, int, int]

_PLAIN = frozenset(("RGB", "L"))
_DEEP = frozenset(("I", "I;16", "I;16B", "I;16L", "I;16N"))
_OPAQUE = frozenset(("1", "P", "RGBX", "CMYK", "YCbCr"))
_KNOWN = _PLAIN | _OPAQUE
_STRAIGHT = {"LA": "LA", "La": "LA", "PA": "RGBA", "RGBA": "RGBA", "RGBa": "RGBA"}


def in_levels(image: Image.Image, container: Container, background: Level3) -> Image.Image:
    """The picture as RGB or grey; plain pictures are returned as they are.

    Args:
        image: Loaded.
        container: Of the same file.
        background: RGB levels that show through.

    Raises:
        UnsupportedImageError: Pixels without a defined range of brightness.
    """
    picture, mask = _with_mask(image, container)
    if mask is None and container.frame is None:
        return picture
    box = container.frame or (0, 0, *image.size)
    canvas = Image.new("RGB", image.size, background)
    if container.frame is not None:
        picture, mask = picture.crop(box), None if mask is None else mask.crop(box)
    canvas.paste(picture, box, mask)
    return canvas


def _with_mask(image: Image.Image, container: Container) -> tuple[Image.Image, Image.Image | None]:
    """Colours, and what shows of them (the same picture where it has an alpha channel); None means all."""
    mode = image.mode
    if mode in _DEEP and container.grey_bits:
        return _deep(image, container)
    if mode in _STRAIGHT:
        straight = image if mode == _STRAIGHT[mode] else image.convert(_STRAIGHT[mode])
        return straight, straight
    if mode not in _KNOWN:
        raise UnsupportedImageError(
            f"found: {image.format} with pixels of mode {mode}; accepted: 1, 8, 12 or 16 bits grey, palette, 8 bits "
            "RGB, CMYK, YCbCr, each with or without alpha"
        )
    if container.transparent:
        return _with_key(image, container.transparent)
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return rgba, rgba
    return image if mode in _PLAIN else image.convert("RGB"), None


def _deep(image: Image.Image, container: Container) -> tuple[Image.Image, Image.Image | None]:
    """Grey scaled by its value: the upper 8 of its bits."""
    values = np.asarray(image)
    levels = (values >> (container.grey_bits - 8)).astype(np.uint8)
    picture = Image.fromarray(~levels if container.white_is_zero else levels)
    if not container.transparent:
        return picture, None
    return picture, Image.fromarray(np.where(values == container.transparent[0], 0, 255).astype(np.uint8))


def _with_key(image: Image.Image, transparent: tuple[int, ...]) -> tuple[Image.Image, Image.Image]:
    """One colour of the picture, grey or RGB, is transparent."""
    picture = image.convert("L") if image.mode == "1" else image
    picture.info["transparency"] = transparent[0] if picture.mode == "L" else transparent
    rgba = picture.convert("RGBA")
    return rgba, rgba
