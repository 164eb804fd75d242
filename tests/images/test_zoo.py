"""Every kind of pixel gives the row of its RGB twin; what cannot be decoded is refused with its format and kind."""

import numpy as np
import pytest
from PIL import Image

from models.errors import BrokenImageError, ImageError, UnsupportedImageError
from models.images.decode import decode
from models.images.header import ImageLimits
from models.preprocessing import Preprocessing
from tests.images.pictures import encoded, png_chunk, tiff
from tests.images.zoo import DEEP_GREY, FILES, LEVELS, SCENE, ZOO, png_of, tiff_of

LIMITS = ImageLimits()
STORED = Preprocessing(resize=32, crop=32, filter="nearest", dtype="uint8", layout="HWC")
SMALL = STORED.model_copy(update={"resize": 20, "crop": 16, "filter": "bicubic"})

TINY = STORED.model_copy(update={"resize": 8, "crop": 8, "filter": "bilinear"})


def row_of_twin(twin, how):
    return decode(encoded(twin), how, LIMITS).astype(int)


@pytest.mark.parametrize("name", ZOO)
def test_every_pixel_is_that_of_the_rgb_twin(name):
    specimen = ZOO[name]

    row = decode(specimen.data, STORED, LIMITS)

    expected = row_of_twin(specimen.twin, STORED)
    assert np.abs(row - expected).max() <= specimen.most
    assert np.abs(row.mean((0, 1)) - expected.mean((0, 1))).max() <= min(3, specimen.most)


@pytest.mark.parametrize("name", ZOO)
def test_a_resized_picture_is_that_of_the_rgb_twin(name):
    specimen = ZOO[name]

    row = decode(specimen.data, SMALL, LIMITS)

    assert np.abs(row - row_of_twin(specimen.twin, SMALL)).max() <= max(3, specimen.most)


@pytest.mark.parametrize("name", ZOO)
def test_a_picture_much_larger_than_the_row_is_that_of_the_rgb_twin(name):
    specimen = ZOO[name]

    row = decode(specimen.data, TINY, LIMITS)

    assert np.abs(row - row_of_twin(specimen.twin, TINY)).max() <= max(4, specimen.most)


@pytest.mark.parametrize("background", [(0, 0, 0), (255, 0, 128)], ids=str)
@pytest.mark.parametrize("name", [name for name in ZOO if "alpha" in name or "RGBA" in name or "transparent" in name])
def test_transparency_shows_the_declared_background(name, background):
    how = STORED.model_copy(update={"background": background})
    white = decode(ZOO[name].data, STORED, LIMITS).astype(int)

    row = decode(ZOO[name].data, how, LIMITS).astype(int)

    # What is seen of white is (1 - alpha) * 255: equal in all channels, so the two rows differ by what they show of it.
    share = (white - row) / np.maximum(255 - np.array(background), 1)
    np.testing.assert_allclose(share[:, :, 1], share[:, :, np.argmin(background)], atol=0.02)
    assert share.max() > 0.98 or "small" in name


def test_the_background_is_red_green_blue_for_a_model_that_wants_blue_first():
    how = STORED.model_copy(update={"background": (10, 20, 30), "colour": "BGR"})

    row = decode(encoded(Image.new("RGBA", (40, 40), (1, 2, 3, 0))), how, LIMITS)

    assert (row == (30, 20, 10)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_colours_below_transparent_pixels_bleed_nowhere(mode):
    picture = Image.new("RGBA", (64, 64), (255, 0, 0, 0)).convert(mode)
    picture.paste(Image.new("RGBA", (20, 64), (90, 90, 90, 255)).convert(mode), (20, 0))

    row = decode(encoded(picture), SMALL, LIMITS).astype(int)

    assert np.ptp(row, axis=2).max() == 0
    assert row.min() >= 80


def test_sixteen_bit_ramps_have_all_levels_in_both_byte_orders():
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(1, 256).repeat(256, 0)
    how = STORED.model_copy(update={"resize": 256, "crop": 256})
    files = [png_of(ramp, colour_type=0, depth=16), tiff_of(ramp, 1, bits=16), tiff_of(ramp, 1, bits=16, order=">")]

    rows = [decode(data, how, LIMITS)[:, :, 0] for data in files]

    for row in rows:
        np.testing.assert_array_equal(row[0], np.arange(256))


def patched_frame(offset, value):
    """A JPEG with another byte in its frame header."""
    data = encoded(SCENE, "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + offset] + bytes([value]) + data[frame + offset + 1 :]


def signed(samples):
    """A grey TIFF of signed numbers of 16 bits."""
    entries = [(256, 3, 1, 48), (257, 3, 1, 32), (258, 3, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 134)]
    entries += [(277, 3, 1, 1), (278, 3, 1, 32), (279, 4, 1, samples.nbytes), (339, 3, 1, 2)]
    return tiff(entries, pixels=samples.tobytes())


REFUSED = {
    "JPEG with 12 bits a sample": (FILES / "twelve-bits.jpg").read_bytes(),
    "JPEG of the process SOF5": patched_frame(1, 0xC5),
    "JPEG with 2 components": patched_frame(9, 2),
    "TIFF with pixels of mode I;": encoded(Image.new("I", (8, 8)), "TIFF"),
    "TIFF with pixels of mode I; ": signed(DEEP_GREY),
    "TIFF with pixels of mode F;": encoded(Image.new("F", (8, 8)), "TIFF"),
    "TIFF with pixels of mode LAB;": encoded(Image.new("LAB", (8, 8)), "TIFF"),
}


@pytest.mark.parametrize("found", REFUSED)
def test_what_has_no_defined_levels_is_refused_by_format_and_kind(found):
    with pytest.raises(UnsupportedImageError, match=rf"^found: {found.strip()}.* ?accepted: "):
        decode(REFUSED[found], SMALL, LIMITS)


def test_pixels_that_the_decoder_has_no_mode_for_are_refused():
    with pytest.raises(
        UnsupportedImageError, match="found: TIFF of 48 x 32 pixels of a kind that the decoder does not"
    ):
        decode(tiff_of(np.stack([DEEP_GREY] * 2, 2), 1, bits=16, extra=2), SMALL, LIMITS)


def test_a_transparent_colour_that_is_cut_short_is_broken():
    data = png_of(LEVELS, png_chunk(b"tRNS", b""), colour_type=2)
    cut = data[: data.index(b"tRNS") + 4]

    with pytest.raises(BrokenImageError, match="the header is cut short"):
        decode(cut, SMALL, LIMITS)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("name", ZOO)
def test_no_damage_to_any_kind_gives_another_error(name):
    data = ZOO[name].data
    for position in np.random.default_rng(3).integers(0, len(data), 40):
        damaged = data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]
        try:
            row = decode(damaged, SMALL, ImageLimits(max_pixels=1_000_000))
        except ImageError:
            continue
        assert row.shape == SMALL.row_shape
