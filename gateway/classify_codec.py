"""Bodies of ``POST /classify``: encoded images in, labels out. Pure."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from batching.clock import MILLISECOND_NS
from gateway.errors import CLASSIFY_ERRORS, INTERNAL, ErrorRow, find_row
from gateway.multipart import parse_multipart
from models.errors import BrokenImageError, ImageError, InvalidRequestError, MalformedRequestError
from models.inference import ClassifyResponse, Prediction, Timing

MAX_TOP_K = 1000
DEFAULT_TOP_K = 5

Image = bytes | ImageError


@dataclass(frozen=True, slots=True)
class ClassifyBody:
    """What a body asks for; `top_k` is None where it does not say."""

    images: tuple[Image, ...]
    top_k: int | None = None


def parse_body(body: bytes, content_type: bytes) -> ClassifyBody:
    """Read a body by its Content-Type; anything but JSON and multipart is one raw image, whatever it claims to be.

    Raises:
        MalformedRequestError: It cannot be read.
        InvalidRequestError: It has no image, or a bad `top_k`.
    """
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/json":
        parsed = _parse_json(body)
    elif kind.startswith(b"multipart/"):
        parsed = _parse_form(body, content_type)
    else:
        parsed = ClassifyBody((body,))
    if not any(parsed.images):  # an error at the place of an image counts: it says more
        raise InvalidRequestError("found images of 0 bytes, expected encoded images; was the file read?")
    return parsed


def parse_top_k(text: str) -> int:
    """A `top_k` given as text."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidRequestError(f"top_k: found {text[:32]!r}, expected a number from 1 to {MAX_TOP_K}")
    return _check_top_k(int(text))


def _check_top_k(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOP_K:
        raise InvalidRequestError(
            f"top_k: found {str(value)[:32]}, expected a number from 1 to {MAX_TOP_K}", pointer="/top_k"
        )
    return value


def _parse_form(body: bytes, content_type: bytes) -> ClassifyBody:
    images: list[Image] = []
    top_k = None
    for part in parse_multipart(body, content_type):
        if part.name == "top_k":
            top_k = parse_top_k(part.content.decode("utf-8", "replace"))
        else:
            images.append(part.content)
    if not images:
        raise InvalidRequestError("the form has no image; send each one as a file, e.g. curl -F image=@photo.jpg")
    return ClassifyBody(tuple(images), top_k)


def _parse_json(body: bytes) -> ClassifyBody:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"failed to parse the request JSON: {error}") from None
    if not isinstance(document, dict):
        raise MalformedRequestError(f"the body is {_kind(document)}, expected an object with a list 'images'")
    unknown = document.keys() - {"images", "top_k"}
    if unknown:
        raise InvalidRequestError(f"unknown member {min(unknown)[:64]!r}, expected 'images' and maybe 'top_k'")
    images = document.get("images")
    if not isinstance(images, list) or not images:
        found = "nothing" if images is None else "an empty list" if images == [] else _kind(images)
        raise InvalidRequestError(
            f"images: found {found}, expected a list of base64 strings or data URLs", pointer="/images"
        )
    top_k = _check_top_k(document["top_k"]) if "top_k" in document else None
    return ClassifyBody(tuple(_decode_text(image, index) for index, image in enumerate(images)), top_k)


def _decode_text(image: object, index: int) -> Image:
    """One base64 string or data URL; a bad one is an error at its place, so that the others are answered."""
    if not isinstance(image, str):
        return BrokenImageError(f"found {_kind(image)}, expected a base64 string or a data URL (at /images/{index})")
    text = image
    if text.startswith("data:"):
        header, comma, text = image.partition(",")
        if not comma or not header.endswith(";base64"):
            return BrokenImageError(f"a data URL must be 'data:TYPE;base64,...' (at /images/{index})")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return BrokenImageError(f"not valid base64 (at /images/{index})")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def render_response(response: ClassifyResponse) -> tuple[int, bytes]:
    """Status and JSON. One image answers a list of predictions, several a list of lists with errors at their places."""
    results = [_render_result(result) for result in response.results]
    errors = [result for result in response.results if isinstance(result, Exception)]
    document: dict[str, object] = {"model": response.model, "version": str(response.version)}
    if response.request_id:
        document["id"] = response.request_id
    if len(errors) == len(results):
        rows = [error_row(error) for error in errors]
        status = rows[0].status if len({row.status for row in rows}) == 1 else 422
        document["error"] = error_text(errors[0]) if len(errors) == 1 else "none of the images could be classified"
        if len(errors) > 1:
            document["predictions"] = results
        return status, orjson.dumps(document)
    document["predictions"] = results[0] if len(results) == 1 else results
    document["timing_ms"] = _milliseconds(response.timing)
    return 200, orjson.dumps(document)


def _render_result(result: Sequence[Prediction] | Exception) -> object:
    if isinstance(result, Exception):
        return {"error": error_text(result)}
    return [
        {"class": prediction.index, "label": prediction.label, "probability": prediction.probability}
        for prediction in result
    ]


def error_row(error: BaseException) -> ErrorRow:
    """How this surface answers an error."""
    return find_row(CLASSIFY_ERRORS, type(error)) or INTERNAL


def error_text(error: BaseException) -> str:
    """What a client may know of an error: everything, unless it is a defect of the program."""
    return str(error) if error_row(error) is not INTERNAL else "internal error"


def _milliseconds(timing: Timing) -> dict[str, float]:
    return {
        "decode": round(timing.decode_ns / MILLISECOND_NS, 3),
        "queue": round(timing.queue_ns / MILLISECOND_NS, 3),
        "compute": round(timing.compute_ns / MILLISECOND_NS, 3),
        "total": round(timing.total_ns / MILLISECOND_NS, 3),
    }


def server_timing(timing: Timing) -> str:
    """The `Server-Timing` header."""
    return ", ".join(f"{stage};dur={value}" for stage, value in _milliseconds(timing).items())
