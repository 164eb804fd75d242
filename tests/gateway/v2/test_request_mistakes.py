"""Bodies that are refused, with Triton's texts to the letter."""

import orjson
import pytest

from gateway.errors import GatewayError, UnknownRegionError, UnsupportedRequestError
from models.errors import InvalidRequestError, JsonAccessError, MalformedRequestError
from tests.gateway.v2.bodies import SPEC, TEXTS, binary, decode, one_input

NO_JSON = "failed to parse the request JSON buffer: "
NO_UNSIGNED = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NO_ARRAY = "attempt to access JSON non-array as array"
NO_STRING = "attempt to access JSON non-string as string"
NO_BOOLEAN = "attempt to access JSON non-boolean as boolean"
WRONG_COUNT = "Unable to parse 'data': Shape does not match true shape of 'data' field"
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)
TOO_DEEP = "JSON is nested too deeply, expected at most 100 levels"


def missing(member: str) -> str:
    return f"Unable to parse '{member}': attempt to access non-existing object member '{member}'"


def with_output(**parameters: object) -> dict[str, object]:
    return {"inputs": [], "outputs": [{"name": "o", "parameters": parameters}]}


JSON_MISTAKES = {
    "not json": (b"{bad", NO_JSON + "Missing a name for object member. at 1"),
    "no text": (b"   ", NO_JSON + "The document is empty. at 3"),
    "half": (b'{"inputs":', NO_JSON + "Invalid value. at 10"),
    "two values": (b'{"inputs":[]}x', NO_JSON + "The document root must not be followed by other values. at 13"),
    "control character": (b'{"a":"\x01"}', NO_JSON + "Invalid escape character in string. at 6"),
    "half a character": (b'{"a":"\\ud800"}', NO_JSON + "The surrogate pair in string is invalid. at 6"),
    "no utf-8": (b'{"a":"\xff"}', missing("inputs")),
    "no utf-8 and no json": (b'{"a":"\xff\xc3\xa9",}', NO_JSON + "Missing a name for object member. at 11"),
    "no utf-8 outside a string": (b"\xff", NO_JSON + "Invalid value. at 0"),
    "no utf-8 beside Inf": (b'{"a":"\xff","b":Inf}', NO_JSON + "Invalid encoding in string. at 6"),
    "small letters": (b'{"a":nan}', NO_JSON + "Invalid value. at 6"),
    "huge number": (b'{"a":1e400}', NO_JSON + "Number too big to be stored in double. at 5"),
    "endless integer": (b'{"a":' + b"9" * 100_000 + b"}", NO_JSON + "Number too big to be stored in double. at 5"),
    "no object": (b"[1]", missing("inputs")),
    "no inputs": ({}, missing("inputs")),
    "inputs an object": ({"inputs": {}}, f"Unable to parse 'inputs': {NO_ARRAY}"),
    "outputs a number": ({"inputs": [], "outputs": 1}, f"Unable to parse 'outputs': {NO_ARRAY}"),
    "id a number": ({"id": 1, "parameters": 1}, f"Unable to parse 'id': {NO_STRING}"),
    "no name": ({"inputs": [{"data": [1]}]}, missing("name")),
    "no datatype": ({"inputs": [{"name": "x", "shape": ["a"], "data": [1]}]}, missing("datatype")),
    "no shape": ({"inputs": [{"name": "x", "datatype": "WHAT", "data": [1]}]}, missing("shape")),
    "shape a string": (one_input(shape="-1", data=[]), f"Unable to parse 'shape': {NO_ARRAY}"),
    "negative dim": (one_input(shape=[2, -1], data=[]), f"Unable to parse 'shape': {NO_UNSIGNED}"),
    "fractional dim": (one_input(shape=[1.0], data=[1]), f"Unable to parse 'shape': {NO_UNSIGNED}"),
    "boolean dim": (one_input(shape=[True], data=[1]), f"Unable to parse 'shape': {NO_UNSIGNED}"),
    "dim of 65 bits": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[18446744073709551616],"data":[1]}]}',
        f"Unable to parse 'shape': {NO_UNSIGNED}",
    ),
    "data a number": (one_input(data=1), f"Unable to parse 'data': {NO_ARRAY}"),
    "fp16 a number": (one_input("FP16", data=1), f"Unable to parse 'data': {NO_ARRAY}"),
    "unknown type and a number": (one_input("WHAT", data=1), f"Unable to parse 'data': {NO_ARRAY}"),
    "few elements": (one_input(data=[1]), WRONG_COUNT),
    "no elements": (one_input(data=[[], [[]]]), WRONG_COUNT),
    "many elements": (one_input(data=[1, 2, "a"]), WRONG_COUNT),
    "wrong element first": (
        one_input(data=["a", 2, 3]), "Unable to parse 'data': attempt to access JSON non-number as double",
    ),
    "booleans as numbers": (
        one_input(data=[1, [True]]), "Unable to parse 'data': attempt to access JSON non-number as double",
    ),
    "numbers as booleans": (one_input("BOOL", data=[True, 0]), f"Unable to parse 'data': {NO_BOOLEAN}"),
    "doubles as integers": (
        one_input("INT32", data=[1.0, 2]),
        "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
    ),
    "beyond int64": (
        one_input("INT8", data=[1, 2**63]),
        "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer",
    ),
    "negative unsigned": (one_input("UINT64", data=[-1, 1]), f"Unable to parse 'data': {NO_UNSIGNED}"),
    "beyond uint64": (
        b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[18446744073709551616]}]}',
        f"Unable to parse 'data': {NO_UNSIGNED}",
    ),
    "strings of objects": (
        one_input("BYTES", [1], data=["a", {"b64": ""}]), f"Unable to parse JSON bytes array: {NO_STRING}",
    ),
    "negative size": (binary("FP32", [2], -8), f"Unable to parse 'binary_data_size': {NO_UNSIGNED}"),
    "region a number": (
        one_input(parameters={"shared_memory_region": 1}), f"Unable to parse 'shared_memory_region': {NO_STRING}",
    ),
    "offset a string": (
        one_input(parameters={"shared_memory_region": "r", "shared_memory_offset": "1"}),
        f"Unable to parse 'shared_memory_offset': {NO_UNSIGNED}",
    ),
    "output a number": ({"inputs": [], "outputs": [1]}, missing("name")),
    "binary_data a number": (with_output(binary_data=1), f"Unable to parse 'binary_data': {NO_BOOLEAN}"),
    "classification a string": (with_output(classification="2"), f"Unable to set 'classification': {NO_UNSIGNED}"),
    "output offset a string": (
        with_output(shared_memory_offset="x"), f"Unable to parse 'shared_memory_offset': {NO_UNSIGNED}",
    ),
    "parameters an array": (
        {"parameters": [], "inputs": []}, "failed to get request params.: attempt to get members for non-object",
    ),
    "priority a string": ({"parameters": {"priority": "1"}}, f"Unable to parse 'priority': {NO_UNSIGNED}"),
    "negative timeout": ({"parameters": {"timeout": -1}}, f"Unable to parse 'timeout': {NO_UNSIGNED}"),
    "sequence a double": ({"parameters": {"sequence_id": 1.5}}, f"Unable to parse 'sequence_id': {NO_STRING}"),
    "start a number": ({"parameters": {"sequence_start": 1}}, f"Unable to parse 'sequence_start': {NO_BOOLEAN}"),
    "binary default null": (
        {"parameters": {"binary_data_output": None}}, f"Unable to parse 'binary_data_output': {NO_BOOLEAN}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", JSON_MISTAKES)
