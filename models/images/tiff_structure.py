"""The structure of a TIFF (TIFF 6.0)."""

import struct

from models.errors import BrokenImageError
from models.images.directory import ORIENTATION, Directory, read_directory, sane_orientation
from models.images.structure import Container

# Sum of the directory's out-of-line values in bytes, and pixels of one tile; a decoder holds them all at once.
_MOST_TIFF_VALUE_BYTES = 1 << 20
_MOST_TILE_PIXELS = 1 << 24

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _SAMPLES = 256, 257, 258, 262, 277
_TILE_WIDTH, _TILE_HEIGHT, _SAMPLE_FORMAT = 322, 323, 339
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _UNSIGNED = 0, 1, (0, 1)  # no sample format at all means unsigned
# Sizes, compression, colours, strips, planes, fax options, predictor, palette, tiles, samples, JPEG tables, YCbCr.
_TIFF_KEPT = frozenset((*range(256, 260), 262, 266, 273, *range(277, 280), 284, 292, 293, 317, 320))
_TIFF_KEPT |= frozenset((*range(322, 326), 338, 339, 347, *range(529, 533)))


def read_tiff(data: bytes) -> Container:
    """See `models.images.containers.read_container`."""
    directory = read_directory(data)
    kept = [tag for tag in directory.entries if tag in _TIFF_KEPT]
    values_bytes = sum(map(directory.value_bytes, kept))
    if values_bytes > _MOST_TIFF_VALUE_BYTES:
        raise BrokenImageError(f"TIFF: a directory of {values_bytes} bytes, expected at most {_MOST_TIFF_VALUE_BYTES}")
    tile_pixels = directory.number(_TILE_WIDTH) * directory.number(_TILE_HEIGHT)
    if tile_pixels > _MOST_TILE_PIXELS:
        raise BrokenImageError(f"TIFF: tiles of {tile_pixels} pixels, expected at most {_MOST_TILE_PIXELS}")
    grey_bits, white_is_zero = _deep_grey(directory)
    entries = dict(directory.entries)
    if white_is_zero:  # Pillow knows it in one byte order only, and forgets to invert there
        entries[_PHOTOMETRIC] = struct.pack(directory.order + "HHIHxx", _PHOTOMETRIC, 3, 1, _BLACK_IS_ZERO)
    # The same length, so that all offsets stay true; zeros after it say that there is no further directory.
    count = struct.pack(directory.order + "H", len(kept))
    lean = count + b"".join(entries[tag] for tag in kept)
    view = memoryview(data)
    room = min(directory.end + 4, len(data)) - directory.start
    parts = (view[: directory.start], lean[:room].ljust(room, b"\0"), view[directory.start + room :])
    return Container(
        width=directory.number(_WIDTH),
        height=directory.number(_HEIGHT),
        orientation=sane_orientation(directory.number(ORIENTATION)),
        parts=parts,
        grey_bits=grey_bits,
        white_is_zero=white_is_zero,
    )


def _deep_grey(directory: Directory) -> tuple[int, bool]:
    """Bits of unsigned grey deeper than 8 bits or 0, and whether it is a negative."""
    bits, photometric = directory.number(_BITS), directory.number(_PHOTOMETRIC)
    is_grey = photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO) and directory.number(_SAMPLES) <= 1
    if not is_grey or bits not in (12, 16) or directory.number(_SAMPLE_FORMAT) not in _UNSIGNED:
        return 0, False
    return bits, photometric == _WHITE_IS_ZERO and _PHOTOMETRIC in directory.entries
