"""Bodies in, requests out."""

import time

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestTooLargeError
from gateway.v2.body import assemble, is_slow
from gateway.v2.request import BINARY_FORM, JSON_FORM, Decoded, OutputForm, decode_json, decode_raw
from models.errors import InvalidRequestError, MalformedRequestError
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor

LIMIT_BYTES = 1 << 20


def decode(body: object, *blobs: bytes, limit_bytes: int = LIMIT_BYTES) -> Decoded:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    header_length = b"%d" % len(text) if blobs else None
    return decode_json("m", None, assemble((text, *blobs), header_length), limit_bytes)


def one_input(datatype: str = "FP32", shape: object = (2,), **more: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, **more}]}


def binary(datatype: str, shape: object, size_bytes: object) -> dict[str, object]:
    return one_input(datatype, shape, parameters={"binary_data_size": size_bytes})


def test_all_members_of_a_request_arrive() -> None:
    decoded = decode(
        {
            "id": "42",
            "model_name": "ignored",
            "parameters": {"priority": 2, "timeout": 1500, "binary_data_output": True, "mode": "fast", "p": 0.5},
            "inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [[1, 9007199254740993]]}],
            "outputs": [
                {"name": "a"},
                {"name": "b", "parameters": {"binary_data": True}},
                {"name": "c", "parameters": {"classification": 3}},
            ],
        }
    )

    request = decoded.request
    assert request.inputs["x"].dtype == np.int64
    assert request.inputs["x"].tolist() == [[1, 9007199254740993]]
    assert (request.request_id, request.priority, request.timeout_ns) == ("42", 2, 1_500_000)
    assert request.parameters == {"mode": "fast", "p": 0.5}
    assert request.outputs == ("a", "b", "c")
    assert decoded.forms == {"a": JSON_FORM, "b": BINARY_FORM, "c": OutputForm(is_binary=False, classes=3)}


@pytest.mark.parametrize(
    "data",
    [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1, 2], [3, 4]]], [[1, 2, 3, 4]], [1, [2, [3]], 4], [[], [1, 2, 3, 4]]],
    ids=["flat", "nested", "to the shape", "between", "ragged", "with an empty list"],
)
def test_only_the_leaf_count_of_json_data_matters(data: object) -> None:
    decoded = decode(one_input("INT32", [1, 2, 2], data=data))

    assert decoded.request.inputs["x"].tolist() == [[[1, 2], [3, 4]]]


def test_not_a_number_and_infinities_are_read() -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}'

    values = decode(body).request.inputs["x"]

    np.testing.assert_array_equal(values, np.array([np.nan, np.inf, -np.inf], np.float32))


def test_a_double_beyond_fp32_becomes_infinite() -> None:
    assert decode(one_input(data=[1e300, -1e300])).request.inputs["x"].tolist() == [np.inf, -np.inf]


def test_binary_tensors_are_read_only_views_in_the_order_of_the_inputs() -> None:
    first, second = np.arange(6, dtype=np.float64), np.array([7, 8], np.int16)
    body = {
        "inputs": [
            {"name": "a", "datatype": "FP64", "shape": [2, 3], "parameters": {"binary_data_size": 48}},
            {"name": "j", "datatype": "BOOL", "shape": [1], "data": [True]},
            {"name": "b", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}},
        ]
    }

    inputs = decode(body, first.tobytes(), second.tobytes()).request.inputs

    np.testing.assert_array_equal(inputs["a"], first.reshape(2, 3))
    np.testing.assert_array_equal(inputs["b"], second)
    assert inputs["a"].base is not None
    assert not inputs["a"].flags.writeable


@pytest.mark.parametrize("spaces", range(17))
def test_binary_tensors_are_aligned_whatever_the_length_of_the_json_part(spaces: int) -> None:
    text = orjson.dumps(binary("FP64", [1], 8)) + b" " * spaces

    value = decode(text, b"\0" * 8).request.inputs["x"]

    assert value.flags.aligned
    assert value.base is not None


def test_an_oddly_placed_second_tensor_is_aligned_too() -> None:
    body = {
        "inputs": [
            {"name": "a", "datatype": "UINT8", "shape": [1], "parameters": {"binary_data_size": 1}},
            {"name": "b", "datatype": "FP64", "shape": [1], "parameters": {"binary_data_size": 8}},
        ]
    }

    inputs = decode(body, b"\x07", np.array([2.5]).tobytes()).request.inputs

    assert inputs["b"].flags.aligned
    assert inputs["b"].tolist() == [2.5]


