"""Whichever way a picture comes in, the model sees the same row, and a bad one gets the same answer."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import numpy as np
import pytest
from PIL import Image

from gateway.decoding import ThreadDecoder
from models.images.decode import decode
from models.images.header import ImageLimits
from models.preprocessing import Preprocessing
from tests.gateway.fake_engine import make_spec, tensor
from tests.gateway.serving import FP32, client_of, serving
from tests.images.pictures import encoded, exif, jpeg_with_exif
from tests.images.zoo import FILES, SCENE, ZOO

LIMITS = ImageLimits()
SIDE = 4
UPRIGHT = Preprocessing(resize=SIDE, crop=SIDE, filter="bicubic", output="probabilities")
STORED = UPRIGHT.model_copy(update={"exif": "ignore"})
TURNED = jpeg_with_exif(encoded(SCENE, "JPEG", quality=98, subsampling=0), exif(6))
REFUSED = {"twelve bits": ((FILES / "twelve-bits.jpg").read_bytes(), 415), "cut": (encoded(SCENE, "JPEG")[:400], 422)}


def classifier(name, how):
    """A model whose probabilities are the row that it was given."""
    shape = (3, SIDE, SIDE)
    return replace(make_spec(name, [tensor("image", FP32, *shape)], [tensor("row", FP32, *shape)]), preprocessing=how)


@asynccontextmanager
async def answering() -> AsyncIterator[httpx.AsyncClient]:
    decoder = ThreadDecoder(1, LIMITS)
    specs = classifier("upright", UPRIGHT), classifier("stored", STORED)
    async with serving(*specs, decoder=decoder) as service, client_of(service) as client:
        yield client
    decoder.close()


def texts(images, start=""):
    return {"images": [start + base64.b64encode(image).decode() for image in images]}


# How to send one picture as so many; the answer holds a row for each.
WAYS = {
    "raw body": (1, lambda image: {"content": image}),
    "raw body with a wrong type": (1, lambda image: {"content": image, "headers": {"content-type": "image/heic"}}),
    "form": (1, lambda image: {"files": {"image": ("x.jpg", image, "image/jpeg")}}),
    "base64": (1, lambda image: {"json": texts([image])}),
    "data URL": (1, lambda image: {"json": texts([image], "data:image/png;base64,")}),
    "list of eight": (8, lambda image: {"json": texts([image] * 8)}),
    "form of eight": (8, lambda image: {"files": [("image", image)] * 8}),
}
every_way = pytest.mark.parametrize("way", WAYS)


async def rows_of(client, way, image, model="upright"):
    """The rows that the model saw."""
    count, send = WAYS[way]
    answer = await client.post(f"/classify/{model}?top_k=1000", **send(image))
    assert answer.status_code == 200, answer.text
    predictions = answer.json()["predictions"]
    rows = []
    for row in [predictions] if count == 1 else predictions:
        ordered = sorted(row, key=lambda prediction: prediction["class"])
        rows.append(np.array([prediction["probability"] for prediction in ordered], np.float32))
    assert len(rows) == count
    return rows


@every_way
async def test_every_kind_of_picture_gives_the_same_row(way):
    async with answering() as client:
        found = {name: await rows_of(client, way, specimen.data) for name, specimen in ZOO.items()}

    for name, rows in found.items():
        expected = decode(ZOO[name].data, UPRIGHT, LIMITS).ravel()
        np.testing.assert_array_equal(rows, [expected] * len(rows))


@every_way
@pytest.mark.parametrize("model", ["upright", "stored"])
async def test_a_turned_photograph_is_turned_as_declared(way, model):
    shown = SCENE.transpose(Image.Transpose.ROTATE_270) if model == "upright" else SCENE
    expected = decode(encoded(shown), UPRIGHT, LIMITS).ravel()

    async with answering() as client:
        rows = await rows_of(client, way, TURNED, model)

    np.testing.assert_allclose(rows, [expected] * len(rows), atol=3 / 255)


@every_way
@pytest.mark.parametrize("kind", REFUSED)
async def test_a_picture_that_cannot_be_decoded_has_the_same_status(way, kind):
    image, expected_status = REFUSED[kind]

    async with answering() as client:
        answer = await client.post("/classify/upright", **WAYS[way][1](image))

    assert answer.status_code == expected_status, answer.text


async def test_pictures_of_all_kinds_in_one_request_each_give_their_own_row():
    images = [specimen.data for specimen in list(ZOO.values())[:60]]

    async with answering() as client:
        answer = await client.post("/classify/upright?top_k=1", json=texts(images))

    found = [row[0]["probability"] for row in answer.json()["predictions"]]
    np.testing.assert_allclose(found, [decode(image, UPRIGHT, LIMITS).max() for image in images], rtol=1e-6)