def test_json_that_is_not_what_it_should_be_is_refused_in_tritons_words(mistake: str) -> None:
    body, text = JSON_MISTAKES[mistake]

    with pytest.raises(JsonAccessError) as caught:
        decode(body)

    assert str(caught.value) == text


RESERVED = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
MISTAKES = {
    "huge dim": (
        one_input(shape=[1, 2**63], data=[1]),
        "shape of input 'x' causes total element count to exceed maximum size of 9223372036854775807",
    ),
    "huge product": (
        one_input(shape=[2**40, 2**40], parameters={"binary_data_size": 0}),
        "shape of input 'x' causes total element count to exceed maximum size of 9223372036854775807",
    ),
    "huge bytes": (one_input("FP64", [4, 2**60 + 2], data=[1]), "byte size overflow for input 'x'"),
    "datatype": (one_input("STRING", data=[]), "invalid datatype for input x"),
    "fp16": (
        one_input("FP16", data=[1]),
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input x",
    ),
    "nothing": ({"inputs": [7]}, SOURCES + "no field is set"),
    "no source": (one_input(parameters={"shared_memory_offset": 1}), SOURCES + "no field is set"),
    "two sources": (
        one_input(data=[], parameters={"binary_data_size": "a"}), SOURCES + "set 'data' 'binary_data_size'",
    ),
    "three sources": (
        one_input(data=[], parameters={"binary_data_size": 0, "shared_memory_region": 1}),
        SOURCES + "set 'data' 'binary_data_size' 'shared_memory_region'",
    ),
    "region and bytes": (
        with_output(shared_memory_region="r", binary_data=True),
        "Output can't set both 'shared_memory_region' and 'binary_data'",
    ),
    "region and classes": (
        with_output(shared_memory_region="r", classification=0),
        "Output can't set both 'shared_memory_region' and 'classification'",
    ),
    "reserved parameter": ({"parameters": {"triton_x": 1, "x": None}}, RESERVED),
    "parameter an array": (
        {"parameters": {"x": [], "triton_x": 1}},
        "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    "deep data": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 101 + b"1" + b"]" * 101 + b"}]}",
        TOO_DEEP,
    ),
    "deep and large data": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 900 + b"1" + b"]" * 900 + b"}]}",
        TOO_DEEP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_other_mistakes_are_refused_in_tritons_words_without_an_id(mistake: str) -> None:
    body, text = MISTAKES[mistake]

    with pytest.raises(MalformedRequestError) as caught:
        decode(body)

    assert str(caught.value) == text
    assert not isinstance(caught.value, JsonAccessError)


