"""An `InferResponse` to the bytes of the answer. Pure."""

import json
import math

import numpy as np
import orjson

from gateway.asgi import JSON_TYPE, Reply
from gateway.v2 import tensors
from gateway.v2.classification import classify
from gateway.v2.members import JsonObject
from gateway.v2.request import Decoded
from gateway.v2.shared_memory import INLINE_BYTES
from models.inference import Array, InferResponse, Parameter
from models.spec import ModelSpec

_JSON_HEADERS = (JSON_TYPE,)
_BINARY_TYPE = (b"content-type", b"application/octet-stream")


def is_slow_to_render(decoded: Decoded, response: InferResponse, inline_elements: int) -> bool:
    """Whether rendering takes more than a fraction of a millisecond: much to copy or to look at one by one."""
    elements = 0
    _, default, forms = decoded
    for name, array in response.outputs.items():
        form = forms.get(name, default) if forms else default
        if form.region is not None and array.nbytes > INLINE_BYTES:
            return True
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
        SharedMemoryError: An output does not fit where it shall be put.
    """
    items: list[JsonObject] = []
    blobs: list[memoryview | bytes] = []
    _, default, forms = decoded
    for name, values in response.outputs.items():
        form = forms.get(name, default) if forms else default
        array = classify(name, values, form.classes, spec) if form.classes else values
        item: JsonObject = {"name": name, "datatype": tensors.datatype_name(array), "shape": array.shape}
        items.append(item)
        if form.region is not None:
            form.region.write(tensors.to_bytes(array), name)
        elif form.is_binary:
            blob = tensors.to_bytes(array)
            item["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            item["data"] = tensors.to_json(array)
    text = dump(_head(response, items), response)
    if not blobs or not any(map(len, blobs)):
        return Reply(200, text, _JSON_HEADERS)
    header = (b"inference-header-content-length", b"%d" % len(text))
    return Reply(200, b"".join((text, *blobs)), (_BINARY_TYPE, header))


def _head(response: InferResponse, items: list[JsonObject]) -> JsonObject:
    head: JsonObject = {"id": response.request_id} if response.request_id else {}
    head["model_name"] = response.model
    head["model_version"] = str(response.version)
    if response.parameters:
        head["parameters"] = dict(response.parameters)
    head["outputs"] = items
    return head


def dump(head: JsonObject, response: InferResponse) -> bytes:
    """The JSON of an answer, with NaN and Infinity as Triton writes them where the response has some."""
    try:
        text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # lone surrogates, which stand for bytes that are no UTF-8; an integer of 65 bits
        return _dump_as_triton(head)
    # orjson writes NaN and infinities as null, and nothing else here is null: look closer only when the word occurs.
    if b"null" in text and not all(map(_is_finite, (*response.outputs.values(), *response.parameters.values()))):
        return _dump_as_triton(head)
    return text


def _dump_as_triton(head: JsonObject) -> bytes:
    """With NaN and Infinity, and bytes that are no UTF-8 as they are."""
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"), default=np.ndarray.tolist)
    return text.encode("utf-8", "surrogateescape")


def _is_finite(value: Array | Parameter) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)