def test_an_empty_tensor_needs_no_bytes() -> None:
    text = orjson.dumps(binary("FP32", [0, 3], 0))

    assert decode(text).request.inputs["x"].shape == (0, 3)
    assert decode(one_input("BYTES", [0], data=[])).request.inputs["x"].shape == (0,)


MISTAKES = {
    "not json": (b"{bad", "failed to parse the request JSON buffer: "),
    "not an object": (b"[1]", "failed to parse the request JSON buffer: found array at 0, expected an object"),
    "no inputs": ({}, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
    "inputs an object": ({"inputs": {}}, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    "input a number": ({"inputs": [1]}, "(at /inputs/0)"),
    "id a number": ({"id": 1, "inputs": []}, "non-string as string, found integer 1 (at /id)"),
    "no name": ({"inputs": [{}]}, "non-existing object member 'name' (at /inputs/0)"),
    "shape a string": (one_input(shape="-1", data=[]), "Unable to parse 'shape': attempt to access JSON non-array"),
    "negative dim": (
        one_input(shape=[2, -1], data=[]),
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer, found integer -1 "
        "(at /inputs/0/shape/1)",
    ),
    "fractional dim": (one_input(shape=[1.5], data=[]), "found double 1.5 (at /inputs/0/shape/0)"),
    "boolean dim": (one_input(shape=[True], data=[1]), "found boolean (at /inputs/0/shape/0)"),
    "huge dim": (one_input(shape=[1, 2**63], data=[1]), "causes total element count to exceed maximum size of"),
    "huge product": (one_input(shape=[2**40, 2**40], data=[1]), "causes total element count to exceed"),
    "huge empty": (one_input(shape=[0, 2**62, 4], data=[]), "causes total element count to exceed"),
    "big dim": (one_input(shape=[2**40], data=[1]), "expected 1099511627776"),
    "many dims": (one_input(shape=[1] * 100, data=[1]), "has 100 dimensions, expected at most 32"),
    "datatype": (one_input("STRING", data=[]), "invalid datatype for input x: found 'STRING', expected one of BOOL"),
    "data objects": (one_input("BYTES", [1], data=[{"b64": ""}]), "non-string as string, found object"),
    "data a number": (one_input(data=1), "non-array as array, found integer 1 (at /inputs/0/data)"),
    "few elements": (one_input(data=[1]), "Failed to parse 'data' field: shape does not match true shape"),
    "many elements": (one_input(data=[1, 2, 3]), "Unable to parse 'data': Shape does not match true shape of 'data'"),
    "booleans as numbers": (one_input(data=[True, 1]), "non-double as double, found boolean"),
    "numbers as booleans": (one_input("BOOL", data=[1, 0]), "attempt to access JSON non-boolean as boolean"),
    "doubles as integers": (one_input("INT32", data=[1.0, 2]), "non-integer as integer, found double"),
    "null": (one_input(data=[None, 1]), "found null"),
    "out of range": (one_input("UINT8", data=[300, 1]), "does not fit UINT8"),
    "negative unsigned": (one_input("UINT64", data=[-1, 1]), "does not fit UINT64"),
    "beyond int64": (one_input("INT64", data=[2**63, 1]), "does not fit INT64"),
    "endless integer": (
        b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[' + b"9" * 5000 + b"]}]}",
        "failed to parse the request JSON buffer",
    ),
    "endless integer beside NaN": (b'{"id":"NaN","x":' + b"9" * 5000 + b"x", "failed to parse the request JSON buffer"),
    "half a character beside NaN": (b'{"id":"\\ud800","x":NaN,"inputs":[]}', "surrogates"),
    "fp16": (one_input("FP16", data=[1, 2]), "receiving FP16 data via JSON is not supported. Please use the binary"),
    "bf16": (one_input("BF16", data=[1, 2]), "receiving BF16 data via JSON is not supported"),
    "no source": (one_input(), "Input must set only one of the following fields: 'data', 'binary_data_size'"),
    "two sources": (one_input(data=[], parameters={"binary_data_size": 0}), "But found: binary_data_size, data"),
    "shared memory": (
        one_input(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}),
        "Unable to find shared memory region: 'r'",
    ),
    "negative size": (binary("FP32", [2], -8), "found integer -8 (at /inputs/0/parameters/binary_data_size)"),
    "same input twice": (
        {"id": "7", "inputs": one_input(data=[1, 2])["inputs"] * 2},  # type: ignore[operator]
        "[request id: 7] input 'x' already exists in request (at /inputs/1)",
    ),
    "same output twice": (
        {"inputs": [], "outputs": [{"name": "o"}, {"name": "o"}]},
        "[request id: <id_unknown>] output 'o' already exists in request (at /outputs/1)",
    ),
    "output in shared memory": (
        {"inputs": [], "outputs": [{"name": "o", "parameters": {"shared_memory_region": "r"}}]},
        "Unable to find shared memory region: 'r'",
    ),
    "binary_data a number": (
        {"inputs": [], "outputs": [{"name": "o", "parameters": {"binary_data": 1}}]},
        "found integer 1 (at /outputs/0/parameters/binary_data)",
    ),
    "classification a string": (
        {"inputs": [], "outputs": [{"name": "o", "parameters": {"classification": "2"}}]},
        "found string (at /outputs/0/parameters/classification)",
    ),
    "priority a string": ({"parameters": {"priority": "1"}, "inputs": []}, "found string (at /parameters/priority)"),
    "parameter an array": (
        {"parameters": {"p": []}, "inputs": []},
        "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    "reserved parameter": ({"parameters": {"triton_x": 1}, "inputs": []}, "starting with 'triton_' are reserved"),
    "binary default a string": (
        {"parameters": {"binary_data_output": "yes"}, "inputs": []},
        "attempt to access JSON non-boolean as boolean",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_what_was_found_and_where(mistake: str) -> None:
    body, text = MISTAKES[mistake]

    with pytest.raises(InvalidRequestError) as caught:
        decode(body)

    assert text in str(caught.value)


BYTES_SHAPE_2 = orjson.dumps(binary("BYTES", [2], 9))
BLOB_MISTAKES = {
    "short": (binary("FP32", [2], 8), b"\0" * 7, "unexpected size for input 'x', expecting 1 additional bytes for"),
    "long": (binary("FP32", [2], 8), b"\0" * 9, "unexpected additional input data for model 'm'"),
    "size": (
        binary("FP32", [3], 8),
        b"\0" * 8,
        "[request id: <id_unknown>] input byte size mismatch for input 'x' for model 'm'. Expected 12, got 8",
    ),
    "few strings": (BYTES_SHAPE_2, b"\5\0\0\0hello", "expected 2 string elements for inference input 'x', got 1"),
    "many strings": (binary("BYTES", [1], 9), b"\0\0\0\0\1\0\0\0a", "unexpected number of string elements"),
    "half a length": (BYTES_SHAPE_2, b"\2\0\0\0hi\1\0\0", "incomplete string length indicator"),
    "half a string": (BYTES_SHAPE_2, b"\2\0\0\0hi" + b"\xff" * 3, "incomplete string"),
    "endless string": (binary("BYTES", [1], 4), b"\xff\xff\xff\xff", "expecting string of length 4294967295"),
}


@pytest.mark.parametrize("mistake", BLOB_MISTAKES)
def test_binary_data_that_does_not_fit_is_refused(mistake: str) -> None:
    body, blob, text = BLOB_MISTAKES[mistake]

    with pytest.raises(InvalidRequestError) as caught:
        decode(body, blob)

    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"abc", "unable to parse Inference-Header-Content-Length"),
        (b"-1", "unable to parse"),
        (b"", "unable to parse"),
        (b"9" * 30, "unable to parse"),
        (b"11", "inference header size should be in range (0, 10), got: 11"),
    ],
)
def test_a_header_length_that_is_none_is_refused(value: bytes, text: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        assemble((b"0123456789",), value)

    assert text in str(caught.value)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["arrays", "objects"])
@pytest.mark.parametrize("prefix", [b'{"x":', b'{"n":NaN,"x":'], ids=["fast parser", "tolerant parser"])
def test_very_deep_json_is_refused_at_once(prefix: bytes, opening: bytes) -> None:
    started_s = time.monotonic()

    with pytest.raises(MalformedRequestError, match="failed to parse the request JSON buffer"):
        decode(prefix + opening * 100_000)

    assert time.monotonic() - started_s < 1


def test_data_nested_deeper_than_a_hundred_levels_is_refused() -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 500 + b"1" + b"]" * 500 + b"}]}"

    with pytest.raises(MalformedRequestError, match="nested too deeply, expected at most 100 levels"):
        decode(body)


def test_a_json_tensor_larger_than_the_limit_once_expanded_is_refused() -> None:
    with pytest.raises(RequestTooLargeError, match="--http-max-input-size"):
        decode(one_input("FP64", [100], data=[0] * 100), limit_bytes=799)


FP32 = DataType.FP32
BATCHED = make_spec("m", [tensor("x", FP32, -1)], [])
UNBATCHED = make_spec("m", [tensor("x", FP32, 2, -1)], [], 0)
STRING = make_spec("m", [tensor("x", DataType.BYTES, 1)], [])


@pytest.mark.parametrize(
    ("spec", "shape"), [(BATCHED, (1, 8)), (UNBATCHED, (2, 4))], ids=["with a batch dimension", "without"]
)
def test_the_shape_of_a_raw_request_is_deduced(spec, shape) -> None:
    values = np.arange(8, dtype=np.float32)

    decoded = decode_raw(None, assemble((values.tobytes(),), b"0"), spec)

    np.testing.assert_array_equal(decoded.request.inputs["x"], values.reshape(shape))
    assert decoded.default == BINARY_FORM


def test_a_raw_string_comes_without_its_length() -> None:
    decoded = decode_raw(None, assemble((b"\xff", b"abc"), b"0"), STRING)

    assert decoded.request.inputs["x"].tolist() == [[b"\xffabc"]]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (make_spec("m", [tensor("a", FP32, 1), tensor("b", FP32, 1)], []), "Raw request must only have 1 input"),
        (make_spec("m", [tensor("x", FP32, -1, -1)], []), "more than one variable-sized dimension"),
        (make_spec("m", [tensor("x", FP32, 3)], []), "found 10 bytes, expected 12"),
        (make_spec("m", [tensor("x", FP32, -1)], []), "found 10 bytes, expected a multiple of 4"),
        (make_spec("m", [tensor("x", FP32, 0)], []), "found 10 bytes, expected 0"),
        (make_spec("m", [tensor("x", DataType.BYTES, 2)], []), "must have input shape [1]"),
    ],
)
def test_a_raw_request_that_cannot_be_deduced_is_refused(spec, text) -> None:
    body = assemble((b"0123456789",), b"0")

    with pytest.raises(InvalidRequestError) as caught:
        decode_raw(None, body, spec)

    assert text in str(caught.value)


