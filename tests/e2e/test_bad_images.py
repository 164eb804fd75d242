"""Images that are tiny, huge, turned, mislabelled or none at all, on every way in. Nobody else is harmed."""

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.e2e.models import ROW
from tests.e2e.server import Server
from tests.e2e.wire import ask_at_once, classified, infer_bytes, post_bytes
from tests.images.pictures import encoded, exif, jpeg_with_exif, photo, png, png_chunk

pytestmark = pytest.mark.e2e

PNG = encoded(photo(40, 30), "PNG")
GIF = encoded(photo(40, 30), "GIF")
ACCEPTED = "accepted: JPEG, PNG, WebP, BMP, GIF, TIFF"

Send = Callable[..., httpx.Response]


def send_raw(server: Server, image: bytes, content_type: str = "image/jpeg", **query: Any) -> httpx.Response:
    headers = {"content-type": content_type}
    return server.client.post("/classify/mirror", content=image, headers=headers, params=query)


def send_form(server: Server, image: bytes, content_type: str = "image/jpeg", **query: Any) -> httpx.Response:
    return server.client.post("/classify/mirror", files={"image": ("x.JPEG", image, content_type)}, params=query)


def send_base64(server: Server, image: bytes, content_type: str = "image/jpeg", **query: Any) -> httpx.Response:
    text = base64.b64encode(image).decode()
    return server.client.post("/classify/mirror", json={"images": [text]}, params=query)


def send_data_url(server: Server, image: bytes, content_type: str = "image/jpeg", **query: Any) -> httpx.Response:
    text = f"data:{content_type};base64,{base64.b64encode(image).decode()}"
    return server.client.post("/classify/mirror", json={"images": [text]}, params=query)


WAYS = {"raw": send_raw, "form": send_form, "base64": send_base64, "data URL": send_data_url}
every_way = pytest.mark.parametrize("send", WAYS.values(), ids=WAYS.keys())


TINY = {
    "1 x 1 PNG": (encoded(Image.new("RGB", (1, 1))), 200),
    "1 x 1 grey": (encoded(Image.new("L", (1, 1))), 200),
    "1 x 4000": (encoded(Image.new("RGB", (1, 4000))), 200),
    "4000 x 1": (encoded(Image.new("RGB", (4000, 1))), 200),
    "GIF without a frame": (b"GIF89a\1\0\1\0\0\0\0;", 422),
}


@pytest.mark.parametrize("name", TINY)
def test_tiny_pictures_are_answered_and_do_not_stop_the_server(unharmed: Server, name: str) -> None:
    image, expected_status = TINY[name]

    answer = send_raw(unharmed, image)

    assert answer.status_code == expected_status, answer.text


def levels(predictions: list[dict[str, Any]]) -> np.ndarray:
    """The decoded picture, which the mirror answers as probabilities."""
    ordered = sorted(predictions, key=lambda prediction: prediction["class"])
    return 255 * np.array([prediction["probability"] for prediction in ordered]).reshape(ROW)


UPRIGHT = Image.fromarray(
    np.stack(np.broadcast_arrays(np.arange(0, 240, 15)[None, :], np.arange(0, 240, 10)[:, None], 0), 2).astype(np.uint8)
)  # 16 x 24: red rises to the right, green downwards
TO_STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def turned(orientation: int) -> bytes:
    """The upright picture as a camera stores it that was held this way."""
    stored = UPRIGHT.transpose(TO_STORED[orientation]) if orientation > 1 else UPRIGHT
    return jpeg_with_exif(encoded(stored, "JPEG", quality=100, subsampling=0), exif(orientation))


@every_way
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_is_classified_as_the_upright_one(zoo: Server, send: Send, orientation: int) -> None:
    upright = levels(classified(send_raw(zoo, encoded(UPRIGHT), top_k=48)))

    found = levels(classified(send(zoo, turned(orientation), top_k=48)))

    np.testing.assert_allclose(found, upright, atol=2)
    assert upright[0, 0, 3] - upright[0, 0, 0] > 100  # red does rise to the right


def test_eight_turned_photographs_in_one_form_are_all_upright(zoo: Server) -> None:
    upright = levels(classified(send_raw(zoo, encoded(UPRIGHT), top_k=48)))
    files = [("image", turned(orientation)) for orientation in range(1, 9)]

    answer = zoo.client.post("/classify/mirror", files=files, params={"top_k": 48})

    for row in classified(answer):
        np.testing.assert_allclose(levels(row), upright, atol=2)


