"""The outer structure of the accepted formats: size and orientation, and the parts that the pixels need.

Everything else is cut out before a decoder sees the file: texts, profiles, previews, metadata directories. No pixel
depends on them, and decoders read them in loops of their own: measured with Pillow 11.3, a 15 MB GIF comment takes it
34 seconds, and a TIFF directory of 0.3 MB unfolds to 0.7 GB.

Walking is linear and bounded by `models.images.structure.steps`. Sources: ITU T.81 annex B, PNG (ISO 15948), GIF89a,
TIFF 6.0, RFC 9649 (WebP), the BITMAPINFOHEADER family.
"""

import struct
from collections.abc import Callable, Iterator, Sequence

from models.errors import BrokenImageError, UnsupportedImageError
from models.images.directory import exif_orientation
from models.images.jpeg_structure import read_jpeg
from models.images.signatures import ImageFormat
from models.images.structure import Container, Part, steps
from models.images.tiff_structure import read_tiff


def read_container(data: bytes, image_format: ImageFormat) -> Container:
    """Read the structure of `data`, which begins with `image_format`'s signature.

    Raises:
        BrokenImageError: The structure is cut short, contradicts itself, has no picture, or is absurdly fragmented.
        UnsupportedImageError: A variant that is refused (BMP with run lengths).
    """
    try:
        container = _READERS[image_format](data)
    except (struct.error, IndexError) as error:
        raise BrokenImageError(f"{image_format}: the header is cut short in a file of {len(data)} bytes") from error
    if container.width < 1 or container.height < 1:
        raise BrokenImageError(
            f"{image_format}: found a size of {container.width} x {container.height} pixels, expected at least 1 x 1"
        )
    return container


# PNG

_PNG_KEPT = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
_GREY, _RGB, _PALETTE = 0, 2, 3  # colour types
_DEPTHS = (1, 2, 4, 8, 16)


def _png(data: bytes) -> Container:
    view = memoryview(data)
    parts: list[Part] = [view[:8]]
    width, height = struct.unpack_from(">II", data, 16)
    if data[12:16] != b"IHDR":
        raise BrokenImageError(f"PNG: found a first chunk {data[12:16]!r}, expected IHDR")
    depth, colour = data[24], data[25]
    kept = _PNG_KEPT | {b"tRNS"} if colour == _PALETTE else _PNG_KEPT
    transparent: tuple[int, ...] = ()
    orientation = 1
    position = 8
    for _ in steps("PNG"):
        kind = data[position + 4 : position + 8]
        if len(kind) < 4:
            break  # cut short: what is there is the decoder's to judge
        end = position + 12 + int(struct.unpack_from(">I", data, position)[0])
        if kind in kept:
            parts.append(view[position:end])
        elif kind == b"tRNS":
            transparent = _png_transparent(data, position + 8)
        elif kind == b"eXIf":
            orientation = exif_orientation(data[position + 8 : end - 4])
        if kind == b"IEND":
            break
        position = end
    _check_palette(colour, parts)
    return Container(
        width=width,
        height=height,
        orientation=orientation,
        parts=tuple(parts),
        grey_bits=depth if colour == _GREY and depth > 8 else 0,
        transparent=transparent,
    )


def _check_palette(colour: int, parts: Sequence[Part]) -> None:
    if colour == _PALETTE and not any(part[4:8] == b"PLTE" for part in parts):
        raise BrokenImageError("PNG: found palette indices without a palette, expected a PLTE chunk")


def _png_transparent(data: bytes, start: int) -> tuple[int, ...]:
    """The transparent colour of a tRNS chunk's content at `start`, in the scale of `Container.transparent`.

    Pillow compares it with pixels that it has scaled already, so it would find it in 1 and 8 bits only.
    """
    depth, colour = data[24], data[25]
    if depth not in _DEPTHS or colour not in (_GREY, _RGB):
        return ()
    values: tuple[int, ...] = struct.unpack_from(">H" if colour == _GREY else ">HHH", data, start)
    if depth < 16:
        most = (1 << depth) - 1
        return tuple((value & most) * 255 // most for value in values)
    # RGB pixels of 16 bits are at hand with their upper bytes only.
    return values if colour == _GREY else tuple(value >> 8 for value in values)


# GIF


def _gif(data: bytes) -> Container:
    view = memoryview(data)
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = 13 + _gif_colours_bytes(flags)
    parts: list[Part] = [view[:position]]
    control: Part = b""
    walk = steps("GIF")
    for _ in walk:
        block = data[position]
        if block == 0x2C:  # the first frame; decoders read no further than its end
            left, top, wide, high = struct.unpack_from("<HHHH", data, position + 1)
            parts += [control, view[position:]]
            width, height = max(width, left + wide), max(height, top + high)
            frame = (left, top, left + wide, top + high)
            is_whole = frame == (0, 0, width, height)
            return Container(width=width, height=height, parts=tuple(parts), frame=None if is_whole else frame)
        if block != 0x21:
            break
        start, position = position, _gif_extension_end(data, position + 2, walk)
        if data[start + 1] == 0xF9:  # graphic control: the transparent colour
            control = view[start:position]
    raise BrokenImageError("GIF: no frame, expected at least one")


def _gif_colours_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _gif_extension_end(data: bytes, position: int, walk: Iterator[None]) -> int:
    """Where the sub-blocks that begin at `position` end."""
    while data[position]:
        next(walk)
        position += 1 + data[position]
    return position + 1


# WebP


def _webp(data: bytes) -> Container:
    kind = data[12:16]
    orientation = 1
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        orientation = _webp_orientation(data) if data[20] & 0x08 else 1
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise BrokenImageError(f"WebP: found a first chunk {kind!r}, expected VP8, VP8L or VP8X")
    return Container(width=width, height=height, orientation=orientation, parts=(data,))


def _webp_orientation(data: bytes) -> int:
    position = 12
    for _ in steps("WebP"):
        kind = data[position : position + 4]
        if len(kind) < 4:
            return 1
        (length,) = struct.unpack_from("<I", data, position + 4)
        if kind == b"EXIF":
            return exif_orientation(data[position + 8 : position + 8 + length])
        position += 8 + length + length % 2
    return 1


# BMP


def _bmp(data: bytes) -> Container:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return Container(width=width, height=height, parts=(data,))
    width, height, _, _, compression = struct.unpack_from("<iiHHI", data, 18)
    if compression in (1, 2, 4, 5):
        raise UnsupportedImageError(
            "found: BMP with run lengths or an embedded file; accepted: BMP without compression"
        )
    return Container(width=width, height=abs(height), parts=(data,))


_READERS: dict[ImageFormat, Callable[[bytes], Container]] = {
    "JPEG": read_jpeg,
    "PNG": _png,
    "WebP": _webp,
    "BMP": _bmp,
    "GIF": _gif,
    "TIFF": read_tiff,
}