TWICE = one_input(data=[1, 2])["inputs"] * 2  # type: ignore[operator]
CORE_MISTAKES = {
    "same input twice": ({"id": "7", "inputs": TWICE}, "[request id: 7] input 'x' already exists in request"),
    "same output twice": (
        {"inputs": [], "outputs": [{"name": "o"}, {"name": "o"}]},
        "[request id: <id_unknown>] output 'o' already exists in request",
    ),
    "few strings": (
        {"id": "7", **one_input("BYTES", [2], data=["a"])},
        "[request id: 7] expected 2 string elements for inference input 'x' for model 'm', got 1",
    ),
    "many strings": (
        one_input("BYTES", [1], data=["a", "b", "c"]),
        "[request id: <id_unknown>] unexpected number of string elements 2 for inference input 'x' for model 'm', "
        "expecting 1",
    ),
    "many dims": (
        one_input("BYTES", [1] * 100, data=["a"]),
        f"[request id: <id_unknown>] unexpected shape for input 'x' for model 'm'. Expected [-1], got "
        f"[{','.join(['1'] * 100)}]. ",
    ),
    "huge empty": (
        one_input("BYTES", [0, 2**63 - 1], data=[]),
        "[request id: <id_unknown>] unexpected shape for input 'x' for model 'm'. Expected [-1], got "
        "[0,9223372036854775807]. ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CORE_MISTAKES)
def test_what_tritons_core_refuses_begins_with_the_requests_id(mistake: str) -> None:
    body, text = CORE_MISTAKES[mistake]

    with pytest.raises(InvalidRequestError) as caught:
        decode(body, spec=TEXTS)

    assert str(caught.value) == text
    assert type(caught.value) is InvalidRequestError


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (
            one_input(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}),
            UnknownRegionError,
            "Unable to find shared memory region: 'r'",
        ),
        (with_output(shared_memory_region="r"), UnknownRegionError, "Unable to find shared memory region: 'r'"),
        (
            {"parameters": {"sequence_id": "a" * 129}},
            UnsupportedRequestError,
            "string correlation ID cannot be longer than 128 characters",
        ),
    ],
    ids=["input in shared memory", "output in shared memory", "long sequence id"],
)
def test_what_is_not_there_is_told(body: object, error: type[GatewayError], text: str) -> None:
    with pytest.raises(error) as caught:
        decode(body)

    assert str(caught.value) == text