def test_a_model_that_ignores_exif_sees_the_stored_picture(zoo: Server) -> None:
    stored = levels(classified(send_raw(zoo, encoded(UPRIGHT.transpose(TO_STORED[3])), top_k=48)))

    answer = zoo.client.post("/classify/exif-blind", content=turned(3), params={"top_k": 48})

    np.testing.assert_allclose(levels(classified(answer)), stored, atol=2)


def flooded_jpeg() -> bytes:
    """The frame header of a small JPEG patched to 64250 x 64250."""
    data = encoded(photo(260, 260), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + b"\xfa\xfa\xfa\xfa" + data[frame + 9 :]


def one_colour_png(side: int) -> bytes:
    """A true PNG of `side` x `side` pixels, black or white, all of one colour."""
    row = bytes(1 + (side + 7) // 8)
    return png(side, side, png_chunk(b"IDAT", zlib.compress(row * side, 1)), depth=1)


def png_with_a_gigabyte_of_text() -> bytes:
    """A small PNG whose compressed comment, 1 MB long, unpacks to 1 GB."""
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    repeated = block.compress(bytes(1 << 24)) + block.flush(zlib.Z_FULL_FLUSH)
    size_bytes = 64 << 24
    adler = struct.pack(">I", (size_bytes % 65521) << 16 | 1)
    text = b"\x78\xda" + repeated * 64 + b"\x03\x00" + adler
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(41 * 30)))
    return png(40, 30, png_chunk(b"zTXt", b"Comment\0\0" + text), pixels)


def endless_gif() -> bytes:
    """50,000 frames of one pixel."""
    head = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff"
    return head + b",\0\0\0\0\1\0\1\0\0\2\2\x44\1\0" * 50_000 + b";"


FLOODS = {
    "JPEG header of 64250 x 64250": (flooded_jpeg, 413),
    "PNG of 19000 x 19000": (lambda: one_colour_png(19_000), 413),
    "PNG of 12000 x 12000": (lambda: one_colour_png(12_000), 413),
    "PNG with 1 GB of text": (png_with_a_gigabyte_of_text, 200),
    "GIF of 50,000 frames": (endless_gif, 200),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_floods_cost_neither_memory_nor_the_others_anything(unharmed: Server, name: str) -> None:
    make, expected_status = FLOODS[name]
    flood = post_bytes("/classify/mirror", make(), "image/png")
    await ask_at_once(unharmed.port, [infer_bytes("echo", 1)] * 20)
    before_kib = unharmed.peak_memory_kib(forget=True)

    first = await ask_at_once(unharmed.port, [flood])
    rest = await ask_at_once(unharmed.port, [flood, infer_bytes("echo", 1)] * 20)

    assert {answer.status for answer in first + rest[::2]} == {expected_status}
    assert {answer.status for answer in rest[1::2]} == {200}
    assert unharmed.peak_memory_kib() - before_kib < 64 << 10


MISLABELLED = {
    "GIF named x.JPEG": (GIF, "image/jpeg", 200, ""),
    "PNG sent as JPEG": (PNG, "image/jpeg", 200, ""),
    "HEIC": (b"\0\0\0\x24ftypheic\0\0\0\0mif1heic", "application/octet-stream", 415, f"found: HEIC; {ACCEPTED}"),
    "AVIF": (b"\0\0\0\x20ftypavif\0\0\0\0mif1avif", "image/avif", 415, f"found: AVIF; {ACCEPTED}"),
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml", 415, f"found: SVG; {ACCEPTED}"),
    "HTML": (b"<!DOCTYPE html><title>502 Bad Gateway</title>", "text/html", 415, f"found: HTML; {ACCEPTED}"),
    "empty": (b"", "image/jpeg", 400, "0 bytes"),
}


@every_way
@pytest.mark.parametrize("name", MISLABELLED)
def test_content_counts_and_not_what_its_label_says(unharmed: Server, send: Send, name: str) -> None:
    image, content_type, expected_status, text = MISLABELLED[name]

    answer = send(unharmed, image, content_type)

    assert answer.status_code == expected_status, answer.text
    assert text in answer.json().get("error", "")


def test_a_bad_image_among_good_ones_is_an_error_at_its_place(unharmed: Server) -> None:
    files = [("image", PNG), ("image", b"%PDF-1.7"), ("image", b""), ("image", PNG)]

    predictions = classified(unharmed.client.post("/classify/mirror", files=files))

    assert [type(row) for row in predictions] == [list, dict, dict, list]
    assert predictions[1] == {"error": f"found: PDF; {ACCEPTED}"}
