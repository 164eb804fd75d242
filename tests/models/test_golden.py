"""Golden photographs: small differences pass, and each usual mistake of preprocessing is named."""

import json
from pathlib import Path

import numpy as np
import pytest

from models.errors import ConfigError
from models.golden import (
    Golden,
    GoldenClass,
    GoldenPhoto,
    check_row,
    check_scores,
    describe_photo,
    fingerprint,
    read_golden,
    read_photo,
)
from models.images.decode import decode
from models.images.header import ImageLimits
from models.model_directory import read_model
from models.preprocessing import Preprocessing
from models.spec import GoldenSpec
from tests.images.pictures import encoded, exif, jpeg_with_exif, photo
from tests.models.builders import refusal_of, spec_of, write_model

PHOTO = jpeg_with_exif(encoded(photo(300, 200), "JPEG", quality=95), exif(6))
HOW = Preprocessing(
    resize=72, crop=64, filter="bilinear", mean=(123.7, 116.3, 103.5), std=(58.4, 57.1, 57.4), dtype="float32"
)


def row_of(**changes: object):
    """The row of the photograph, as a model with a changed declaration sees it."""
    how = HOW.model_copy(update=changes)
    return decode(PHOTO, how, ImageLimits()), how


def recorded(how: Preprocessing = HOW) -> GoldenPhoto:
    return describe_photo("golden/x.jpg", PHOTO, decode(PHOTO, how, ImageLimits()), how)


