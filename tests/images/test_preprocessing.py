"""A declaration that no picture could satisfy is refused where it is written."""

import math

import pytest
from pydantic import ValidationError

from models.preprocessing import Preprocessing


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"crop": 257}, "found crop 257 larger than resize 256"),
        ({"std": (1, 0, 1)}, r"found std \[1.0, 0.0, 1.0\], expected no zero"),
        ({"mean": (math.nan, 0, 0)}, "finite number"),
        ({"std": (math.inf, 1, 1)}, "finite number"),
        ({"dtype": "uint8", "mean": (127, 127, 127)}, "found mean or std beside dtype uint8"),
        ({"dtype": "uint8", "std": (1, 1, 1)}, "found mean or std beside dtype uint8"),
        ({"sharpen": True}, "Extra inputs are not permitted"),
        ({"background": (0, 0, 256)}, "less than or equal to 255"),
        ({"background": (0, 0)}, "Field required"),
    ],
    ids=["crop", "std", "nan", "infinity", "uint8 mean", "uint8 std", "unknown", "background", "short background"],
)
def test_impossible_declarations_are_refused(fields, sentence):
    with pytest.raises(ValidationError, match=sentence):
        Preprocessing(**fields)


@pytest.mark.parametrize(("layout", "shape"), [("CHW", (3, 224, 224)), ("HWC", (224, 224, 3))])
def test_the_row_shape_follows_the_layout(layout, shape):
    assert Preprocessing(layout=layout).row_shape == shape
