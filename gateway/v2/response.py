"""An `InferResponse` to the bytes of the answer. Pure."""

import json

import numpy as np
import orjson

from gateway.asgi import JSON_TYPE, Reply
from gateway.v2 import tensors
from gateway.v2.classification import classify
from gateway.v2.request import Decoded
from models.inference import Array, InferResponse
from models.spec import ModelSpec

_BINARY_TYPE = (b"content-type", b"application/octet-stream")


def is_slow_to_render(decoded: Decoded, response: InferResponse, inline_elements: int) -> bool:
    """Whether rendering takes more than a fraction of a millisecond: many elements that are not sent as they are."""
    elements = 0
    for name, array in response.outputs.items():
        form = decoded.forms.get(name, decoded.default)
        if not form.is_binary or form.classes or array.dtype == np.object_:
            elements += array.size
    return elements > inline_elements


def render(decoded: Decoded, response: InferResponse, spec: ModelSpec) -> Reply:
    """The complete answer: JSON, and behind it the binary outputs in the order of the JSON's `outputs`.

    Args:
        decoded: The request.
        response: What the engine answered.
        spec: The version that answered, whose labels name the classes.

    Raises:
        InvalidRequestError: An output cannot be had in the wanted form.
    """
    items: list[dict[str, object]] = []
    blobs: list[memoryview | bytes] = []
    for name, values in response.outputs.items():
        form = decoded.forms.get(name, decoded.default)
        array = classify(name, values, form.classes, spec) if form.classes else values
        item: dict[str, object] = {"name": name, "datatype": tensors.datatype_name(array), "shape": array.shape}
        if form.is_binary:
            blob = tensors.to_bytes(array)
            item["parameters"] = {"binary_data_size": len(blob)}
            if len(blob):
                blobs.append(blob)
        else:
            item["data"] = tensors.to_json(name, array)
        items.append(item)
    text = _dump(_head(response, items), response)
    if not blobs:
        return Reply(200, text, (JSON_TYPE,))
    header = (b"inference-header-content-length", b"%d" % len(text))
    return Reply(200, b"".join((text, *blobs)), (_BINARY_TYPE, header))


def _head(response: InferResponse, items: list[dict[str, object]]) -> dict[str, object]:
    head: dict[str, object] = {"id": response.request_id} if response.request_id else {}
    head["model_name"] = response.model
    head["model_version"] = str(response.version)
    head["outputs"] = items
    return head


def _dump(head: dict[str, object], response: InferResponse) -> bytes:
    text = orjson.dumps(head)
    # orjson writes NaN and infinities as null, and nothing else here is null: look closer only when the word occurs.
    if b"null" in text and not all(map(_is_finite, response.outputs.values())):
        return json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    return text


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