FLOATS = orjson.dumps(binary("FP32", [1000], 4000))
STRINGS = orjson.dumps(binary("BYTES", [1000], 4000))


@pytest.mark.parametrize(
    ("text", "tail_bytes", "expected"),
    [
        (FLOATS, 4000, False),
        (FLOATS, 0, False),
        (STRINGS, 4000, True),
        (STRINGS, 0, False),
        (STRINGS.replace(b"BYTES", b"\\u0042YTES"), 4000, True),
        (FLOATS + b" " * 1000, 0, True),
    ],
    ids=["binary", "small", "strings", "few strings", "strings in disguise", "much json"],
)
def test_decoding_is_slow_when_elements_are_looked_at_one_by_one(text: bytes, tail_bytes: int, expected: bool) -> None:
    body = assemble((text, bytes(tail_bytes)), b"%d" % len(text))

    assert is_slow(body, inline_bytes=1000) is expected


NUMBERS = st.integers(-300, 300) | st.floats(-1e300, 1e300) | st.integers(2**63 - 1, 2**64 - 1)
ITEMS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "y"]),
        "datatype": st.sampled_from(["FP32", "FP64", "INT8", "UINT64", "BOOL", "BYTES", "FP16", "WHAT"]),
        "shape": st.lists(st.integers(-1, 3), max_size=3),
        "data": st.lists(NUMBERS | st.booleans() | st.text(max_size=2), max_size=6),
    }
)


@given(items=st.lists(ITEMS, min_size=1, max_size=2))
def test_the_short_cut_for_plain_inputs_agrees_with_the_careful_way(items):
    careful_items = [{**item, "parameters": {}} for item in items]  # an extra member sends it the careful way

    assert outcome_of(items) == outcome_of(careful_items)


def outcome_of(items):
    try:
        inputs = decode(orjson.dumps({"inputs": items})).request.inputs
    except InvalidRequestError as error:
        return str(error)
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in inputs.items()}
