"""An image is recognised by content and held against the limits before anything is decoded."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import BrokenImageError, ImageError, ImageTooLargeError, UnsupportedImageError
from models.images.header import ImageHeader, ImageLimits, read_header
from tests.images.pictures import encoded, exif, jpeg_with_exif, photo, png, png_chunk, tiff

LIMITS = ImageLimits()
PICTURE = photo(40, 30)
FORMATS = {"JPEG": "JPEG", "PNG": "PNG", "WebP": "WEBP", "BMP": "BMP", "GIF": "GIF", "TIFF": "TIFF"}
FILES = {name: encoded(PICTURE, pillow_name) for name, pillow_name in FORMATS.items()} | {
    "JPEG progressive": encoded(PICTURE, "JPEG", progressive=True),
    "JPEG with Exif": jpeg_with_exif(encoded(PICTURE, "JPEG"), exif(6)),
    "JPEG with junk": b"\xff\xd8\xff\xff\x01junk" + encoded(PICTURE, "JPEG")[2:],
    "WebP lossless": encoded(PICTURE, "WEBP", lossless=True),
    "WebP with Exif": encoded(PICTURE, "WEBP", exif=b"Exif\0\0" + exif(6)),
    "GIF animated": encoded(PICTURE, "GIF", save_all=True, append_images=[photo(40, 30, seed=1)]),
}


@pytest.mark.parametrize("name", FILES)
def test_format_and_stored_size_are_read_from_the_content(name):
    assert read_header(FILES[name], LIMITS) == ImageHeader(format=name.split()[0], width=40, height=30)


ACCEPTED = "accepted: JPEG, PNG, WebP, BMP, GIF, TIFF"
OTHERS = {
    "HEIC": b"\0\0\0\x24ftypheic\0\0\0\0mif1heic",
    "AVIF": b"\0\0\0\x20ftypmif1\0\0\0\0mif1avif",
    "MP4 or similar video": b"\0\0\0\x20ftypisom\0\0\2\0isom",
    "SVG": b'\xef\xbb\xbf<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    "HTML": b"\n<!DOCTYPE html><title>502 Bad Gateway</title>",
    "PDF": b"%PDF-1.7",
    "ZIP": b"PK\x03\x04\x14\0",
    "gzip": b"\x1f\x8b\x08\0",
    "JSON text": b'  {"image": "..."}',
    "base64 text of a JPEG": b"/9j/4AAQSkZJRgABAQ",
    "data URL (text)": b"data:image/png;base64,iVBORw0KGgo",
    "BigTIFF": b"II+\0\x08\0\0\0",
    "text beginning 'BMW drives by'": b"BMW drives by",
    "unknown bytes beginning 00 01 02 03": b"\0\1\2\3",
}


@pytest.mark.parametrize("found", OTHERS)
def test_other_content_is_named_beside_what_is_accepted(found):
    with pytest.raises(UnsupportedImageError) as caught:
        read_header(OTHERS[found], LIMITS)

    assert str(caught.value) == f"found: {found}; {ACCEPTED}"


def test_an_empty_body_says_so():
    with pytest.raises(BrokenImageError, match="the image is empty: found 0 bytes"):
        read_header(b"", LIMITS)


def flooded_jpeg():
    """A small JPEG whose frame header is patched to 64250 x 64250."""
    data = encoded(photo(260, 260), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + b"\xfa\xfa\xfa\xfa" + data[frame + 9 :]


def flooded_png():
    """A true PNG of 19000 x 19000 grey pixels of one level, a few kilobytes long."""
    row = bytes(1 + 19_000 // 8)
    compressor = zlib.compressobj(1)
    content = b"".join(compressor.compress(row * 1000) for _ in range(19)) + compressor.flush()
    return png(19_000, 19_000, png_chunk(b"IDAT", content), depth=1)


FLOODS = {
    "JPEG patched": (flooded_jpeg(), "found a JPEG of 64250 x 64250 pixels, expected sides of at most 16384"),
    "PNG true": (flooded_png(), "found a PNG of 19000 x 19000 pixels, expected sides of at most 16384"),
    "PNG area": (
        png(12_000, 12_000),
        r"found a PNG of 12000 x 12000 pixels \(144000000 in all\), expected at most 64000000",
    ),
    "WebP canvas": (
        b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(4) + b"\xff" * 6,
        "found a WebP of 16777216 x 16777216 pixels",
    ),
    "BMP": (b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 1 << 30, -(1 << 30), 1, 24, 0), "1073741824 x 1073741824"),
    "GIF frame larger than its screen": (
        b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0" + struct.pack("<HH", 60_000, 60_000) + b"\0",
        "found a GIF of 60000 x 60000 pixels",
    ),
    "TIFF": (tiff([(256, 4, 1, 1 << 31), (257, 4, 1, 1 << 31)]), "found a TIFF of 2147483648 x 2147483648 pixels"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_pixel_flood_is_refused_by_its_header(name):
    data, sentence = FLOODS[name]

    with pytest.raises(ImageTooLargeError, match=sentence):
        read_header(data, LIMITS)


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"max_bytes": len(FILES["PNG"]) - 1}, rf"file of {len(FILES['PNG'])} bytes, expected at most"),
        ({"max_side_pixels": 39}, "40 x 30 pixels, expected sides of at most 39"),
        ({"max_pixels": 1199}, r"40 x 30 pixels \(1200 in all\), expected at most 1199 in all"),
    ],
    ids=["bytes", "side", "pixels"],
)
def test_each_limit_is_the_last_value_that_passes(limits, sentence):
    read_header(FILES["PNG"], ImageLimits(**{name: value + 1 for name, value in limits.items()}))

    with pytest.raises(ImageTooLargeError, match=sentence):
        read_header(FILES["PNG"], ImageLimits(**limits))


@pytest.mark.parametrize("name", ["max_bytes", "max_side_pixels", "max_pixels"])
def test_a_limit_below_one_is_a_mistake(name):
    with pytest.raises(ValueError, match=f"{name}: found 0, expected at least 1"):
        ImageLimits(**{name: 0})


BROKEN = {
    "JPEG cut before its frame": (FILES["JPEG"][:30], "JPEG: the header is cut short in a file of 30 bytes"),
    "JPEG without a frame": (b"\xff\xd8\xff\xda" + bytes(10), "found no frame header"),
    "JPEG with two frames": (
        FILES["JPEG"].replace(b"\xff\xc0", FILES["JPEG"][FILES["JPEG"].index(b"\xff\xc0") :][:19] + b"\xff\xc0", 1),
        "found two frame headers",
    ),
    "JPEG of many scans": (
        FILES["JPEG progressive"][:-2] + (b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 100) + b"\xff\xd9",
        "more than 100 scans",
    ),
    "JPEG of many segments": (b"\xff\xd8" + b"\xff\xe1\0\2" * 70_000, "more than 65536 parts"),
    "PNG without IHDR": (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IDAT", bytes(20)), "first chunk b'IDAT', expected IHDR"),
    "PNG of no width": (png(0, 1), "found a size of 0 x 1 pixels, expected at least 1 x 1"),
    "PNG of many chunks": (png(1, 1, png_chunk(b"teXt", b"") * 70_000), "more than 65536 parts"),
    "GIF without a frame": (b"GIF89a\1\0\1\0\0\0\0;", "GIF: no frame, expected at least one"),
    "GIF of many blocks": (b"GIF89a\1\0\1\0\0\0\0!\xfe" + b"\1a" * 70_000, "more than 65536 parts"),
    "WebP of an unknown kind": (b"RIFF\x16\0\0\0WEBPABCD" + bytes(20), "first chunk b'ABCD'"),
    "TIFF with a directory past its end": (b"II*\0\xff\0\0\0", "cut short"),
    "TIFF with a directory in its header": (b"II*\0\0\0\0\0" + bytes(90), "cut short"),
    "TIFF with a huge directory": (
        tiff([(256, 3, 1, 1), (257, 3, 1, 1), (273, 4, 1 << 30, 8)]),
        "directory of 4294967300 bytes, expected at most",
    ),
    "TIFF with huge tiles": (
        tiff([(256, 3, 1, 1), (257, 3, 1, 1), (322, 4, 1, 1 << 16), (323, 4, 1, 1 << 16)]),
        "tiles of 4294967296 pixels",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_senseless_structure_is_refused_with_a_sentence(name):
    data, sentence = BROKEN[name]

    with pytest.raises(BrokenImageError, match=sentence):
        read_header(data, LIMITS)


def test_a_bitmap_with_run_lengths_is_refused():
    bitmap = b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 8, 8, 1, 8, 1)

    with pytest.raises(UnsupportedImageError, match="found: BMP with run lengths"):
        read_header(bitmap, LIMITS)


@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_damage_anywhere_gives_a_header_or_an_image_error(name, data):
    file = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 8))):
        file[data.draw(st.integers(0, min(len(file) - 1, 200)))] = data.draw(st.integers(0, 255))
    damaged = bytes(file[: data.draw(st.integers(0, len(file)))])

    try:
        header = read_header(damaged, LIMITS)
    except ImageError:
        return
    assert max(header.width, header.height) <= LIMITS.max_side_pixels
