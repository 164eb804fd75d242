"""The first directory of a TIFF file, and of an Exif block, which is built like one (TIFF 6.0, Exif 2.32)."""

import struct
from dataclasses import dataclass

ORIENTATION = 274
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}


@dataclass(frozen=True, slots=True)
class Directory:
    """The first image file directory: byte order, where it is, and its raw 12-byte entries by tag."""

    order: str
    start: int
    end: int
    entries: dict[int, bytes]

    def number(self, tag: int) -> int:
        """The first value of an entry of type BYTE, SHORT or LONG, or 0."""
        entry = self.entries.get(tag, bytes(12))
        code = {1: "B", 3: "H", 4: "I"}.get(struct.unpack_from(self.order + "H", entry, 2)[0])
        return int(struct.unpack_from(self.order + code, entry, 8)[0]) if code else 0

    def value_bytes(self, tag: int) -> int:
        """Size of all values of an entry."""
        kind, count = struct.unpack_from(self.order + "HI", self.entries[tag], 2)
        return int(count) * _TYPE_BYTES.get(kind, 1)


def read_directory(data: bytes) -> Directory:
    """The directory of `data`, which begins with either TIFF signature; past its end: struct.error or IndexError."""
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, start)
    end = start + 2 + 12 * count
    if start < 8 or end > len(data):
        raise IndexError(start)
    raw = [data[at : at + 12] for at in range(start + 2, end, 12)]
    return Directory(order, start, end, {struct.unpack_from(order + "H", entry)[0]: entry for entry in raw})


def exif_orientation(block: bytes) -> int:
    """Orientation 1..8 in an Exif block; 1 if there is none. Damage is no error: the pixels do not depend on it."""
    tiff = block.removeprefix(b"Exif\x00\x00")
    if tiff[:4] not in (b"II*\x00", b"MM\x00*"):
        return 1
    try:
        return sane_orientation(read_directory(tiff).number(ORIENTATION))
    except (struct.error, IndexError):
        return 1


def sane_orientation(orientation: int) -> int:
    """1 for values that mean nothing."""
    return orientation if 1 <= orientation <= 8 else 1
