"""What variants are tried on."""

from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExportError
from backends.export.samples import mirrored, random_rows, read_photos
from models.preprocessing import Preprocessing
from tests.backends.export.builders import save_photos

HOW = Preprocessing(resize=20, crop=16)


def test_photos_are_read_in_order_from_subfolders_too(tmp_path: Path) -> None:
    save_photos(tmp_path / "b", 2)
    save_photos(tmp_path / "a", 1)

    photos = read_photos(tmp_path, HOW)

    assert [file.relative_to(tmp_path).as_posix() for file in photos.files] == ["a/000.png", "b/000.png", "b/001.png"]
    assert photos.rows.shape == (3, 3, 16, 16)
    assert photos.description == "3 photos"


def test_other_files_are_left_out_and_counted(tmp_path: Path) -> None:
    save_photos(tmp_path, 2)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden").write_text("not even looked at")

    assert read_photos(tmp_path, HOW).description == "2 photos (1 files left out, which cannot be decoded)"


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")

    with pytest.raises(ExportError, match="found 1 files and no picture among them"):
        read_photos(tmp_path, HOW)


@pytest.mark.parametrize(("layout", "shape"), [("CHW", (16, 3, 16, 16)), ("HWC", (16, 16, 16, 3))])
def test_random_rows_have_the_range_of_photos(layout: str, shape: tuple[int, ...]) -> None:
    how = Preprocessing.model_validate(
        {"resize": 16, "crop": 16, "layout": layout, "mean": (0, 100, 200), "std": (1, 2, 4)}
    )

    rows = random_rows(how).rows

    assert (rows.shape, rows.dtype) == (shape, np.float32)
    channels = rows if layout == "CHW" else rows.transpose(0, 3, 1, 2)
    assert [(channel.min(), channel.max()) for channel in channels.swapaxes(0, 1)] == [
        (0, 255),
        (-50, 77.5),
        (-50, 13.75),
    ]


def test_random_rows_of_levels_are_levels() -> None:
    assert random_rows(Preprocessing(resize=16, crop=16, dtype="uint8")).rows.dtype == np.uint8


@pytest.mark.parametrize(("layout", "axis"), [("CHW", 3), ("HWC", 2)])
def test_mirroring_is_from_left_to_right(layout: str, axis: int) -> None:
    how = Preprocessing.model_validate({"resize": 16, "crop": 16, "layout": layout})
    rows = random_rows(how, 2).rows

    both = mirrored(rows, how)

    assert np.array_equal(both, np.concatenate([rows, np.flip(rows, axis)]))
