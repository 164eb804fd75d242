"""Binary tensors, raw requests, the length of the head, and compression."""

import gzip
import struct
import zlib

from backports import zstd

from tests.peers.http_cases import LENGTH, ONE, Cases, Request, binary, body, get, in_bytes, infer, post, sized, tensor

TWO = struct.pack("<2f", 1, 2)
JSON = in_bytes(body(ONE))
BINARY_OUT = {"binary_data_output": True}


def texts(*values: bytes) -> bytes:
    """BYTES elements as they are on the wire."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def echoed(datatype: str, blob: bytes) -> Request:
    """Two values there and back."""
    model = f"echo_{datatype.lower().replace('bytes', 'string')}"
    return binary(model, body(sized(len(blob), datatype), parameters=BINARY_OUT), blob)


BLOBS = {
    "BOOL": b"\x01\x00", "UINT8": b"\x00\xff", "UINT16": b"\x01\x02" * 2, "UINT32": b"\x01\x02\x03\x04" * 2,
    "UINT64": bytes(range(16)), "INT8": b"\x80\x7f", "INT16": b"\x00\x80\xff\x7f", "INT32": b"\x00\x00\x00\x80" * 2,
    "INT64": bytes(range(16)), "FP16": b"\x00\x38\x00\xc0", "BF16": b"\x80\x3f\x00\xc0", "FP32": TWO,
    "FP64": struct.pack("<2d", 0.1, -1e300), "BYTES": texts(b"\xff\x00", b""),
}  # fmt: skip


def strings(blob: bytes, shape: object = (1, 2)) -> Request:
    """BYTES in binary."""
    return binary("echo_string", body(sized(len(blob), "BYTES", shape)), blob)


def named(length: str, content: bytes = JSON) -> Request:
    """A body with this length of its head."""
    return infer("echo_fp32", content, {LENGTH: length})


def coded(coding: str, content: bytes, **headers: str) -> Request:
    """A body in a coding."""
    return infer("echo_fp32", content, {"Content-Encoding": coding, **headers})


LENGTHS = ("-1", "x", "", "0x5", "99999", "181.0", str(10**30), str(2**31), f"+{len(JSON)}", f"0{len(JSON)}")
ACCEPTED = (
    "gzip", "deflate", "identity", "br", "*", "", "GZIP", "gzip;q=0", "gzip;q=0.5, deflate;q=0.8", "identity, gzip",
    "deflate, gzip", "gzip, deflate", "identity;q=0, *", "gzip;q=abc", "gzip ; q=1", "gzip;q=2",
    "identity;q=0.5,gzip;q=0.4", "identity;q=0",
)  # fmt: skip
CODINGS = ("br", "GZIP", "gzip, deflate", "x-gzip", "identity", "")

CASES: Cases = {
    **{f"{datatype} there and back": echoed(datatype, blob) for datatype, blob in BLOBS.items()},
    **{
        f"{datatype} in binary, answered in JSON": binary(
            f"echo_{datatype.lower().replace('bytes', 'string')}", body(sized(len(blob), datatype)), blob
        )
        for datatype, blob in BLOBS.items()
        if datatype != "BYTES"
    },
    "a BOOL of other bytes": echoed("BOOL", b"\x02\xff"),
    "BYTES that are UTF-8, answered in JSON": strings(texts("é".encode(), b"")),
    "one byte too few": binary("echo_fp32", body(sized(8)), TWO[:-1]),
    "one byte too many": binary("echo_fp32", body(sized(8)), TWO + b"x"),
    "no bytes": binary("echo_fp32", body(sized(8)), b""),
    "a size that is not the shape's": binary("echo_fp32", body(sized(4)), TWO[:4]),
    "a size of nothing": binary("echo_fp32", body(sized(0)), b""),
    "an empty tensor": binary("echo_fp32", body(sized(0, shape=(1, 0))), b""),
    "a negative size": binary("echo_fp32", body(sized(-8)), TWO),
    "a size that is a string": binary("echo_fp32", body(sized("8")), TWO),
    "a size that is a double": binary("echo_fp32", body(sized(8.0)), TWO),
    "a size that is null": binary("echo_fp32", body(sized(None)), TWO),
    "a size of 64 bits": binary("echo_fp32", body(sized(2**64 - 1)), TWO),
    "another type in binary": binary("echo_fp32", body(sized(8, "INT32")), TWO),
    "another type of another size": binary("echo_fp32", body(sized(8, "FP64")), TWO),
    "an unknown type in binary": binary("echo_fp32", body(sized(8, "FLOAT")), TWO),
    "an unknown name in binary": binary("echo_fp32", body(sized(8, name="z")), TWO),
    "a wrong rank in binary": binary("echo_fp32", body(sized(8, shape=(1, 1, 2))), TWO),
    "a wrong batch in binary": binary("echo_fp32", body(sized(36, shape=(9, 1))), TWO * 4 + TWO[:4]),
    "two binary inputs": binary(
        "pair", body(sized(8, name="x0"), sized(8, "INT32", name="x1"), parameters=BINARY_OUT), TWO + bytes(8)
    ),
    "a binary and a JSON input": binary(
        "pair", body(tensor(name="x0", data=[1, 2]), sized(8, "INT32", name="x1")), bytes(8)
    ),
    "a binary and a JSON output": binary(
        "pair",
        body(
            sized(8, name="x0"), sized(8, "INT32", name="x1"),
            outputs=[{"name": "y1", "parameters": {"binary_data": True}}, {"name": "y0"}],
        ),
        TWO + bytes(8),
    ),
    "BYTES too few": strings(texts(b"a")),
    "BYTES too many": strings(texts(b"a", b"b", b"c")),
    "BYTES without an end": strings(b"\x05\0\0\0hel", (1, 1)),
    "BYTES with half a length": strings(texts(b"hi") + b"\x01\0\0"),
    "BYTES of an endless length": strings(b"\xff\xff\xff\xff", (1, 1)),
    "BYTES of nothing": strings(b"", (1, 0)),
    "BYTES of no rows": strings(b"", (0, 2)),
    **{f"a head of length {length!r}": named(length) for length in LENGTHS},
    "a head of one byte less": named(str(len(JSON) - 1)),
    "a head of one byte more": named(str(len(JSON) + 1)),
    "a head that is the body": named(str(len(JSON))),
    "bytes that no input names": named(str(len(JSON)), JSON + b"abcd"),
    "JSON and a NUL": infer("echo_fp32", JSON + b"\0rest"),
    "a raw request": infer("single", TWO, {LENGTH: "0"}),
    "a raw request of a batch": infer("fixed", TWO * 2, {LENGTH: "0"}),
    "a raw request of two rows": infer("fixed", TWO * 4, {LENGTH: "0"}),
    "a raw request of a wrong size": infer("fixed", TWO, {LENGTH: "0"}),
    "a raw request of a broken size": infer("echo_fp32", TWO[:-1], {LENGTH: "0"}),
    "a raw request of nothing": infer("echo_fp32", b"", {LENGTH: "0"}),
    "a raw request of variable dimensions": infer("echo_fp32", TWO, {LENGTH: "0"}),
    "a raw request of two variable dimensions": infer("grid", TWO * 2, {LENGTH: "0"}),
    "a raw request of a text": infer("texts", b"\xffhello", {LENGTH: "0"}),
    "a raw request of an empty text": infer("texts", b"", {LENGTH: "0"}),
    "a raw request of two inputs": infer("pair", TWO, {LENGTH: "0"}),
    "a raw request of FP16": infer("echo_fp16", b"\x00\x38", {LENGTH: "0"}),
    "gzip": coded("gzip", gzip.compress(JSON)),
    "gzip in two members": coded("gzip", gzip.compress(JSON[:20]) + gzip.compress(JSON[20:])),
    "deflate": coded("deflate", zlib.compress(JSON)),
    "gzip called deflate": coded("deflate", gzip.compress(JSON)),
    "deflate called gzip": coded("gzip", zlib.compress(JSON)),
    "gzip with a binary tensor": coded(
        "gzip", gzip.compress((head := in_bytes(body(sized(8)))) + TWO), **{LENGTH: str(len(head))}
    ),
    "gzip that is none": coded("gzip", JSON),
    "gzip without its end": coded("gzip", gzip.compress(JSON)[:-4]),
    "zstd": coded("zstd", zstd.compress(JSON)),
    **{f"the coding {coding!r}": coded(coding, JSON) for coding in CODINGS},
    **{f"accepting {wish!r}": infer("echo_fp32", JSON, {"Accept-Encoding": wish}) for wish in ACCEPTED},
    "accepting gzip for an error": infer("echo_fp32", "{", {"Accept-Encoding": "gzip"}),
    "accepting gzip for metadata": get("/v2", **{"Accept-Encoding": "gzip"}),
    "accepting gzip for binary": binary(
        "echo_fp32", body(sized(8), parameters=BINARY_OUT), TWO, **{"Accept-Encoding": "gzip"}
    ),
    "an index in gzip": post("/v2/repository/index", gzip.compress(b"{}"), {"Content-Encoding": "gzip"}),
    "expecting to be told to go on": infer("echo_fp32", JSON, {"Expect": "100-continue"}),
}  # fmt: skip
