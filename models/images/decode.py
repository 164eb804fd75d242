"""Encoded images to rows of a model's input, as a model version declares it.

Pillow sees only what `models.images.containers` lets through, and does one resize straight from the crop's box in the
stored picture. A large JPEG is decoded at a fraction of its size that leaves at least twice the pixels needed: on
average less than half a level of 255 away from the exact answer, in a third of the time.
"""

import contextlib
import io
import logging
import struct
import traceback
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from models.errors import BrokenImageError, ImageError, UnsupportedImageError
from models.images.geometry import Box, stored_crop_box
from models.images.header import ImageLimits, open_container
from models.images.levels import in_levels
from models.images.signatures import ImageFormat
from models.preprocessing import Preprocessing

Row = NDArray[np.float32] | NDArray[np.uint8]

_log = logging.getLogger(__name__)

# The limits of `ImageLimits` are checked before Pillow is asked; its own, fixed one would only warn or refuse sooner.
# This is the only place that changes Pillow's global state.
Image.MAX_IMAGE_PIXELS = None

# Called directly: Image.open would add a search, and answer damage with "cannot identify image file".
_PLUGINS: dict[ImageFormat, Callable[[io.BytesIO], Image.Image]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNKNOWN_KIND = "unknown pixel mode"  # of Pillow's TIFF reader: samples, bits and photometric that it has no mode for

# What Pillow's decoders raise for damaged files, warnings turned into errors included. MemoryError is not among them.
_DECODER_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, RuntimeError,
    struct.error, zlib.error, Image.DecompressionBombError, Warning,
)  # fmt: skip


def decode(data: bytes, how: Preprocessing, limits: ImageLimits) -> Row:
    """Decode one image into one row, C-contiguous and owned by the caller.

    The first frame counts; transparency shows ``how.background``; deep grey keeps its upper 8 bits; colour profiles are
    ignored.

    Args:
        data: One encoded file.
        how: The model version's declaration.
        limits: Checked before anything is allocated.

    Returns:
        Shape ``how.row_shape``, of ``how.dtype``.

    Raises:
        UnsupportedImageError: Not one of the accepted formats, or pixels without a defined brightness range.
        BrokenImageError: Damaged, or a picture that the decoder fails on in a way that nobody has foreseen: whatever a
            picture does, those beside it in the same request are answered.
        ImageTooLargeError: Over a limit.
    """
    try:
        return _decode(data, how, limits)
    except (ImageError, MemoryError):
        raise
    except Exception as error:
        _log.exception("a picture of %d bytes cannot be decoded", len(data))
        raise BrokenImageError(f"a picture of {len(data)} bytes: cannot be decoded: {_place(error)}") from error


def _decode(data: bytes, how: Preprocessing, limits: ImageLimits) -> Row:
    found, container = open_container(data, limits)
    orientation = container.orientation if how.exif == "apply" else 1
    box = stored_crop_box(container.width, container.height, orientation, resize=how.resize, crop=how.crop)
    with _sentences(f"{found} of {container.width} x {container.height} pixels"):
        image = _PLUGINS[found](io.BytesIO(b"".join(container.parts)))
        if image.size != (container.width, container.height):
            raise ValueError(f"the content has {image.size[0]} x {image.size[1]}")
        if how.filter != "nearest" and container.can_halve:
            box = _shrink_on_load(image, box, 2 * how.resize)
        image.load()
        picture = in_levels(image, container, how.background).resize((how.crop, how.crop), _FILTERS[how.filter], box)
    if orientation > 1:
        picture = picture.transpose(_UPRIGHT[orientation])
    return _row(picture if picture.mode == "RGB" else picture.convert("RGB"), how)


@contextlib.contextmanager
def _sentences(picture: str) -> Iterator[None]:
    """Turns the decoders' exceptions into ours; MemoryError and our own pass."""
    try:
        yield
    except _DECODER_ERRORS as error:
        if str(error) == _UNKNOWN_KIND:
            raise UnsupportedImageError(f"found: {picture} of a kind that the decoder does not know") from error
        raise BrokenImageError(f"{picture}: damaged: {error}") from error


def _place(error: Exception) -> str:
    """What was raised, and where."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {innermost.name}, line {innermost.lineno}"


def _shrink_on_load(image: Image.Image, box: Box, side_pixels: int) -> Box:
    """Let the decoder halve the picture while both sides stay at `side_pixels`; returns the box in what it gives."""
    width = image.size[0]
    drafted = image.draft(None, (side_pixels, side_pixels))
    if drafted is None:
        return box
    factor = width / drafted[1][2]  # 1, 2, 4 or 8: the right edge is not rounded to whole pixels
    left, top, right, bottom = box
    return left / factor, top / factor, right / factor, bottom / factor


def _row(picture: Image.Image, how: Preprocessing) -> Row:
    if how.dtype == "uint8":
        levels = np.asarray(picture)[:, :, :: 1 if how.colour == "RGB" else -1]
        return np.array(levels if how.layout == "HWC" else levels.transpose(2, 0, 1), order="C")
    planes = _normalised_planes(picture, how)
    return planes if how.layout == "CHW" else np.ascontiguousarray(planes.transpose(1, 2, 0))


def _normalised_planes(picture: Image.Image, how: Preprocessing) -> NDArray[np.float32]:
    """``(level - mean) / std``, [3, height, width].

    A plane at a time stays in the cache and is contiguous throughout: half the time of transposing an array.
    """
    width, height = picture.size
    planes = np.empty((3, height, width), np.float32)
    for plane, channel, mean, std in zip(planes.reshape(3, -1), how.colour, how.mean, how.std, strict=True):
        levels = np.frombuffer(picture.tobytes("raw", channel), np.uint8)
        np.subtract(levels, np.float32(mean), out=plane)
        np.multiply(plane, np.float32(1 / std), out=plane)
    return planes
