"""Inference over gRPC, right and wrong."""

import struct

from tests.peers.cases.binary_bodies import BLOBS, texts
from tests.peers.cases.outputs import PARAMETERS
from tests.peers.grpc_cases import Call, Cases, infer, output, request, stream, tensor

F = "echo_fp32"
TWO = struct.pack("<2f", 1, 2)
X = tensor()
TYPED = tensor(contents={"fp32_contents": [1, 2]})
PAIR = (tensor(name="x0"), tensor("INT32", name="x1"))
REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


def model_of(datatype: str) -> str:
    """The model that echoes a type."""
    return f"echo_{datatype.lower().replace('bytes', 'string')}"


def typed(datatype: str, field: str, *values: object) -> Call:
    """A tensor in typed contents."""
    return infer(model_of(datatype), tensor(datatype, (1, len(values)), contents={field: list(values)}))


def asked(*outputs: object, model: str = F) -> Call:
    """A request for these outputs."""
    return infer(model, X, raw=(TWO,), outputs=outputs)


def one(
    shape: tuple[int, ...] = (1, 2), datatype: str = "FP32", blob: bytes = TWO, model: str = F, **fields: object
) -> Call:
    """One raw tensor."""
    return infer(model, tensor(datatype, shape), raw=(blob,), **fields)


CONTENTS = {
    "BOOL": ("bool_contents", True, False), "UINT8": ("uint_contents", 0, 255), "UINT16": ("uint_contents", 1, 65_535),
    "UINT32": ("uint_contents", 2, 2**32 - 1), "UINT64": ("uint64_contents", 3, 2**64 - 1),
    "INT8": ("int_contents", -128, 127), "INT16": ("int_contents", -32_768, 5), "INT32": ("int_contents", -(2**31), 6),
    "INT64": ("int64_contents", -(2**63), 2**63 - 1), "FP32": ("fp32_contents", 0.1, -1e-38),
    "FP64": ("fp64_contents", 0.1, 1e300), "BYTES": ("bytes_contents", b"", b"\xff"),
    "FP16": ("fp32_contents", 1, 2), "BF16": ("fp32_contents", 1, 2),
}  # fmt: skip
GRPC_PARAMETERS: dict[str, dict[str, object]] = {
    "unsigned": {"a": (7,)},
    "without a value": {"a": None},
    "an unsigned sequence": {"sequence_id": (5,)},
    "an unsigned start": {"sequence_start": (1,)},
    "an unsigned priority": {"priority": (1,)},
    "a boolean priority": {"priority": True},
    "an unsigned timeout": {"timeout": (10**9,)},
    "a timeout of 63 bits": {"timeout": 2**62},
    "a boolean timeout": {"timeout": True},
    "a final response of one": {"triton_enable_empty_final_response": 1},
}
_OF_JSON_ONLY = {"beyond 64 bits", "null", "a list", "an object", "a sequence of 64 bits", "a sequence of 65 bits",
                 "a sequence of null", "binary output of null", "a long timeout"}  # fmt: skip