def test_a_fingerprint_holds_the_means_of_cells_in_the_unit_of_the_row() -> None:
    row = np.zeros((3, 24, 24), np.float32)
    row[1, 3:6, 21:] = 5

    cells, detail = fingerprint(row, Preprocessing(resize=24, crop=24))

    assert cells.shape == (3, 8, 8)
    assert cells[1, 1, 7] == 5
    assert cells.sum() == 5
    assert detail[0] == 0 < detail[1]


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("crop", [1, 7, 8, 9, 64])
def test_cells_of_every_crop_cover_the_whole_row(crop: int, layout: str) -> None:
    how = Preprocessing(resize=64, crop=crop, layout=layout)
    row = np.random.default_rng(0).random(how.row_shape, np.float32)

    cells, _ = fingerprint(row, how)

    sizes = np.diff([*(np.arange(cells.shape[1]) * crop // cells.shape[1]), crop])
    planes = row if layout == "CHW" else row.transpose(2, 0, 1)
    np.testing.assert_allclose((cells * np.outer(sizes, sizes)).sum((1, 2)), planes.sum((1, 2)), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_the_same_row_and_one_with_the_noise_of_another_decoder_pass(dtype: str) -> None:
    how = Preprocessing(resize=72, crop=64, dtype=dtype)
    row = decode(PHOTO, how, ImageLimits())
    noise = np.random.default_rng(0).integers(-1, 2, row.shape)
    noisy = row + noise / (255 if dtype == "float32" else 1)

    assert check_row(recorded(how), row, how, 2.0) is None
    assert check_row(recorded(how), noisy, how, 2.0) is None


MISTAKES = {
    "colours": (
        {"colour": "BGR"},
        r'channel \d \((red|green|blue)\) .* red and blue are swapped: is colour = "BGR" right',
    ),
    "colours with their means": (
        {"colour": "BGR", "mean": HOW.mean[::-1], "std": HOW.std[::-1]},
        'red and blue are swapped: is colour = "BGR"',
    ),
    "scale": (
        {"mean": (0.0, 0.0, 0.0), "std": (255.0, 255.0, 255.0)},
        r"in another scale: mean = \[123.7, 116.3, 103.5\] and std = \[58.4, 57.1, 57.4\] would fit",
    ),
    "mean": ({"mean": (0.485, 0.456, 0.406)}, r"in another scale: mean = \[123.7, 116.3, 103.5\]"),
    "exif": ({"exif": "ignore"}, 'the picture is turned by 90 degrees: is exif = "ignore" right?'),
    "resize": ({"resize": 80}, "in another size or place: are resize = 80 and crop = 64 right?"),
    "no antialiasing": ({"filter": "nearest"}, r"\(1\.\d\d times as much\): the row is sharper: another resize filter"),
    "filter": ({"filter": "bicubic"}, r"\(1\.\d\d times as much\): the row is sharper: another resize filter"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_named(name: str) -> None:
    changes, sentence = MISTAKES[name]
    row, how = row_of(**changes)

    problem = check_row(recorded(), row, how, 2.0)

    assert problem is not None
    assert problem.startswith("photograph 'golden/x.jpg': channel ")
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(problem)


def test_a_softer_row_is_called_softer() -> None:
    row, how = row_of()

    problem = check_row(recorded(HOW.model_copy(update={"filter": "bicubic"})), row, how, 2.0)

    assert problem is not None
    assert "the row is softer" in problem


def test_another_photograph_has_no_better_reason() -> None:
    other = decode(encoded(photo(300, 200, seed=9)), HOW, ImageLimits())

    problem = check_row(recorded(), other, HOW, 2.0)

    assert problem is not None
    assert problem.endswith("another decoder, or another photograph was recorded?")


def test_a_picture_of_one_colour_is_compared_without_a_scale_that_fits_by_chance() -> None:
    grey, white = (np.full(HOW.row_shape, level, np.float32) for level in (0.5, 1.0))

    problem = check_row(describe_photo("x", b"", grey, HOW), white, HOW, 2.0)

    assert problem is not None
    assert "in another scale" not in problem


def test_the_tolerance_is_in_levels() -> None:
    row, how = row_of()
    shifted = row + np.float32(3 / 58.4)

    assert check_row(recorded(), shifted, how, 3.5) is None
    assert check_row(recorded(), shifted, how, 2.5) is not None


@pytest.mark.parametrize("cells", [((), (), ()), (((1.0,), (1.0, 2.0)),), tuple(((0.0,) * 7,) * 7 for _ in range(3))])
def test_a_fingerprint_of_another_shape_says_to_write_it_anew(cells) -> None:
    row, how = row_of()
    odd = recorded().model_copy(update={"cells": cells})

    problem = check_row(odd, row, how, 2.0)

    assert problem is not None
    assert "the recorded cells are not 3 x 8 x 8; write them anew" in problem


TOP = (GoldenClass(index=2, label="cat", probability=0.7), GoldenClass(index=0, probability=0.2))


@pytest.mark.parametrize(
    ("probabilities", "sentence"),
    [
        ([0.2, 0.1, 0.7], None),
        ([0.24, 0.1, 0.66], None),
        ([0.7, 0.1, 0.2], "class 2 (cat): found a probability of 0.200, expected 0.700 within 0.05: the row is as"),
        ([0.26, 0.04, 0.7], "class 0: found a probability of 0.260, expected 0.200"),
        ([0.2, float("nan"), float("nan")], "class 2 (cat): found a probability of nan"),
        ([0.2, 0.8], "class 2 (cat): found 2 classes: another model?"),
    ],
)
def test_the_most_probable_classes_are_compared_by_their_probabilities(probabilities, sentence: str | None) -> None:
    golden = recorded().model_copy(update={"top": {"1": TOP}})

    problem = check_scores(golden, 1, probabilities, 0.05)

    assert (problem is None) is (sentence is None)
    assert (sentence or "") in (problem or "")


def test_a_version_that_was_not_recorded_is_not_asked() -> None:
    golden = recorded().model_copy(update={"top": {"1": TOP}})

    assert check_scores(golden, 2, [1.0], 0.05) is None


# Files

CONFIG = """\
backend: "fake"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
SIDE = "[preprocessing]\nresize = 72\ncrop = 64\n"


def written(directory: Path, golden: str | None = None) -> GoldenSpec:
    """A model directory with a photograph and its file."""
    (directory / "golden").mkdir(parents=True)
    (directory / "golden" / "x.jpg").write_bytes(PHOTO)
    text = Golden(photos=(recorded(),)).model_dump_json() if golden is None else golden
    (directory / "golden.json").write_text(text)
    return GoldenSpec(directory=directory)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    spec = written(tmp_path / "m")

    golden = read_golden(spec)

    assert golden.photos == (recorded(),)
    assert read_photo(spec, golden.photos[0]) == PHOTO


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "m/golden.json: (top level): found something else, expected invalid JSON"),
        ('{"photos": []}', "m/golden.json: photos: found something else, expected tuple should have at least 1 item"),
        ('{"photo": []}', "m/golden.json: photos: found something else, expected field required"),
        (
            json.dumps({"photos": [{**recorded().model_dump(), "sha256": "x"}]}),
            "m/golden.json: photos.0.sha256: found something else, expected string should match pattern",
        ),
    ],
)
def test_a_damaged_file_is_refused_with_its_field(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_golden(written(tmp_path / "m", text))

    assert str(caught.value).startswith(sentence)
    assert "write it anew with: shoal golden" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.unlink(), "golden/x.jpg: found no such photograph"),
        (
            lambda path: path.write_bytes(b"x"),
            r"golden/x.jpg: found the SHA-256 2d711642b726\.\.\., expected [0-9a-f]{12}\.\.\.; ",
        ),
    ],
    ids=["gone", "other"],
)
def test_a_photograph_that_is_not_the_recorded_one_is_refused(tmp_path: Path, damage, sentence: str) -> None:
    spec = written(tmp_path / "m")
    damage(tmp_path / "m" / "golden" / "x.jpg")

    with pytest.raises(ConfigError, match=sentence):
        read_photo(spec, recorded())


def test_a_photograph_outside_of_the_model_is_not_read(tmp_path: Path) -> None:
    spec = written(tmp_path / "m")
    (tmp_path / "secret").write_bytes(b"x")

    with pytest.raises(ConfigError, match="found no such photograph"):
        read_photo(spec, recorded().model_copy(update={"file": "../secret"}))


# Declarations


def test_a_model_with_a_file_is_compared_without_being_told(tmp_path: Path) -> None:
    directory = write_model(tmp_path, CONFIG, SIDE)
    without = spec_of(directory).golden
    written(directory)

    assert without is None
    assert spec_of(directory).golden == GoldenSpec(directory=directory)


def test_the_table_names_the_file_and_the_tolerances(tmp_path: Path) -> None:
    side = SIDE + '[golden]\nfile = "g.json"\ntolerance_levels = 1\ntolerance_probability = 0.2\n'

    golden = spec_of(write_model(tmp_path, CONFIG, side)).golden

    assert golden == GoldenSpec(
        directory=tmp_path / "m", name="g.json", tolerance_levels=1.0, tolerance_probability=0.2
    )
    with pytest.raises(ConfigError, match=r"m/g.json: golden.file: found no such file, expected one; write it with"):
        read_golden(golden)


def test_a_table_without_preprocessing_has_nothing_to_check(tmp_path: Path) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, CONFIG, "[golden]\n")))

    assert str(problem) == "m/shoal.toml:1: golden: found a table, expected [preprocessing] beside it, which it checks"
