"""The structure of a JPEG (ITU T.81 annex B)."""

import re
import struct
from collections.abc import Iterator

from models.errors import BrokenImageError, UnsupportedImageError
from models.images.directory import exif_orientation
from models.images.structure import Container, Part, steps

# Of a progressive JPEG; encoders write about ten, and each costs a walk over the whole picture.
_MOST_SCANS = 100

_EOI, _SOS, _APP0, _APP1, _APP14, _APP15, _COM = 0xD9, 0xDA, 0xE0, 0xE1, 0xEE, 0xEF, 0xFE
_LOSSLESS = 0xC3
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
# Of several resolutions, or of codings that no decoder in use knows (ITU T.81 table B.1).
_REFUSED = frozenset((0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF))
_STANDALONE = frozenset((0x00, 0x01, *range(0xD0, 0xD9)))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_DROPPED = frozenset((*range(_APP0, _APP15 + 1), _COM)) - {_APP0, _APP14}
# Within coded data FF is followed by 00, and restart markers are no segments.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


def read_jpeg(data: bytes) -> Container:
    """See `models.images.containers.read_container`."""
    view = memoryview(data)
    parts: list[Part] = [view[:2]]
    frame: tuple[int, int, int] | None = None  # marker, height, width
    orientation: int | None = None
    for marker, start, end in _jpeg_segments(data):
        if marker in _FRAMES:
            if frame is not None:
                raise BrokenImageError("JPEG: found two frame headers, expected one")
            frame = _frame(data, marker, start)
        elif marker == _APP1 and orientation is None and data.startswith(b"Exif\x00\x00", start + 4):
            orientation = exif_orientation(data[start + 10 : end])
        elif marker == _SOS and frame and frame[0] in _PROGRESSIVE:
            _check_scans(data, start)
        if marker not in _DROPPED:
            parts.append(view[start:end])
    if frame is None:
        raise BrokenImageError("JPEG: found no frame header, expected one before the first scan")
    marker, height, width = frame
    return Container(
        width=width,
        height=height,
        orientation=orientation or 1,
        parts=tuple(parts),
        can_halve=marker != _LOSSLESS,  # which has no blocks to take less of
    )


def _frame(data: bytes, marker: int, start: int) -> tuple[int, int, int]:
    """Marker, height and width of the frame header at `start`."""
    bits, height, width, components = struct.unpack_from(">BHHB", data, start + 4)
    if marker in _REFUSED:
        raise UnsupportedImageError(
            f"found: JPEG of the process SOF{marker - 0xC0}; accepted: baseline, extended, progressive, lossless"
        )
    if bits != 8:
        raise UnsupportedImageError(f"found: JPEG with {bits} bits a sample; accepted: JPEG with 8")
    if components not in (1, 3, 4):
        raise UnsupportedImageError(
            f"found: JPEG with {components} components; accepted: 1 (grey), 3 (YCbCr, RGB) or 4 (CMYK, YCCK)"
        )
    return marker, height, width


def _check_scans(data: bytes, position: int) -> None:
    """Count the scans from the first one, at `position`, to the end of the picture."""
    scans = 0
    for _ in steps("JPEG"):
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
    for _ in steps("JPEG"):
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
