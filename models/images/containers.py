"""The outer structure of the accepted formats: size and orientation, and the parts that the pixels need.

Everything else is cut out before a decoder sees the file: texts, profiles, previews, metadata directories. No pixel
depends on them, and decoders read them in loops of their own: measured with Pillow 11.3, a 15 MB GIF comment takes it
34 seconds, and a TIFF directory of 0.3 MB unfolds to 0.7 GB.

Walking is linear and bounded by `_MOST_STEPS`. Sources: ITU T.81 annex B, PNG (ISO 15948), GIF89a, TIFF 6.0,
RFC 9649 (WebP), the BITMAPINFOHEADER family.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.errors import BrokenImageError, UnsupportedImageError
from models.images.directory import ORIENTATION, exif_orientation, read_directory, sane_orientation
from models.images.signatures import ImageFormat

Part = bytes | memoryview

# Segments, chunks or blocks; an honest 32 MiB PNG with small IDAT chunks has 16 thousand.
_MOST_STEPS = 65_536
# Of a progressive JPEG; encoders write about ten, and each costs a walk over the whole picture.
_MOST_SCANS = 100
# Sum of the directory's out-of-line values in bytes, and pixels of one tile; a decoder holds them all at once.
_MOST_TIFF_VALUE_BYTES = 1 << 20
_MOST_TILE_PIXELS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What the structure says.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        orientation: Exif's 1..8; 1 if absent or senseless.
        parts: Joined, a file with the same pixels and nothing else. Views on the original where possible.
    """

    width: int
    height: int
    orientation: int = 1
    parts: tuple[Part, ...]


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


def _steps(image_format: ImageFormat) -> Iterator[None]:
    """One item a step of a walk; too many are an attack on whoever walks there next."""
    for _ in range(_MOST_STEPS):
        yield
    raise BrokenImageError(f"{image_format}: more than {_MOST_STEPS} parts, expected a picture")


# JPEG

_EOI, _SOS, _APP0, _APP1, _APP14, _APP15, _COM = 0xD9, 0xDA, 0xE0, 0xE1, 0xEE, 0xEF, 0xFE
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_STANDALONE = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_DROPPED = frozenset((*range(_APP0, _APP15 + 1), _COM)) - {_APP0, _APP14}
# Within coded data FF is followed by 00, and restart markers are no segments.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


def _jpeg(data: bytes) -> Container:
    view = memoryview(data)
    parts: list[Part] = [view[:2]]
    frame: tuple[int, int, int] | None = None  # marker, height, width
    orientation: int | None = None
    for marker, start, end in _jpeg_segments(data):
        if marker in _FRAMES:
            if frame is not None:
                raise BrokenImageError("JPEG: found two frame headers, expected one")
            frame = (marker, *struct.unpack_from(">HH", data, start + 5))
        elif marker == _APP1 and orientation is None and data.startswith(b"Exif\x00\x00", start + 4):
            orientation = exif_orientation(data[start + 10 : end])
        elif marker == _SOS and frame and frame[0] in _PROGRESSIVE:
            _check_scans(data, start)
        if marker not in _DROPPED:
            parts.append(view[start:end])
    if frame is None:
        raise BrokenImageError("JPEG: found no frame header, expected one before the first scan")
    return Container(width=frame[2], height=frame[1], orientation=orientation or 1, parts=tuple(parts))


def _check_scans(data: bytes, position: int) -> None:
    """Count the scans from the first one, at `position`, to the end of the picture."""
    scans = 0
    for _ in _steps("JPEG"):
        found = _MARKER.search(data, position)
        if found is None or found[0][1] == _EOI:
            return
        scans += found[0][1] == _SOS
        if scans > _MOST_SCANS:
            raise BrokenImageError(f"JPEG: more than {_MOST_SCANS} scans, expected about ten")
        position = found.start() + 2 + int.from_bytes(data[found.end() : found.end() + 2], "big")


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, start, end) of each segment up to the first scan, whose end is the file's."""
    position = 2
    for _ in _steps("JPEG"):
        position = data.find(b"\xff", position)  # junk between segments is tolerated, as by all decoders
        if position < 0:
            raise IndexError(position)
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _STANDALONE:
            position += 2
        elif marker == _SOS:
            yield marker, position, len(data)
            return
        else:
            end = position + 2 + int(struct.unpack_from(">H", data, position + 2)[0])
            yield marker, position, end
            position = end


