"""Bodies in, requests out."""

import time

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import (
    V2_ERRORS,
    ErrorRow,
    RequestTooLargeError,
    find_row,
)
from gateway.v2.body import assemble, is_slow
from gateway.v2.raw import decode_raw
from gateway.v2.request import BINARY_FORM, JSON_FORM, Decoded, OutputForm, decode_json
from models.errors import InvalidRequestError, MalformedRequestError
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor
from tests.gateway.v2.bodies import LIMIT_BYTES, SPEC, binary, decode, one_input


def test_all_members_of_a_request_arrive() -> None:
    decoded = decode(
        {
            "id": "42",
            "model_name": "ignored",
            "parameters": {
                "priority": 2, "timeout": 1500, "binary_data_output": True, "mode": "fast", "p": 0.5,
                "sequence_id": 2**64 - 1, "sequence_start": True, "sequence_end": True, "headers": 1, "big": 2**63,
            },
            "inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [[1, 9007199254740993]]}],
            "outputs": [
                {"name": "a"},
                {"name": "b", "parameters": {"binary_data": True}},
                {"name": "c", "parameters": {"classification": 3}},
            ],
        }
    )  # fmt: skip

    request = decoded.request
    assert request.inputs["x"].dtype == np.int64
    assert request.inputs["x"].tolist() == [[1, 9007199254740993]]
    assert (request.request_id, request.priority, request.timeout_ns) == ("42", 2, 1_500_000)
    assert request.parameters == {"mode": "fast", "p": 0.5, "headers": 1, "big": 2.0**63}
    assert isinstance(request.parameters["big"], float)
    assert (request.sequence_id, request.sequence_start, request.sequence_end) == (2**64 - 1, True, True)
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
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[6],"data":[NaN,Infinity,-Infinity,Inf,-Inf,-NaN]}]}'

    values = decode(body).request.inputs["x"]

    np.testing.assert_array_equal(values, np.array([np.nan, np.inf, -np.inf, np.inf, -np.inf, np.nan], np.float32))


def test_a_byte_order_mark_and_what_follows_a_zero_byte_are_passed_over() -> None:
    body = b"\xef\xbb\xbf" + orjson.dumps(one_input(data=[1, 2])) + b"\0x"

    assert decode(body).request.inputs["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("datatype", "written", "read"),
    [
        ("UINT8", [300, 2**63, 2**64 - 1, 0], [44, 0, 255, 0]),
        ("UINT64", [2**64 - 1], [2**64 - 1]),
        ("INT8", [300, -129, 2**63 - 1, -(2**63)], [44, 127, -1, 0]),
        ("INT32", [2**31, -(2**31) - 1, 2**32 + 1], [-(2**31), 2**31 - 1, 1]),
        ("INT64", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("FP32", [2**64 - 1, 16777217, 1e300], [float(2**64), 16777216.0, np.inf]),
        ("FP64", [2**53 + 1, 0.1], [float(2**53), 0.1]),
    ],
)
@pytest.mark.parametrize("repetitions", [1, 300], ids=["small", "large"])
def test_integers_keep_their_lower_bits(datatype: str, written: list, read: list, repetitions: int) -> None:
    body = one_input(datatype, [len(read) * repetitions], data=written * repetitions)

    assert decode(body).request.inputs["x"].tolist() == read * repetitions


def test_strings_keep_their_bytes_even_if_they_are_not_utf8() -> None:
    body = b'{"id":"\xff\xc3\xa9","inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["\xfe\xc3\xa9\\n"]}]}'

    request = decode(body).request

    assert request.inputs["x"].tolist() == [b"\xfe\xc3\xa9\n"]
    assert request.request_id == "?é"


@pytest.mark.parametrize("data", [1, [True], ["a"], [1]])
def test_the_data_of_an_empty_tensor_are_not_looked_at(data: object) -> None:
    assert decode(one_input("FP16", [0], data=data)).request.inputs["x"].shape == (0,)


def test_the_data_of_a_tensor_without_dimensions_are_not_looked_at_because_no_model_has_one() -> None:
    assert decode(one_input(shape=[], data=[1, 2])).request.inputs["x"].shape == ()


def test_what_is_no_object_counts_as_one_without_members() -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1], "parameters": 7}]}
    outputs = [{"name": "o", "parameters": None}]

    decoded = decode({**body, "outputs": outputs})

    assert decoded.forms == {"o": JSON_FORM}


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


@pytest.mark.parametrize(
    ("value", "length"),
    [(b"95x", None), (b"7x", 7), (b" 7", 7), (b"+7", 7), (b"07", 7), (b"1.5", 1), (b"abc", 0), (b"", 0), (b"0x7", 0)],
)
def test_a_header_length_is_the_number_that_it_begins_with(value: bytes, length: int | None) -> None:
    data = bytes(10) if length is not None else bytes(100)

    body = assemble((data,), value)

    assert body.tensors_start - body.json_start == (95 if length is None else length)


@pytest.mark.parametrize("value", [b"-1", b"11", b"2147483648", b"9" * 5000], ids=["negative", "11", "int", "endless"])
def test_a_header_length_outside_the_body_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        assemble((b"0123456789",), value)

    assert str(caught.value) == f"inference header size should be in range (0, 10), got: {value[:64].decode()}"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["arrays", "objects"])
@pytest.mark.parametrize("prefix", [b'{"x":', b'{"n":NaN,"x":'], ids=["fast parser", "Triton's parser"])
def test_very_deep_json_is_refused_at_once(prefix: bytes, opening: bytes) -> None:
    started_s = time.monotonic()

    with pytest.raises(MalformedRequestError, match="nested too deeply, expected at most 100 levels"):
        decode(prefix + opening * 1_000_000)

    assert time.monotonic() - started_s < 1


