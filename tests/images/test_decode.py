"""Photographs become the rows that torchvision would make of them; nothing that clients send does any harm."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from models.errors import BrokenImageError, ImageError
from models.images.decode import decode
from models.images.header import ImageLimits
from models.preprocessing import Preprocessing
from tests.images.pictures import encoded, exif, jpeg_with_exif, photo, png, png_chunk, tiff

LIMITS = ImageLimits()
LEVELS = Preprocessing(filter="bicubic", dtype="uint8", layout="HWC")
SMALL = Preprocessing(resize=32, crop=28, filter="bicubic", dtype="uint8", layout="HWC")
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def two_steps(image, how):
    """torchvision's Resize and CenterCrop on a PIL picture, as its source writes them."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    new_long = int(how.resize * long / short)
    size = (how.resize, new_long) if width <= height else (new_long, how.resize)
    left, top = round((size[0] - how.crop) / 2.0), round((size[1] - how.crop) / 2.0)
    resized = image.convert("RGB").resize(size, FILTERS[how.filter])
    return np.asarray(resized.crop((left, top, left + how.crop, top + how.crop)))


def assert_levels_close(found, expected, *, most, mean):
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= most
    assert difference.mean() <= mean


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (300, 1200), (225, 256)], ids=str)
def test_one_resize_equals_torchvisions_two_steps(size):
    image = photo(*size)

    row = decode(encoded(image), LEVELS, LIMITS)

    # Pillow picks the cheaper order of its two passes, which rounds differently; half a pixel would be a mean of 4.
    assert_levels_close(row, two_steps(image, LEVELS), most=2, mean=0.2)


def test_the_usual_photograph_is_exact_to_a_hundredth_of_a_level():
    image = photo(500, 375)

    row = decode(encoded(image, "JPEG", quality=95), LEVELS, LIMITS)

    expected = two_steps(Image.open(io.BytesIO(encoded(image, "JPEG", quality=95))), LEVELS)
    assert_levels_close(row, expected, most=1, mean=0.01)


@settings(max_examples=60)
@given(
    width=st.integers(1, 120),
    height=st.integers(1, 120),
    resize=st.integers(1, 64),
    data=st.data(),
    name=st.sampled_from(["bilinear", "bicubic", "lanczos"]),
)
def test_geometry_is_torchvisions_at_every_size(width, height, resize, data, name):
    how = SMALL.model_copy(update={"resize": resize, "crop": data.draw(st.integers(1, resize)), "filter": name})
    image = photo(width, height)

    row = decode(encoded(image), how, LIMITS)

    assert_levels_close(row, two_steps(image, how), most=3, mean=0.5)


def test_a_large_jpeg_is_shrunk_while_decoding_and_stays_close():
    image = photo(1601, 1203)
    data = encoded(image, "JPEG", quality=95)

    row = decode(data, SMALL, LIMITS)

    assert_levels_close(row, two_steps(Image.open(io.BytesIO(data)), SMALL), most=8, mean=0.6)


def test_nearest_pixels_of_a_large_jpeg_are_pixels_of_it():
    image = photo(645, 487)
    data = encoded(image, "JPEG", quality=95)
    how = SMALL.model_copy(update={"filter": "nearest"})

    row = decode(data, how, LIMITS)

    assert_levels_close(row, two_steps(Image.open(io.BytesIO(data)), how), most=0, mean=0)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("colour", ["RGB", "BGR"])
def test_levels_are_normalised_per_channel_of_the_declared_order(layout, colour):
    how = Preprocessing(resize=32, crop=28, colour=colour, layout=layout, mean=(1, 2, 3), std=(10, -20, 40))
    image = photo(50, 40)

    row = decode(encoded(image), how, LIMITS)

    levels = two_steps(image, how)[:, :, :: 1 if colour == "RGB" else -1].astype(np.float64)
    expected = (levels - [1, 2, 3]) / [10, -20, 40]
    np.testing.assert_allclose(row, expected if layout == "HWC" else expected.transpose(2, 0, 1), atol=0.11)
    assert row.flags.c_contiguous
    assert row.flags.writeable
    assert (row.dtype, row.shape) == (np.float32, how.row_shape)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("colour", ["RGB", "BGR"])
