"""The geometry of one resize against torchvision's two steps (resize, then centre crop)."""

import numpy as np
import pytest

from models.images.decode import decode
from models.images.header import ImageLimits
from models.preprocessing import Preprocessing
from tests.images.pictures import encoded, photo

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")
pytest.importorskip("torchvision", reason="needs torchvision (make test-torch)")

pytestmark = pytest.mark.torch

SIZES = [
    *(pytest.param(size, 0.01, id=f"{size[0]}x{size[1]}") for size in [(500, 375), (375, 500), (512, 512), (641, 427)]),
    pytest.param((4000, 3000), 0.01, id="12-megapixel"),
    pytest.param((200, 150), 0.01, id="enlarged"),
    pytest.param((257, 300), 0.2, id="hardly-scaled"),  # Pillow's two passes round in another order
]


def torchvision_row(image, how):
    from torchvision.transforms import v2

    mode = {"bilinear": v2.InterpolationMode.BILINEAR, "bicubic": v2.InterpolationMode.BICUBIC}[how.filter]
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    resized = v2.functional.resize(pixels, [how.resize], interpolation=mode, antialias=True)
    return v2.functional.center_crop(resized, [how.crop, how.crop]).numpy()


@pytest.mark.parametrize(("size", "mean_levels"), SIZES)
@pytest.mark.parametrize("resize_filter", ["bilinear", "bicubic"])
def test_one_resize_gives_torchvisions_pixels(size, mean_levels, resize_filter):
    image = photo(*size)
    how = Preprocessing(resize=256, crop=224, filter=resize_filter, dtype="uint8")

    ours = decode(encoded(image), how, ImageLimits())

    difference = np.abs(ours.astype(int) - torchvision_row(image, how).astype(int))
    assert difference.mean() < mean_levels
    assert difference.max() <= 2