def test_a_json_tensor_larger_than_the_limit_once_expanded_is_refused() -> None:
    with pytest.raises(RequestTooLargeError, match="--http-max-input-size"):
        decode(one_input("FP64", [100], data=[0] * 100), limit_bytes=799)


FP32 = DataType.FP32
BATCHED = make_spec("m", [tensor("x", FP32, -1)], [])
UNBATCHED = make_spec("m", [tensor("x", FP32, 2, -1)], [], 0)
RAW_SIZE = "input byte size mismatch for input 'raw_input' for model 'm'. "
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
        (
            make_spec("m", [tensor("a", FP32, 1), tensor("b", FP32, 1)], []),
            "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm' model configuration",
        ),
        (
            make_spec("m", [tensor("x", FP32, -1, -1)], []),
            "The shape of the raw input 'x' can not be deduced because there are more than one variable-sized "
            "dimension",
        ),
        (make_spec("m", [tensor("x", FP32, 3)], []), f"{RAW_SIZE}Expected 12, got 10"),
        (make_spec("m", [tensor("x", FP32, -1)], []), f"{RAW_SIZE}Expected 8, got 10"),
        (make_spec("m", [tensor("x", FP32, 0)], []), f"{RAW_SIZE}Expected 0, got 10"),
        (
            make_spec("m", [tensor("x", DataType.BYTES, -1)], []),
            "For BYTE datatype raw input 'x', the model must have input shape [1]",
        ),
    ],
)
def test_a_raw_request_that_cannot_be_deduced_is_refused(spec, text) -> None:
    body = assemble((b"0123456789",), b"0")

    with pytest.raises(InvalidRequestError) as caught:
        decode_raw(None, body, spec)

    assert str(caught.value) == f"[request id: <id_unknown>] {text}"


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
LEAVES = NUMBERS | st.booleans() | st.text(max_size=2) | st.none()
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
    careful_items = [{**item, "extra": {}} for item in items]  # an extra member sends it the careful way

    assert outcome_of(items) == outcome_of(careful_items)


NESTED = st.recursive(st.lists(NUMBERS, max_size=6), lambda inner: st.lists(inner, max_size=3), max_leaves=4)
MIXED = st.lists(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=6), max_size=4)


@given(item=ITEMS, data=NESTED | MIXED, extra=st.recursive(LEAVES, st.lists, max_leaves=3))
@settings(max_examples=300)
def test_a_large_body_means_the_same_as_a_small_one(item, data, extra):
    item = {**item, "shape": [count_leaves(data)], "data": data, "extra": extra}
    padding = " " * 1000  # sends it to the parser for large bodies

    assert outcome_of([item], padding) == outcome_of([item])


@pytest.mark.parametrize("text", [b'{"inputs":[],"inputs":[1]}', b'{"inputs":[{"name":"x","name":"y"}]}', b"[[]]"])
def test_an_odd_large_body_means_the_same_as_a_small_one(text: bytes) -> None:
    outcomes = []
    for body in (text, text + b" " * 1000):
        with pytest.raises(InvalidRequestError) as caught:
            decode(body)
        outcomes.append((type(caught.value), str(caught.value)))

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(("outer", "inner", "is_refused"), [(50, 50, False), (50, 51, True), (1, 100, True)])
def test_a_large_body_may_be_as_deep_as_a_small_one(outer: int, inner: int, is_refused: bool) -> None:
    gap = b" " * 300_000  # so that it is not looked at in one piece
    data = b"[" * outer + gap + b"[" * inner + b"1" + b"]" * inner + gap + b"]" * outer
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":%s}]}' % data

    if is_refused:
        with pytest.raises(MalformedRequestError, match="nested too deeply"):
            decode(body)
    else:
        assert decode(body).request.inputs["x"].tolist() == [1]


def count_leaves(data: object) -> int:
    return sum(map(count_leaves, data)) if isinstance(data, list) else 1


def outcome_of(items, padding=""):
    try:
        inputs = decode(orjson.dumps({"inputs": items}) + padding.encode()).request.inputs
    except InvalidRequestError as error:
        return type(error), str(error)
    return {name: (str(array.dtype), array.shape, array.tolist()) for name, array in inputs.items()}


@given(text=st.binary(max_size=200) | st.text(max_size=200).map(str.encode), length=st.none() | st.integers(-1, 300))
@settings(max_examples=300)
def test_whatever_comes_is_decoded_or_refused_with_a_declared_error(text: bytes, length: int | None) -> None:
    outcome: object = None
    try:
        body = assemble((text,), None if length is None else b"%d" % length)
        outcome = decode_raw(None, body, SPEC) if body.is_raw else decode_json(SPEC, None, body, LIMIT_BYTES)
    except InvalidRequestError as error:
        outcome = find_row(V2_ERRORS, type(error))

    assert isinstance(outcome, Decoded | ErrorRow)


def test_a_binary_tensor_is_a_view_on_the_one_joined_body() -> None:
    values = np.arange(150_528, dtype=np.float32)
    text = orjson.dumps(binary("FP32", [1, 3, 224, 224], values.nbytes))
    chunks = [text, *(values.tobytes()[start : start + 65_536] for start in range(0, values.nbytes, 65_536))]

    body = assemble(chunks, b"%d" % len(text))
    array = decode_json(SPEC, None, body, LIMIT_BYTES).request.inputs["x"]

    assert np.shares_memory(array, np.frombuffer(body.data, np.uint8))
    np.testing.assert_array_equal(array.reshape(-1), values)
