"""Bodies of ``POST /classify``: encoded images in, labels out. Pure."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from batching.clock import MILLISECOND_NS
from gateway.errors import CLASSIFY_ERRORS, INTERNAL, ErrorRow, explain, find_row
from gateway.multipart import parse_multipart
from models.errors import BrokenImageError, ImageError, InvalidRequestError, MalformedRequestError
from models.inference import ClassifyResponse, Prediction, Timing

MAX_TOP_K = 1000
DEFAULT_TOP_K = 5
_QUERY = ("top_k", "version")

Image = bytes | ImageError


@dataclass(frozen=True, slots=True)
class ClassifyBody:
    """What a body asks for; `top_k` is None where it does not say."""

    images: tuple[Image, ...]
    top_k: int | None = None


def parse_body(body: bytes, content_type: bytes, max_images: int) -> ClassifyBody:
    """Read a body by its Content-Type; anything but JSON and multipart is one raw image, whatever it claims to be.

    Args:
        body: The whole body.
        content_type: The header's value.
        max_images: More are refused before any of them is looked at.

    Raises:
        MalformedRequestError: It cannot be read.
        InvalidRequestError: It has no image, or a bad `top_k`.
    """
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/json":
        parsed = _parse_json(body, max_images)
    elif kind.startswith(b"multipart/"):
        parsed = _parse_form(body, content_type, max_images)
    else:
        parsed = ClassifyBody((body,))
    if not any(parsed.images):  # an error at the place of an image counts: it says more
        raise InvalidRequestError("found 0 bytes, expected an encoded image; was the file read?")
    return parsed


def parse_top_k(text: str) -> int:
    """A `top_k` given as text."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidRequestError(f"top_k: found {text[:32]!r}, expected a number from 1 to {MAX_TOP_K}")
    return _check_top_k(int(text))


def check_query(names: Iterable[str]) -> None:
    """Raise InvalidRequestError for query parameters that there are not: a misspelt one would be a default."""
    for name in names:
        if name not in _QUERY:
            raise InvalidRequestError(f"unknown query parameter {name[:64]!r}, expected {' or '.join(_QUERY)}")


def _check_top_k(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOP_K:
        found = value if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**9) else _kind(value)
        raise InvalidRequestError(f"top_k: found {found}, expected a number from 1 to {MAX_TOP_K}", pointer="/top_k")
    return value


def _check_count(images: int, max_images: int) -> None:
    if images > max_images:
        raise InvalidRequestError(
            f"found {images} images in one request, expected at most {max_images} (--max-images); send several requests"
        )


def _parse_form(body: bytes, content_type: bytes, max_images: int) -> ClassifyBody:
    images: list[Image] = []
    top_k = None
    for part in parse_multipart(body, content_type):
        if part.name == "top_k":
            top_k = parse_top_k(part.content.decode("utf-8", "replace"))
        else:
            images.append(part.content)
    if not images:
        raise InvalidRequestError("the form has no image; send each one as a file, e.g. curl -F image=@photo.jpg")
    _check_count(len(images), max_images)
    return ClassifyBody(tuple(images), top_k)


def _parse_json(body: bytes, max_images: int) -> ClassifyBody:
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
    _check_count(len(images), max_images)
    top_k = _check_top_k(document["top_k"]) if "top_k" in document else None
    return ClassifyBody(tuple(_decode_text(image, index) for index, image in enumerate(images)), top_k)


def _decode_text(image: object, index: int) -> Image:
    """One base64 string or data URL; a bad one is an error at its place, so that the others are answered."""
    if not isinstance(image, str):
        return BrokenImageError(f"found {_kind(image)}, expected a base64 string or a data URL (at /images/{index})")
    text = image
    if text[:8].lower().startswith(("http://", "https://")):
        return BrokenImageError(
            f"found a URL, expected base64 or a data URL; URLs are not fetched (at /images/{index})"
        )
    if text.startswith("data:"):
        header, comma, text = image.partition(",")
        if not comma or not header.endswith(";base64"):
            return BrokenImageError(f"a data URL must be 'data:TYPE;base64,...' (at /images/{index})")
    try:
        return base64.b64decode(text.encode("ascii").translate(None, b" \t\r\n"), validate=True)
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
        statuses = {error_row(error).status for error in errors}
        status = statuses.pop() if len(statuses) == 1 else 422
        none = "none of the images could be classified"
        document["error"] = explain(CLASSIFY_ERRORS, errors[0])[1] if len(errors) == 1 else none
        if len(errors) > 1:
            document["predictions"] = results
        return status, orjson.dumps(document)
    document["predictions"] = results[0] if len(results) == 1 else results
    document["timing_ms"] = _milliseconds(response.timing)
    return 200, orjson.dumps(document)


def _render_result(result: Sequence[Prediction] | Exception) -> object:
    if isinstance(result, Exception):
        return {"error": explain(CLASSIFY_ERRORS, result)[1]}
    return [
        {"class": prediction.index, "label": prediction.label, "probability": prediction.probability}
        for prediction in result
    ]


def error_row(error: BaseException) -> ErrorRow:
    """How this surface answers an error."""
    return find_row(CLASSIFY_ERRORS, type(error)) or INTERNAL


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