SIZE = "input byte size mismatch for input 'x' for model 'm'. "
LENGTH = (
    "incomplete string length indicator for inference input 'x' for model 'm', expecting 4 bytes but only 3 bytes "
    "available. Please make sure the string length indicator is in one buffer."
)
BYTES_SHAPE_2 = orjson.dumps(binary("BYTES", [2], 9))
BLOB_MISTAKES = {
    "short": (
        binary("FP32", [2], 8),
        b"\0" * 7,
        "unexpected size for input 'x', expecting 1 additional bytes for model 'm'",
    ),
    "endless": (
        binary("FP32", [2], 2**64 - 1),
        b"\0" * 4,
        "unexpected size for input 'x', expecting 18446744073709551611 additional bytes for model 'm'",
    ),
    "long": (binary("FP32", [2], 8), b"\0" * 9, "unexpected additional input data for model 'm'"),
    "size": (binary("FP32", [3], 8), b"\0" * 8, f"[request id: <id_unknown>] {SIZE}Expected 12, got 8"),
    "size of nothing": (binary("FP32", [0], 4), b"\0" * 4, f"[request id: <id_unknown>] {SIZE}Expected 0, got 4"),
    "wrong type and size": (
        binary("INT32", [3], 8),
        b"\0" * 8,
        "[request id: <id_unknown>] inference input 'x' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    "unknown type": (
        binary("WHAT", [3], 8),
        b"\0" * 8,
        "[request id: <id_unknown>] inference input 'x' data-type is '<invalid>', but model 'm' expects 'FP32'",
    ),
    "unknown type and short": (
        binary("WHAT", [3], 8),
        b"\0" * 7,
        "unexpected size for input 'x', expecting 1 additional bytes for model 'm'",
    ),
    "wrong name and size": (
        orjson.loads(orjson.dumps(binary("INT32", [3], 8)).replace(b'"x"', b'"z"')),
        b"\0" * 8,
        "unexpected inference input 'z' for model 'm'",
    ),
    "wrong output and size": (
        {**binary("INT32", [3], 8), "outputs": [{"name": "z"}]},
        b"\0" * 8,
        "unexpected inference output 'z' for model 'm'",
    ),
    "few strings": (
        BYTES_SHAPE_2,
        b"\5\0\0\0hello",
        "[request id: <id_unknown>] expected 2 string elements for inference input 'x' for model 'm', got 1",
    ),
    "many strings": (
        binary("BYTES", [1], 9),
        b"\0\0\0\0\1\0\0\0a",
        "[request id: <id_unknown>] unexpected number of string elements 2 for inference input 'x' for model 'm', "
        "expecting 1",
    ),
    "half a length": (BYTES_SHAPE_2, b"\2\0\0\0hi\1\0\0", f"[request id: <id_unknown>] {LENGTH}"),
    "half a length too many": (binary("BYTES", [1], 9), b"\2\0\0\0hi\1\0\0", f"[request id: <id_unknown>] {LENGTH}"),
    "half a string": (
        binary("BYTES", [2], 13),
        b"\2\0\0\0hi\5\0\0\0hel",
        "incomplete string data for inference input 'x', expecting string of length 5 but only 3 bytes available",
    ),
    "half a string too early": (
        binary("BYTES", [2], 7),
        b"\5\0\0\0hel",
        "[request id: <id_unknown>] expected 2 string elements for inference input 'x' for model 'm', got 1",
    ),
    "endless string": (
        binary("BYTES", [1], 4),
        b"\xff\xff\xff\xff",
        "incomplete string data for inference input 'x', expecting string of length 4294967295 but only 0 bytes "
        "available",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BLOB_MISTAKES)
def test_binary_data_that_does_not_fit_is_refused(mistake: str) -> None:
    body, blob, text = BLOB_MISTAKES[mistake]

    with pytest.raises(InvalidRequestError) as caught:
        decode(body, blob, spec=TEXTS if "string" in mistake or "length" in mistake else SPEC)

    assert str(caught.value) == text
