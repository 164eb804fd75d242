"""One scene in every kind of file and pixel, each with the RGB picture that it should look like on white."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tests.images.pictures import encoded, png, png_chunk, tiff

FILES = Path(__file__).parent / "files"
WHITE = (255, 255, 255)


@dataclass(frozen=True)
class Specimen:
    """A file, its RGB twin, and how many levels of the row may differ (the mean never by more than 3)."""

    data: bytes
    twin: Image.Image
    most: int = 2


def scene():
    """48 x 32: red rises to the right, green downwards."""
    x, y = np.meshgrid(np.arange(48), np.arange(32))
    return Image.fromarray(np.stack([40 + 4 * x, 30 + 6 * y, np.full_like(x, 120)], 2).astype(np.uint8))


SCENE = scene()
LEVELS = np.asarray(SCENE)
GREY = SCENE.convert("L")
ALPHA = np.broadcast_to(np.clip(np.arange(48) * 8 - 64, 0, 255), (32, 48)).astype(np.uint8)  # from 0 to 255


def on_white(levels, alpha):
    levels = np.asarray(levels, float)
    share = np.asarray(alpha, float)[:, :, None] / 255
    return Image.fromarray(np.rint(levels * share + 255 * (1 - share)).astype(np.uint8))


def with_alpha(mode):
    picture = SCENE.convert(mode.removesuffix("A"))
    picture.putalpha(Image.fromarray(ALPHA))
    return picture


def rgb(grey):
    return Image.merge("RGB", [grey] * 3)


# JPEG


def without_adobe(data):
    """A JPEG without its APP14 segment."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


def with_transform(data, transform):
    """The colour transform that the Adobe segment speaks of: 0 none, 1 YCbCr, 2 YCCK."""
    at = data.index(b"Adobe") + 11
    return data[:at] + bytes([transform]) + data[at + 1 :]


def ycck():
    """As Photoshop writes it: the negative of CMYK, of which the first three turned into YCbCr as if they were RGB."""
    # libjpeg's way back is CMY = 255 - RGB(YCbCr), so what is taken for RGB are the inks themselves.
    inks = Image.fromarray(255 - LEVELS).convert("YCbCr")
    # Pillow stores the negative of what it is given, without a transform.
    planes = [plane.point(lambda level: 255 - level) for plane in inks.split()]
    stored = Image.merge("CMYK", [*planes, Image.new("L", SCENE.size, 0)])
    return with_transform(encoded(stored, "JPEG", quality=100, subsampling=0), 2)


def rgb_jpeg():
    return encoded(SCENE, "JPEG", quality=100, subsampling=0, keep_rgb=True)


def jpeg(**options):
    return encoded(SCENE, "JPEG", **{"quality": 98, "subsampling": 0, **options})


JPEGS = {
    "JPEG 4:4:4": Specimen(jpeg(), SCENE, 4),
    "JPEG 4:2:2": Specimen(jpeg(subsampling=1), SCENE, 8),
    "JPEG 4:2:0": Specimen(jpeg(subsampling=2), SCENE, 8),
    "JPEG 4:1:1": Specimen((FILES / "chroma-411.jpg").read_bytes(), SCENE, 12),
    "JPEG 4:4:0": Specimen((FILES / "chroma-440.jpg").read_bytes(), SCENE, 12),
    "JPEG 4:1:0": Specimen((FILES / "chroma-410.jpg").read_bytes(), SCENE, 12),
    "JPEG arithmetic": Specimen((FILES / "arithmetic.jpg").read_bytes(), SCENE, 6),
    "JPEG lossless": Specimen((FILES / "lossless.jpg").read_bytes(), SCENE),
    "JPEG progressive": Specimen(jpeg(progressive=True), SCENE, 4),
    "JPEG with restarts": Specimen(jpeg(restart_marker_blocks=2), SCENE, 4),
    "JPEG with a tail": Specimen(jpeg() + b"twelve bytes", SCENE, 4),
    "JPEG grey": Specimen(encoded(GREY, "JPEG", quality=98), rgb(GREY), 4),
    "JPEG RGB": Specimen(rgb_jpeg(), SCENE, 4),
    "JPEG CMYK of Adobe": Specimen(encoded(SCENE.convert("CMYK"), "JPEG", quality=98), SCENE, 6),
    "JPEG CMYK without a marker": Specimen(without_adobe(encoded(SCENE.convert("CMYK"), "JPEG", quality=98)), SCENE, 6),
    "JPEG YCCK of Adobe": Specimen(ycck(), SCENE, 6),
}