def test_uint8_rows_hold_the_levels(layout, colour):
    how = SMALL.model_copy(update={"layout": layout, "colour": colour})
    image = photo(32, 32)

    row = decode(encoded(image), how, LIMITS)

    expected = np.asarray(image)[2:30, 2:30, :: 1 if colour == "RGB" else -1]
    np.testing.assert_array_equal(row, expected if layout == "HWC" else expected.transpose(2, 0, 1))
    assert row.flags.c_contiguous
    assert row.flags.writeable


STORED_AS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def turned_files(upright, orientation):
    """The picture as a camera held differently stores it, in every format that can say so."""
    stored = upright if orientation == 1 else upright.transpose(STORED_AS[orientation])
    jpeg = encoded(stored, "JPEG", quality=100, subsampling=0)
    content = zlib.compress(b"".join(b"\0" + row.tobytes() for row in np.asarray(stored)))
    chunks = (png_chunk(b"eXIf", exif(orientation)), png_chunk(b"IDAT", content))
    big_endian = encoded(stored, "WEBP", lossless=True, exif=b"Exif\0\0" + exif(orientation, order=">"))
    return {
        "JPEG": jpeg_with_exif(jpeg, exif(orientation)),
        "PNG": png(*stored.size, *chunks, colour_type=2),
        "WebP": big_endian,
        "TIFF": encoded(stored, "TIFF", tiffinfo={274: orientation}),
    }


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(61, 40), (40, 61)], ids=str)
def test_a_turned_photograph_gives_the_upright_row(size, orientation):
    files = turned_files(photo(*size), orientation)

    for data in files.values():
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        assert upright.size == size
        assert_levels_close(decode(data, SMALL, LIMITS), two_steps(upright, SMALL), most=2, mean=0.2)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WebP", "TIFF"])
def test_orientation_is_ignored_where_the_model_says_so(name):
    upright = photo(61, 40)
    how = SMALL.model_copy(update={"exif": "ignore"})

    row = decode(turned_files(upright, 6)[name], how, LIMITS)

    assert_levels_close(row, two_steps(upright.transpose(STORED_AS[6]), SMALL), most=6, mean=1)


@pytest.mark.parametrize("block", [exif(0), exif(9), exif(6)[:12], b"II*\0\xff\xff\xff\xff", b"junk"], ids=range(5))
def test_a_damaged_exif_block_is_no_reason_to_refuse_a_picture(block):
    data = encoded(photo(61, 40), "JPEG")

    row = decode(jpeg_with_exif(data, block), SMALL, LIMITS)

    np.testing.assert_array_equal(row, decode(data, SMALL, LIMITS))


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (1, 16384), (223, 3)], ids=str)
@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_odd_sizes_give_a_row(size, image_format):
    data = encoded(Image.new("RGB", size, (200, 100, 50)), image_format, quality=100, subsampling=0)

    row = decode(data, LEVELS, LIMITS)

    assert_levels_close(row, np.full((224, 224, 3), (200, 100, 50)), most=2, mean=2)


def test_a_grey_pixel_gives_a_row():
    row = decode(encoded(Image.new("L", (1, 1), 77)), LEVELS, LIMITS)

    assert (row == 77).all()


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_sixteen_bit_grey_keeps_its_upper_byte(image_format):
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    how = Preprocessing(resize=256, crop=256, filter="nearest", dtype="uint8", layout="HWC")

    row = decode(encoded(Image.fromarray(ramp), image_format), how, LIMITS)

    np.testing.assert_array_equal(row[:, :, 0], ramp >> 8)


