"""What an encoded image claims to be, checked against the limits before any pixel is allocated."""

from dataclasses import dataclass

from models.errors import BrokenImageError, ImageTooLargeError, UnsupportedImageError
from models.images.containers import read_container
from models.images.signatures import ACCEPTED, ImageFormat, describe, image_format
from models.images.structure import Container


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """The largest image that is decoded.

    Attributes:
        max_bytes: Of the encoded file.
        max_side_pixels: Of width and of height.
        max_pixels: Of the whole picture; a decoded pixel takes up to 4 bytes.
    """

    max_bytes: int = 32 * 1024 * 1024
    max_side_pixels: int = 16_384
    max_pixels: int = 64_000_000

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_side_pixels", "max_pixels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """Format by content, and the stored size in pixels (before Exif's orientation)."""

    format: ImageFormat
    width: int
    height: int


def read_header(data: bytes, limits: ImageLimits) -> ImageHeader:
    """Recognise an image and check it against the limits, in about 10 microseconds.

    Raises:
        UnsupportedImageError: Not one of the accepted formats; says what it is instead.
        BrokenImageError: Empty, or the structure around the pixels is damaged.
        ImageTooLargeError: Over a limit.
    """
    found, container = open_container(data, limits)
    return ImageHeader(format=found, width=container.width, height=container.height)


def open_container(data: bytes, limits: ImageLimits) -> tuple[ImageFormat, Container]:
    """What `read_header` does, for those who go on to decode; raises the same."""
    if not data:
        raise BrokenImageError("the image is empty: found 0 bytes")
    if len(data) > limits.max_bytes:
        raise ImageTooLargeError(f"found a file of {len(data)} bytes, expected at most {limits.max_bytes}")
    found = image_format(data)
    if found is None:
        raise UnsupportedImageError(f"found: {describe(data)}; accepted: {', '.join(ACCEPTED)}")
    container = read_container(data, found)
    _check_size(found, container.width, container.height, limits)
    return found, container


def _check_size(found: ImageFormat, width: int, height: int, limits: ImageLimits) -> None:
    picture = f"found a {found} of {width} x {height} pixels"
    if max(width, height) > limits.max_side_pixels:
        raise ImageTooLargeError(f"{picture}, expected sides of at most {limits.max_side_pixels}")
    if width * height > limits.max_pixels:
        raise ImageTooLargeError(f"{picture} ({width * height} in all), expected at most {limits.max_pixels} in all")
