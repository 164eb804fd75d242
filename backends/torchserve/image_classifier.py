"""TorchServe's `ImageClassifier`: the five most probable classes of a picture."""

import io
from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from torchvision import transforms
from typing_extensions import override

from backends.torchserve.utilities import PredictionException, map_class_to_label
from backends.torchserve.vision_handler import VisionHandler, told_by_status
from models.errors import BrokenImageError, ImageError, ImageTooLargeError, UnsupportedImageError
from models.images.header import ImageLimits, open_container
from models.images.levels import in_levels

_BACKGROUND = (255, 255, 255)  # shows through transparent pixels, as by default before other models
_NO_LIMITS = ImageLimits(max_bytes=1 << 40, max_side_pixels=1 << 40, max_pixels=1 << 40)
_STATUSES: Mapping[type[ImageError], int] = {UnsupportedImageError: 415, BrokenImageError: 422, ImageTooLargeError: 413}


class ImageClassifier(VisionHandler):
    """Answers ``{name of the class: probability}``, most probable first, under TorchServe's names.

    Unlike there, grey, deep, transparent and other pictures become RGB, as they do before other models: the geometry
    below is for networks that were trained on RGB. A class with an `image_processing` of its own gets them as stored.

    Attributes:
        topk: How many classes; fewer if the model has fewer.
    """

    topk = 5
    image_processing = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )

    def set_max_result_classes(self, topk: int) -> None:
        """Set the number of classes in an answer."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """The number of classes in an answer."""
        return self.topk

    @override
    def _picture(self, encoded: bytes) -> Image.Image:
        if self.image_processing is not ImageClassifier.image_processing:
            return super()._picture(encoded)
        try:
            with told_by_status():
                _, container = open_container(encoded, _NO_LIMITS if Image.MAX_IMAGE_PIXELS is None else ImageLimits())
                image = Image.open(io.BytesIO(b"".join(container.parts)))
                image.load()
                return in_levels(image, container, _BACKGROUND).convert("RGB")
        except ImageError as error:
            status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
            raise PredictionException(str(error), status) from error

    @override
    def postprocess(self, data: Any) -> list[dict[str, float]]:
        """Scores of shape (rows, classes) as one dict a row."""
        probabilities = torch.softmax(data, dim=1)
        best, classes = torch.topk(probabilities, min(self.topk, probabilities.shape[1]), dim=1)
        return map_class_to_label(best.tolist(), self.mapping, classes.tolist())
