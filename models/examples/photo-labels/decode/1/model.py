"""Photographs to tensors: upright, 256 pixels on the shorter side, the 224 x 224 pixels in the middle."""

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

RESIZE, CROP = 256, 224
MEAN, STD = 127.0, 128.0


class Model:
    """Takes the bytes of image files, shape (rows, 1); gives float32 of shape (rows, 3, 224, 224)."""

    def execute(self, inputs):
        return {"pixels": np.stack([to_row(data) for data in inputs["photo"][:, 0]])}


def to_row(data):
    try:
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise ValueError(f"found {len(data)} bytes that are no photograph, expected a file like a JPEG") from None
    image.draft("RGB", (2 * RESIZE, 2 * RESIZE))  # a large JPEG need not be decoded in full
    image = ImageOps.exif_transpose(image).convert("RGB")
    factor = RESIZE / min(image.size)
    width, height = (max(RESIZE, int(side * factor)) for side in image.size)
    left, top = round((width - CROP) / 2), round((height - CROP) / 2)
    image = image.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + CROP, top + CROP))
    levels = np.asarray(image, np.float32).transpose(2, 0, 1)
    return (levels - MEAN) / STD
