"""Infer requests and what reads them."""

import orjson

from gateway.v2.body import assemble
from gateway.v2.request import Decoded, decode_json
from models.spec import ModelSpec
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor

LIMIT_BYTES = 1 << 20
SPEC = make_spec("m", [tensor("x", DataType.FP32, -1)], [tensor("o", DataType.FP32, -1)], 0)
TEXTS = make_spec("m", [tensor("x", DataType.BYTES, -1)], [tensor("o", DataType.BYTES, -1)], 0)


def decode(body: object, *blobs: bytes, limit_bytes: int = LIMIT_BYTES, spec: ModelSpec = SPEC) -> Decoded:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    header_length = b"%d" % len(text) if blobs else None
    return decode_json(spec, None, assemble((text, *blobs), header_length), limit_bytes)


def one_input(datatype: str = "FP32", shape: object = (2,), **more: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, **more}]}


def binary(datatype: str, shape: object, size_bytes: object) -> dict[str, object]:
    return one_input(datatype, shape, parameters={"binary_data_size": size_bytes})