# PNG

_PNG_KEPT = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"))


def _png(data: bytes) -> Container:
    view = memoryview(data)
    parts: list[Part] = [view[:8]]
    width, height = struct.unpack_from(">II", data, 16)
    if data[12:16] != b"IHDR":
        raise BrokenImageError(f"PNG: found a first chunk {data[12:16]!r}, expected IHDR")
    orientation = 1
    position = 8
    for _ in _steps("PNG"):
        kind = data[position + 4 : position + 8]
        if len(kind) < 4:
            break  # cut short: what is there is the decoder's to judge
        end = position + 12 + int(struct.unpack_from(">I", data, position)[0])
        if kind in _PNG_KEPT:
            parts.append(view[position:end])
        elif kind == b"eXIf":
            orientation = exif_orientation(data[position + 8 : end - 4])
        if kind == b"IEND":
            break
        position = end
    return Container(width=width, height=height, orientation=orientation, parts=tuple(parts))


# GIF


def _gif(data: bytes) -> Container:
    view = memoryview(data)
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = 13 + _gif_colours_bytes(flags)
    parts: list[Part] = [view[:position]]
    control: Part = b""
    steps = _steps("GIF")
    for _ in steps:
        block = data[position]
        if block == 0x2C:  # the first frame; decoders read no further than its end
            left, top, wide, high = struct.unpack_from("<HHHH", data, position + 1)
            parts += [control, view[position:]]
            return Container(width=max(width, left + wide), height=max(height, top + high), parts=tuple(parts))
        if block != 0x21:
            break
        start, position = position, _gif_extension_end(data, position + 2, steps)
        if data[start + 1] == 0xF9:  # graphic control: the transparent colour
            control = view[start:position]
    raise BrokenImageError("GIF: no frame, expected at least one")


def _gif_colours_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _gif_extension_end(data: bytes, position: int, steps: Iterator[None]) -> int:
    """Where the sub-blocks that begin at `position` end."""
    while data[position]:
        next(steps)
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
    for _ in _steps("WebP"):
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


# TIFF

_WIDTH, _HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323
# Sizes, compression, colours, strips, planes, fax options, predictor, palette, tiles, samples, JPEG tables, YCbCr.
_TIFF_KEPT = frozenset((*range(256, 260), 262, 266, 273, *range(277, 280), 284, 292, 293, 317, 320))
_TIFF_KEPT |= frozenset((*range(322, 326), 338, 339, 347, *range(529, 533)))


def _tiff(data: bytes) -> Container:
    directory = read_directory(data)
    kept = [tag for tag in directory.entries if tag in _TIFF_KEPT]
    values_bytes = sum(map(directory.value_bytes, kept))
    if values_bytes > _MOST_TIFF_VALUE_BYTES:
        raise BrokenImageError(f"TIFF: a directory of {values_bytes} bytes, expected at most {_MOST_TIFF_VALUE_BYTES}")
    tile_pixels = directory.number(_TILE_WIDTH) * directory.number(_TILE_HEIGHT)
    if tile_pixels > _MOST_TILE_PIXELS:
        raise BrokenImageError(f"TIFF: tiles of {tile_pixels} pixels, expected at most {_MOST_TILE_PIXELS}")
    # The same length, so that all offsets stay true; zeros after it say that there is no further directory.
    count = struct.pack(directory.order + "H", len(kept))
    lean = count + b"".join(directory.entries[tag] for tag in kept)
    view = memoryview(data)
    room = min(directory.end + 4, len(data)) - directory.start
    parts = (view[: directory.start], lean[:room].ljust(room, b"\0"), view[directory.start + room :])
    return Container(
        width=directory.number(_WIDTH),
        height=directory.number(_HEIGHT),
        orientation=sane_orientation(directory.number(ORIENTATION)),
        parts=parts,
    )


_READERS: dict[ImageFormat, Callable[[bytes], Container]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "WebP": _webp,
    "BMP": _bmp,
    "GIF": _gif,
    "TIFF": _tiff,
}