CASES: Cases = {
    **{f"{kind} raw": one(datatype=kind, blob=blob, model=model_of(kind)) for kind, blob in BLOBS.items()},
    **{f"{kind} typed": typed(kind, *parts) for kind, parts in CONTENTS.items()},
    "INT8 typed beyond": typed("INT8", "int_contents", 300, -1),
    "INT16 typed beyond": typed("INT16", "int_contents", 70_000, 1),
    "UINT8 typed beyond": typed("UINT8", "uint_contents", 300, 1),
    "UINT16 typed beyond": typed("UINT16", "uint_contents", 70_000, 1),
    "BOOL in the field of integers": typed("BOOL", "int_contents", 1, 0),
    "FP64 in the field of integers": typed("FP64", "int64_contents", 1, 0),
    "FP64 in the field of bytes": typed("FP64", "bytes_contents", b"", b""),
    "INT8 in the field of unsigned": typed("INT8", "uint_contents", 1, 0),
    "UINT8 in the field of 64 bits": typed("UINT8", "uint64_contents", 1, 0),
    "typed contents of no type": infer(F, tensor("FLOAT", contents={"fp32_contents": [1, 2]})),
    "typed contents, too few": infer(F, tensor(contents={"fp32_contents": [1]})),
    "typed contents, too many": infer(F, tensor(contents={"fp32_contents": [1, 2, 3]})),
    "typed contents of two kinds": infer(F, tensor(contents={"fp32_contents": [1, 2], "int_contents": [1, 2]})),
    "typed contents and raw": infer(F, TYPED, raw=(TWO,)),
    "BYTES typed, too few": infer("echo_string", tensor("BYTES", contents={"bytes_contents": [b"a"]})),
    "no contents": infer(F, X),
    "no contents of nothing": infer(F, tensor(shape=(1, 0))),
    "raw contents of nothing": one((1, 0), blob=b""),
    "raw, too short": one(blob=TWO[:-1]),
    "raw, too long": one(blob=TWO + b"x", id="17"),
    "raw, one too many": infer(F, X, raw=(TWO, TWO)),
    "raw, one too few": infer("pair", *PAIR, raw=(TWO,)),
    "two inputs raw": infer("pair", *PAIR, raw=(TWO, bytes(8))),
    "two inputs the other way": infer("pair", *PAIR[::-1], raw=(bytes(8), TWO)),
    "one of two inputs": infer("pair", PAIR[0], raw=(TWO,)),
    "no inputs": infer("pair"),
    "an input twice": infer(F, X, X, raw=(TWO, TWO)),
    "an unknown input": infer(F, tensor(name="z"), raw=(TWO,)),
    "an empty input name": infer(F, tensor(name=""), raw=(TWO,)),
    "an optional input": infer("optional", tensor("INT32", (2,), "x1"), raw=(bytes(8),)),
    "BYTES without an end": one((1, 1), "BYTES", b"\x05\0\0\0a", "echo_string"),
    "BYTES with half a length": one((1, 1), "BYTES", b"\x05\0", "echo_string"),
    "BYTES, too few": one((1, 2), "BYTES", texts(b"a"), "echo_string"),
    "BYTES, too many": one((1, 1), "BYTES", texts(b"a", b"b"), "echo_string"),
    "an unknown type": one(datatype="FLOAT"),
    "no type": one(datatype=""),
    "another type": one(datatype="INT32"),
    "a negative dimension": one((1, -2)),
    "two negative dimensions": one((-1, -2)),
    "a rank too many": one((1, 1, 2)),
    "no shape": one(()),
    "no shape without batches": one((), model="single"),
    "no rows": one((0, 2), blob=b""),
    "nine rows": one((9, 1), blob=bytes(36)),
    "a wrong fixed shape": one(model="fixed"),
    "rows that are not equal": infer("pair", PAIR[0], tensor("INT32", (2, 1), "x1"), raw=(TWO, bytes(8))),
    "an id": one(id="é"),
    "an unknown model": one(model="nothing"),
    "an unloaded model": one(model="spare"),
    "version 1": one(model="versions", model_version="1"),
    "the newest version": one(model="versions"),
    **{f"version {text!r}": one(model="versions", model_version=text) for text in ("3", "0", "x", "-1", "+1", "1.0")},
    "an unknown output": asked(output("z")),
    "the same output twice": asked(output(), output()),
    "an unknown parameter of an output": asked(output(what=1, binary_data=True)),
    "one of two outputs": infer("pair", *PAIR, raw=(TWO, bytes(8)), outputs=[output("y1")]),
    "two outputs the other way": infer("pair", *PAIR, raw=(TWO, bytes(8)), outputs=[output("y1"), output("y0")]),
    "a class": asked(output(classification=1)),
    "no class": asked(output(classification=0)),
    "classes as a string": asked(output(classification="1")),
    "a negative number of classes": asked(output(classification=-1)),
    "an unsigned number of classes": asked(output(classification=(1,))),
    "2^40 classes": asked(output(classification=2**40)),
    "a labelled class": infer(
        "labelled", tensor(shape=(1, 4)), raw=(struct.pack("<4f", 1, 4, 2, 3),), outputs=[output(classification=2)]
    ),
    "an unknown parameter of an input": infer(F, tensor(what=1), raw=(TWO,)),
    "a binary size of an input": infer(F, tensor(binary_data_size=8), raw=(TWO,)),
    "an unknown region": infer(F, tensor(**REGION)),
    "a region without a size": infer(F, tensor(shared_memory_region="r")),
    "a region that is a number": infer(F, tensor(shared_memory_region=1, shared_memory_byte_size=8)),
    "a size that is a text": infer(F, tensor(shared_memory_region="r", shared_memory_byte_size="8")),
    "a size alone": infer(F, tensor(shared_memory_byte_size=8)),
    "a region and raw": infer(F, tensor(**REGION), raw=(TWO,)),
    "a region and contents": infer(F, tensor(contents={"fp32_contents": [1, 2]}, **REGION)),
    "an output in an unknown region": asked(output(**REGION)),
    "classes in a region": asked(output(classification=1, **REGION)),
    **{
        f"parameters: {what}": one((1,), blob=TWO[:4], model="shows", parameters=values)
        for what, values in {**PARAMETERS, **GRPC_PARAMETERS}.items()
        if what not in _OF_JSON_ONLY
    },
    "a priority that the model has not": one(model="ranks", parameters={"priority": 4}),
    "the model raises": one(model="fails"),
    **{f"the model refuses with code {n}": one((1, 1), "INT32", struct.pack("<i", n), "refuses") for n in range(8)},
    "a stream": stream(request(F, X, raw=(TWO,), id="1"), request("single", tensor(shape=(2,)), raw=(TWO,), id="2")),
    "a stream of nothing": stream(),
    "a stream with errors": stream(
        request(F, X, raw=(TWO,), id="1"), request("nothing", id="2"), request(F, X, raw=(b"",), id="3"),
        request("versions", model_version="x", id="4"), request(F, X, raw=(TWO,), id="5"),
    ),
    "a stream in order": stream(request("slow", X, raw=(TWO,), id="1"), request(F, X, raw=(TWO,), id="2")),
    "a stream with an empty final response": stream(
        request(F, X, raw=(TWO,), parameters={"triton_enable_empty_final_response": True})
    ),
    "a stream of a model that raises": stream(request("fails", X, raw=(TWO,), id="1")),
    "a stream of gRPC errors": stream(
        request("nothing", id="1"), request(F, X, raw=(TWO,), id="2"), triton_grpc_error="true"
    ),
}  # fmt: skip