# PNG


def png_of(samples, *chunks, colour_type, depth=8):
    """A PNG of (height, width, samples) numbers of `depth` bits, row by row without a filter."""
    height, width = samples.shape[:2]
    rows = samples.reshape(height, -1)
    if depth == 16:
        packed = [row.astype(">u2").tobytes() for row in rows]
    elif depth == 8:
        packed = [row.astype(np.uint8).tobytes() for row in rows]
    else:
        bits = np.unpackbits(rows.astype(np.uint8)[:, :, None], axis=2)[:, :, -depth:]
        packed = [np.packbits(row).tobytes() for row in bits.reshape(height, -1)]
    content = png_chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in packed)))
    return png(width, height, *chunks, content, colour_type=colour_type, depth=depth)


# Adam7: first column and row, then the steps, of each pass.
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def interlaced():
    passes = [LEVELS[top::down, left::right] for left, top, right, down in ADAM7]
    content = b"".join(b"\0" + row.tobytes() for part in passes for row in part)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 48, 32, 8, 2, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(content)) + png_chunk(b"IEND", b"")


def deep(levels):
    """Numbers of 16 bits whose upper bytes are the levels and whose lower bytes are noise."""
    noise = np.random.default_rng(5).integers(0, 256, np.shape(levels), dtype=np.uint16)
    return np.asarray(levels).astype(np.uint16) << 8 | noise


def keyed(levels, key):
    """The alpha of a picture in which one colour is transparent."""
    return np.where((np.atleast_3d(levels) == key).all(2), 0, 255)


FOUR = np.asarray(GREY) >> 4
FOUR_RGB = np.stack([FOUR * 17] * 3, 2)
GREY_RGB = np.asarray(rgb(GREY))
INDEXED = SCENE.quantize(64)
INDEXED_RGB = np.asarray(INDEXED.convert("RGB"))
INDEX = int(np.asarray(INDEXED)[16, 24])
TABLE = bytes(range(0, 256, 4))
BITS = GREY.convert("1", dither=Image.Dither.NONE)
COLOUR = tuple(int(level) for level in LEVELS[16, 24])
DEEP_GREY, DEEP_RGB = deep(GREY), deep(LEVELS)

PNGS = {
    "PNG RGB": Specimen(encoded(SCENE), SCENE),
    "PNG interlaced": Specimen(interlaced(), SCENE),
    "PNG with a tail": Specimen(encoded(SCENE) + b"twelve bytes", SCENE),
    "PNG animated": Specimen(encoded(SCENE, save_all=True, append_images=[rgb(GREY)]), SCENE),
    "PNG one transparent colour": Specimen(
        encoded(SCENE, transparency=COLOUR), on_white(LEVELS, keyed(LEVELS, COLOUR))
    ),
    "PNG RGBA": Specimen(encoded(with_alpha("RGBA")), on_white(LEVELS, ALPHA)),
    "PNG grey": Specimen(encoded(GREY), rgb(GREY)),
    "PNG grey and alpha": Specimen(encoded(with_alpha("LA")), on_white(GREY_RGB, ALPHA)),
    "PNG one transparent grey": Specimen(encoded(GREY, transparency=120), on_white(GREY_RGB, keyed(GREY, 120))),
    "PNG grey of 4 bits": Specimen(png_of(FOUR, colour_type=0, depth=4), Image.fromarray(FOUR_RGB)),
    "PNG one transparent grey of 4 bits": Specimen(
        png_of(FOUR, png_chunk(b"tRNS", b"\0\7"), colour_type=0, depth=4), on_white(FOUR_RGB, keyed(FOUR, 7))
    ),
    "PNG grey of 2 bits": Specimen(
        png_of(FOUR >> 2, colour_type=0, depth=2), Image.fromarray(np.stack([(FOUR >> 2) * 85] * 3, 2))
    ),
    "PNG one bit": Specimen(encoded(BITS), BITS.convert("RGB")),
    "PNG one bit, black transparent": Specimen(
        png_of(np.asarray(BITS), png_chunk(b"tRNS", b"\0\0"), colour_type=0, depth=1),
        Image.new("RGB", SCENE.size, WHITE),
    ),
    "PNG palette": Specimen(encoded(INDEXED), Image.fromarray(INDEXED_RGB)),
    "PNG palette, one transparent": Specimen(
        encoded(INDEXED, transparency=INDEX), on_white(INDEXED_RGB, keyed(INDEXED, INDEX))
    ),
    "PNG palette with alpha table": Specimen(
        encoded(INDEXED, transparency=TABLE),
        on_white(INDEXED_RGB, np.frombuffer(TABLE, np.uint8)[np.asarray(INDEXED)]),
    ),
    "PNG grey of 16 bits": Specimen(png_of(DEEP_GREY, colour_type=0, depth=16), rgb(GREY)),
    "PNG one transparent grey of 16 bits": Specimen(
        png_of(DEEP_GREY & 0xFF00, png_chunk(b"tRNS", b"\x78\0"), colour_type=0, depth=16),
        on_white(GREY_RGB, keyed(GREY, 0x78)),
    ),
    "PNG grey and alpha of 16 bits": Specimen(
        png_of(np.stack([DEEP_GREY, deep(ALPHA)], 2), colour_type=4, depth=16), on_white(GREY_RGB, ALPHA)
    ),
    "PNG RGB of 16 bits": Specimen(png_of(DEEP_RGB, colour_type=2, depth=16), SCENE),
    "PNG one transparent colour of 16 bits": Specimen(
        png_of(
            DEEP_RGB & 0xFF00,
            png_chunk(b"tRNS", struct.pack(">HHH", *(level << 8 for level in COLOUR))),
            colour_type=2,
            depth=16,
        ),
        on_white(LEVELS, keyed(LEVELS, COLOUR)),
    ),
    "PNG RGBA of 16 bits": Specimen(
        png_of(np.concatenate([DEEP_RGB, deep(ALPHA)[:, :, None]], 2), colour_type=6, depth=16),
        on_white(LEVELS, ALPHA),
    ),
}

