"""TorchServe's `VisionHandler`: rows become pictures, pictures become a tensor."""

import base64
import binascii
import contextlib
import io
from abc import ABC
from collections.abc import Iterator
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from typing_extensions import override

from backends.torchserve.base_handler import BaseHandler
from backends.torchserve.context import Context
from backends.torchserve.utilities import PredictionException, timed


class VisionHandler(BaseHandler, ABC):
    """Base of handlers of pictures, under TorchServe's names.

    Attributes:
        image_processing: Set by the handler: from a Pillow image to a tensor.
    """

    image_processing: Any

    @override
    def initialize(self, context: Context) -> None:
        super().initialize(context)
        if not context.system_properties.get("limit_max_image_pixels"):
            Image.MAX_IMAGE_PIXELS = None

    @override
    @timed
    def preprocess(self, data: Any) -> Any:
        """The rows' pictures as one tensor of shape (rows, *row).

        A row's field ``data``, or else ``body``, is an encoded picture, its base64 text, or a list of numbers.

        Raises:
            PredictionException: A row has no picture, or one that cannot be used: with status 400, 413, 415 or 422.
        """
        return torch.stack([self._tensor(row.get("data") or row.get("body")) for row in data]).to(self.device)

    def _tensor(self, found: Any) -> Any:
        if isinstance(found, str):
            found = _decoded(found)
        if isinstance(found, bytes | bytearray):
            return self.image_processing(self._picture(bytes(found)))
        if not found:
            raise PredictionException("found no field data or body with content in a request, expected a picture", 400)
        return torch.FloatTensor(found)

    def _picture(self, encoded: bytes) -> Image.Image:
        """As it is stored, in whatever mode: a network may have been trained on grey pictures."""
        with told_by_status():
            image = Image.open(io.BytesIO(encoded))
            image.load()
            return image


@contextlib.contextmanager
def told_by_status() -> Iterator[None]:
    """Errors of the decoder, within the block, become answers with a status of the client's fault."""
    try:
        yield
    except Image.DecompressionBombError as error:
        raise PredictionException(str(error), 413) from error
    except UnidentifiedImageError as error:
        raise PredictionException("found bytes of no known format, expected a picture", 415) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise PredictionException(f"found a damaged picture: {error}", 422) from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise PredictionException(f"found text that is no base64 ({error}), expected a picture", 400) from error
