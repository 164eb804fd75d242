"""What all formats' structures have in common."""

from collections.abc import Iterator
from dataclasses import dataclass

from models.errors import BrokenImageError
from models.images.signatures import ImageFormat

Part = bytes | memoryview

# Segments, chunks or blocks; an honest 32 MiB PNG with small IDAT chunks has 16 thousand.
_MOST_STEPS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What the structure says.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        orientation: Exif's 1..8; 1 if absent or senseless.
        parts: Joined, a file with the same pixels and nothing else. Views on the original where possible.
        can_halve: The decoder can give the picture at a half, a quarter or an eighth of its size.
        grey_bits: Bits a pixel of unsigned grey deeper than 8 bits; 0 for every other kind of pixel.
        white_is_zero: Such grey is stored as its negative.
        transparent: The grey value or the RGB colour that is transparent; empty if none, or if a palette says it. In
            the file's own scale for deep grey, else in levels 0..255.
        frame: Left, top, right and bottom of the first frame in pixels, if it does not cover the whole picture.
    """

    width: int
    height: int
    orientation: int = 1
    parts: tuple[Part, ...]
    can_halve: bool = False
    grey_bits: int = 0
    white_is_zero: bool = False
    transparent: tuple[int, ...] = ()
    frame: tuple[int, int, int, int] | None = None


def steps(image_format: ImageFormat) -> Iterator[None]:
    """One item a step of a walk; too many are an attack on whoever walks there next."""
    for _ in range(_MOST_STEPS):
        yield
    raise BrokenImageError(f"{image_format}: more than {_MOST_STEPS} parts, expected a picture")