# GIF


def offset_gif(**options):
    """A first frame that covers the right half of the picture only."""
    data = bytearray(encoded(INDEXED.crop((24, 0, 48, 32)), "GIF", **options))
    struct.pack_into("<H", data, 6, 48)
    descriptor = data.index(b",", 13 + 3 * 64)
    struct.pack_into("<H", data, descriptor + 1, 24)
    return bytes(data)


def right_half(picture):
    canvas = Image.new("RGB", SCENE.size, WHITE)
    canvas.paste(picture.crop((24, 0, 48, 32)), (24, 0))
    return canvas


INDEXED_ON_WHITE = on_white(INDEXED_RGB, keyed(INDEXED, INDEX))
GIFS = {
    "GIF": Specimen(encoded(INDEXED, "GIF", interlace=0), Image.fromarray(INDEXED_RGB)),
    "GIF interlaced": Specimen(encoded(INDEXED, "GIF", interlace=1), Image.fromarray(INDEXED_RGB)),
    "GIF transparent": Specimen(encoded(INDEXED, "GIF", transparency=INDEX), INDEXED_ON_WHITE),
    "GIF grey, transparent": Specimen(encoded(GREY, "GIF", transparency=120), on_white(GREY_RGB, keyed(GREY, 120))),
    "GIF animated": Specimen(
        encoded(INDEXED, "GIF", save_all=True, append_images=[rgb(GREY)]), Image.fromarray(INDEXED_RGB)
    ),
    "GIF with a small first frame": Specimen(offset_gif(), right_half(Image.fromarray(INDEXED_RGB))),
    "GIF with a small, transparent first frame": Specimen(offset_gif(transparency=INDEX), right_half(INDEXED_ON_WHITE)),
}

# TIFF


def tiff_of(samples, photometric, *, bits=8, order="<", extra=None):
    """An uncompressed TIFF of one strip of (height, width[, samples]) numbers."""
    height, width = samples.shape[:2]
    count = samples.shape[2] if samples.ndim == 3 else 1
    number = {8: "u1", 16: f"{order}u2"}.get(bits)
    if number is None:  # 12 bits: two numbers in three bytes, the upper bits first
        pairs = samples.reshape(-1, 2).astype(np.uint32)
        packed = (pairs[:, 0] << 12 | pairs[:, 1]).astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
    else:
        packed = samples.astype(number).tobytes()
    more = [] if extra is None else [(338, 3, 1, extra)]
    start = 8 + 2 + 12 * (9 + len(more)) + 4
    depths = struct.pack(f"{order}{count}H", *[bits] * count)
    in_line = depths.ljust(4, b"\0") if count <= 2 else struct.pack(f"{order}I", start)
    entries = [(256, 3, 1, width), (257, 3, 1, height)]
    entries += [
        (258, 3, count, in_line),
        (259, 3, 1, 1),
        (262, 3, 1, photometric),
        (273, 4, 1, start + len(depths)),
        (277, 3, 1, count),
    ]
    entries += [(278, 3, 1, height), (279, 4, 1, len(packed)), *more]
    return tiff(entries, order=order, pixels=depths + packed)


