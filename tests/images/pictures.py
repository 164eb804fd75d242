"""Synthetic pictures and encoded files for the image tests."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def photo(width, height, seed=0):
    """A smooth picture with structure at all scales, so that a shift of half a pixel shows."""
    noise = np.random.default_rng(seed).integers(0, 256, (max(2, height // 8), max(2, width // 8), 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image, image_format="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, *chunks, colour_type=0, depth=8):
    """A PNG of an IHDR and `chunks`, with a true checksum each."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + png_chunk(b"IEND", b"")


def tiff(entries, *, order="<", pixels=b""):
    """A TIFF of one directory with the (tag, type, count, value) `entries`, then `pixels`."""
    # SHORT (3) stands left in its four bytes, whatever the byte order; bytes are several that fit.
    directory = b"".join(
        struct.pack(
            order + ("HHI4s" if isinstance(value, bytes) else "HHIHxx" if kind == 3 else "HHII"),
            tag,
            kind,
            count,
            value,
        )
        for tag, kind, count, value in entries
    )
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "IH", 8, len(entries)) + directory + bytes(4) + pixels


def exif(orientation, order="<"):
    """An Exif block (without its ``Exif`` prefix) that holds an orientation."""
    return tiff([(274, 3, 1, orientation)], order=order)


def jpeg_with_exif(data, block):
    """A JPEG with an Exif segment after its first marker."""
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block + data[2:]