def test_sixteen_bit_grey_may_be_big_endian():
    ramp = np.arange(0, 65536, 64, dtype=">u2").reshape(32, 32)
    entries = [(256, 3, 1, 32), (257, 3, 1, 32), (258, 3, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(273, 4, 1, 122), (277, 3, 1, 1), (278, 3, 1, 32), (279, 4, 1, 2048)]
    how = Preprocessing(resize=32, crop=32, filter="nearest", dtype="uint8", layout="HWC")

    row = decode(tiff(entries, order=">", pixels=ramp.tobytes()), how, LIMITS)

    np.testing.assert_array_equal(row[:, :, 1], ramp >> 8)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_file_cut_in_the_middle_is_broken(image_format):
    data = encoded(photo(120, 90), image_format)

    with pytest.raises(BrokenImageError, match=r"of 120 x 90 pixels: damaged: |the header is cut short"):
        decode(data[: len(data) // 2], SMALL, LIMITS)


def test_a_png_with_a_wrong_checksum_is_broken():
    data = encoded(photo(40, 30))
    middle = len(data) // 2

    with pytest.raises(BrokenImageError, match="PNG of 40 x 30 pixels: damaged: "):
        decode(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], SMALL, LIMITS)


def test_palette_indices_without_a_palette_are_broken():
    data = png(8, 8, png_chunk(b"IDAT", zlib.compress(bytes(9 * 8))), colour_type=3)

    with pytest.raises(BrokenImageError, match=r"^PNG: found palette indices without a palette, expected a PLTE chunk"):
        decode(data, SMALL, LIMITS)


def test_what_nobody_has_foreseen_is_that_pictures_error_and_is_logged_with_its_place(caplog):
    # No picture is known that does this; a division by zero stands for one.
    how = SMALL.model_copy(update={"dtype": "float32", "std": (0.0, 0.0, 0.0)})

    with pytest.raises(
        BrokenImageError, match=r"^a picture of \d+ bytes: cannot be decoded: ZeroDivisionError in _norm"
    ):
        decode(encoded(photo(40, 30)), how, LIMITS)

    assert "Traceback" in caplog.text


def test_no_pixel_is_allocated_for_a_flood_within_the_container():
    # The frame of this WebP is larger than the canvas that its header admits to.
    frame = encoded(photo(300, 300), "WEBP")[12:]
    data = b"RIFF" + struct.pack("<I", 22 + len(frame)) + b"WEBPVP8X\x0a\0\0\0" + bytes(4) + b"\x07\0\0\x07\0\0" + frame

    with pytest.raises(BrokenImageError, match="WebP of 8 x 8 pixels: damaged"):
        decode(data, SMALL, LIMITS)


def text_bomb():
    """A PNG with texts that would unfold to 60 MB."""
    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000), 9))
    content = zlib.compress(b"\0" + bytes([90] * 8))
    return png(8, 1, text * 60, png_chunk(b"IDAT", content))


def exif_bomb():
    """A JPEG with 2,700 Exif entries that all point to the same 30 KB: 80 MB for who reads them."""
    block = tiff([(1000 + tag, 7, 30_000, 32_500) for tag in range(2_700)], pixels=bytes(30_000))
    data = encoded(Image.new("L", (8, 1), 90), "JPEG", quality=100)
    return jpeg_with_exif(data[:2] + data[20:], block)  # without JFIF, decoders look for the resolution in Exif


def comment_bomb():
    """A GIF with a comment of 60,000 blocks."""
    data = encoded(Image.new("L", (8, 1), 90), "GIF")
    image = data.index(b",")
    return data[:image] + b"!\xfe" + (b"\xff" + bytes(255)) * 60_000 + b"\0" + data[image:]


def directory_bomb():
    """A TIFF with 2,000 foreign tags that all point to the same 200 KB."""
    entries = [(256, 3, 1, 8), (257, 3, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    entries += [(277, 3, 1, 1), (278, 3, 1, 1), (279, 4, 1, 8)]
    entries += [(40_000 + tag, 7, 200_000, 24_200) for tag in range(2_000)]
    end = 8 + 2 + 12 * len(entries) + 4
    entries[5] = (273, 4, 1, end)
    return tiff(entries, pixels=bytes([90] * 8) + bytes(300_000))


@pytest.mark.parametrize("bomb", [text_bomb, exif_bomb, comment_bomb, directory_bomb])
def test_what_is_not_pixels_is_never_unfolded(bomb):
    data = bomb()
    tracemalloc.start()

    row = decode(data, SMALL, LIMITS)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_levels_close(row, np.full((28, 28, 3), 90), most=1, mean=1)
    assert peak_bytes < len(data) + 4_000_000


SOURCES = {
    name: encoded(photo(40, 30), name, **options)
    for name, options in {
        "JPEG": {},
        "PNG": {},
        "WEBP": {},
        "GIF": {},
        "BMP": {},
        "TIFF": {"compression": "tiff_lzw"},
    }.items()
}


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@given(name=st.sampled_from(sorted(SOURCES)), data=st.data())
def test_damage_anywhere_gives_a_row_or_an_image_error(name, data):
    file = bytearray(SOURCES[name])
    for _ in range(data.draw(st.integers(1, 8))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))

    try:
        row = decode(bytes(file), SMALL, ImageLimits(max_pixels=1_000_000))
    except ImageError:
        return
    assert row.shape == SMALL.row_shape
