"""Outputs, classes, parameters, sequences, priorities, timeouts."""

from tests.peers.cases.binary_bodies import BINARY_OUT, JSON, TWO
from tests.peers.http_cases import LENGTH, ONE, Cases, Request, binary, body, infer, sized, tensor

FOUR = tensor(shape=[1, 4], data=[0.25, 4, -1, 4])
PAIR = (tensor(name="x0", data=[1, 2]), tensor("INT32", name="x1", data=[3, 4]))


def asked(outputs: object, model: str = "echo_fp32", *inputs: object, **members: object) -> Request:
    """A request for these outputs."""
    return infer(model, body(*(inputs or (ONE,)), outputs=outputs, **members))


def one(**parameters: object) -> Request:
    """A request for the one output, with parameters."""
    return asked([{"name": "y", "parameters": parameters}])


def classes(count: object, *inputs: object, model: str = "labelled", **more: object) -> Request:
    """A request for classes."""
    return asked([{"name": "y", "parameters": {"classification": count, **more}}], model, *(inputs or (FOUR,)))


def shown(**parameters: object) -> Request:
    """What a model is told of these parameters."""
    return infer("shows", body(tensor(shape=[1], data=[0]), parameters=parameters))


PARAMETERS: dict[str, dict[str, object]] = {
    "of every kind": {"a": 1, "b": True, "c": "x", "d": 1.5, "e": -(2**63), "f": ""},
    "beyond 64 bits": {"a": 2**63, "b": 2**64 - 1},
    "null": {"a": None},
    "a list": {"a": [1]},
    "an object": {"a": {}},
    "reserved": {"triton_x": 1},
    "nearly reserved": {"triton": 1, "Triton_x": 2},
    "headers": {"headers": 1},
    "empty": {},
    "a sequence": {"sequence_id": 7, "sequence_start": True, "sequence_end": False},
    "a sequence's end": {"sequence_id": 7, "sequence_end": True},
    "a sequence with a name": {"sequence_id": "seven", "sequence_start": True},
    "a sequence with an empty name": {"sequence_id": ""},
    "a sequence of zero": {"sequence_id": 0},
    "a sequence with a long name": {"sequence_id": "a" * 129},
    "a sequence with 128 letters": {"sequence_id": "a" * 128},
    "a negative sequence": {"sequence_id": -1},
    "a sequence of 64 bits": {"sequence_id": 2**64 - 1},
    "a sequence of 65 bits": {"sequence_id": 2**64},
    "a fractional sequence": {"sequence_id": 1.5},
    "a sequence of null": {"sequence_id": None},
    "a boolean sequence": {"sequence_id": True},
    "a start without a sequence": {"sequence_start": True},
    "a start of one": {"sequence_start": 1},
    "an end of yes": {"sequence_end": "yes"},
    "a priority": {"priority": 1},
    "a priority of zero": {"priority": 0},
    "a priority as a string": {"priority": "1"},
    "a negative priority": {"priority": -1},
    "a long timeout": {"timeout": 10**9},
    "a timeout of zero": {"timeout": 0},
    "a timeout as a string": {"timeout": "1"},
    "a negative timeout": {"timeout": -1},
    "a fractional timeout": {"timeout": 1.0},
    "binary output of null": {"binary_data_output": None},
    "binary output of one": {"binary_data_output": 1},
    "a binary size of the request": {"binary_data_size": 1},
    "an empty final response": {"triton_enable_empty_final_response": True},
}

CASES: Cases = {
    "no outputs": asked([]),
    "null as outputs": asked(None),
    "an unknown output": asked([{"name": "z"}]),
    "an output without a name": asked([{}]),
    "an output whose name is a number": asked([{"name": 1}]),
    "an output that is a number": asked([1]),
    "an output with other members": asked([{"name": "y", "datatype": "INT8", "shape": [7], "data": 1}]),
    "the same output twice": asked([{"name": "y"}, {"name": "y"}]),
    "an unknown output, with an id": asked([{"name": "z"}], id="17"),
    "one of two outputs": asked([{"name": "y1"}], "pair", *PAIR),
    "two outputs the other way": asked([{"name": "y1"}, {"name": "y0"}], "pair", *PAIR),
    "null as parameters of an output": asked([{"name": "y", "parameters": None}]),
    "a list as parameters of an output": asked([{"name": "y", "parameters": []}]),
    "an unknown parameter of an output": one(what=1),
    "binary data": one(binary_data=True),
    "binary data of one": one(binary_data=1),
    "binary data refused": asked([{"name": "y", "parameters": {"binary_data": False}}], parameters=BINARY_OUT),
    "binary data of all": infer("echo_fp32", body(ONE, parameters=BINARY_OUT)),
    "binary data of all, with an output": asked([{"name": "y"}], parameters=BINARY_OUT),
    "a region and binary data": one(shared_memory_region="r", binary_data=True),
    "a region and classes": one(shared_memory_region="r", classification=1),
    "an unknown region": one(shared_memory_region="r", shared_memory_byte_size=8),
    "a region without a size": one(shared_memory_region="r"),
    "a region that is a number": one(shared_memory_region=1, shared_memory_byte_size=8),
    "an offset without a region": one(shared_memory_offset=1),
    "two classes": classes(2),
    "all classes": classes(4),
    "more classes than there are": classes(9),
    "no classes": classes(0),
    "a negative number of classes": classes(-1),
    "classes as a string": classes("2"),
    "half a class": classes(1.5),
    "classes in binary": classes(2, binary_data=True),
    "classes of two rows": classes(1, tensor(shape=[2, 4], data=[1, 2, 3, 4, 4, 3, 2, 1])),
    "classes of equal values": classes(3, tensor(shape=[1, 4], data=[1, 1, 1, 1])),
    "classes of awkward values": classes(4, tensor(shape=[1, 4], data=[1e-7, 123456789, 1e20, 0.1])),
    "classes with NaN among them": infer(
        "labelled",
        '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,NaN,3,2]}],'
        '"outputs":[{"name":"y","parameters":{"classification":2}}]}',
    ),
    "classes without labels": classes(2, ONE, model="echo_fp32"),
    **{
        f"classes of {kind}": classes(2, tensor(kind, data=[3, 1]), model=f"echo_{kind.lower()}")
        for kind in ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FP64")
    },
    "classes of BOOL": classes(2, tensor("BOOL", data=[True, False]), model="echo_bool"),
    "classes of FP16": binary(
        "echo_fp16", body(sized(4, "FP16"), outputs=[{"name": "y", "parameters": {"classification": 1}}]), bytes(4)
    ),
    "classes without batches": classes(2, tensor(shape=[3], data=[1, 3, 2]), model="single"),
    **{f"parameters: {what}": shown(**parameters) for what, parameters in PARAMETERS.items()},
    "what a model is told without parameters": infer("shows", body(tensor(shape=[1], data=[0]), id="17")),
    "what a model is told of outputs": asked([{"name": "y"}], "shows", tensor(shape=[1], data=[0])),
    "a priority that the model has": infer("ranks", body(ONE, parameters={"priority": 3})),
    "a priority that the model has not": infer("ranks", body(ONE, parameters={"priority": 4})),
    "a priority of zero is the default": infer("ranks", body(ONE, parameters={"priority": 0})),
    "a headless raw request for classes": infer("labelled", TWO * 2, {LENGTH: "0"}),
    "headers are no parameters": infer("shows", body(tensor(shape=[1], data=[0])), {"X-Colour": "red"}),
    "the same, as bytes": infer("echo_fp32", JSON),
}  # fmt: skip