TIFFS = {
    "TIFF RGB, LZW": Specimen(encoded(SCENE, "TIFF", compression="tiff_lzw"), SCENE),
    "TIFF of a JPEG": Specimen(encoded(SCENE, "TIFF", compression="jpeg", quality=98), SCENE, 8),
    "TIFF RGB of 16 bits": Specimen(tiff_of(DEEP_RGB, 2, bits=16), SCENE),
    "TIFF grey of 16 bits": Specimen(tiff_of(DEEP_GREY, 1, bits=16), rgb(GREY)),
    "TIFF grey of 16 bits, big-endian": Specimen(tiff_of(DEEP_GREY, 1, bits=16, order=">"), rgb(GREY)),
    "TIFF grey of 16 bits, white is zero": Specimen(tiff_of(0xFFFF - DEEP_GREY, 0, bits=16), rgb(GREY)),
    "TIFF grey of 16 bits, white is zero, big-endian": Specimen(
        tiff_of(0xFFFF - DEEP_GREY, 0, bits=16, order=">"), rgb(GREY)
    ),
    "TIFF grey of 16 bits, deflated": Specimen(
        encoded(Image.fromarray(DEEP_GREY), "TIFF", compression="tiff_adobe_deflate"), rgb(GREY)
    ),
    "TIFF grey of 12 bits": Specimen(tiff_of(DEEP_GREY >> 4, 1, bits=12), rgb(GREY)),
    "TIFF grey, white is zero": Specimen(tiff_of(255 - np.asarray(GREY), 0), rgb(GREY)),
    "TIFF grey and alpha": Specimen(encoded(with_alpha("LA"), "TIFF"), on_white(GREY_RGB, ALPHA)),
    "TIFF grey and alpha, premultiplied": Specimen(
        tiff_of(np.stack([np.asarray(GREY) * (ALPHA / 255), ALPHA], 2), 1, extra=1), on_white(GREY_RGB, ALPHA), 4
    ),
    "TIFF RGBA": Specimen(encoded(with_alpha("RGBA"), "TIFF"), on_white(LEVELS, ALPHA)),
    "TIFF RGBA, premultiplied": Specimen(
        tiff_of(np.concatenate([LEVELS * (ALPHA[:, :, None] / 255), ALPHA[:, :, None]], 2), 2, extra=1),
        on_white(LEVELS, ALPHA),
        4,
    ),
    "TIFF palette": Specimen(encoded(INDEXED, "TIFF"), Image.fromarray(INDEXED_RGB)),
    "TIFF CMYK": Specimen(encoded(SCENE.convert("CMYK"), "TIFF"), SCENE),
    "TIFF fax": Specimen(encoded(BITS, "TIFF", compression="group4"), BITS.convert("RGB")),
}

OTHERS = {
    "WebP": Specimen(encoded(SCENE, "WEBP", quality=98), SCENE, 8),
    "WebP with alpha": Specimen(
        encoded(with_alpha("RGBA"), "WEBP", lossless=True, exact=True), on_white(LEVELS, ALPHA)
    ),
    "WebP animated": Specimen(encoded(SCENE, "WEBP", save_all=True, append_images=[rgb(GREY)], lossless=True), SCENE),
    "BMP": Specimen(encoded(SCENE, "BMP"), SCENE),
    "BMP palette": Specimen(encoded(INDEXED, "BMP"), Image.fromarray(INDEXED_RGB)),
    "BMP one bit": Specimen(encoded(BITS, "BMP"), BITS.convert("RGB")),
    "BMP of 32 bits": Specimen(encoded(SCENE.convert("RGBA"), "BMP"), SCENE),
}
ZOO = {**JPEGS, **PNGS, **GIFS, **TIFFS, **OTHERS}
