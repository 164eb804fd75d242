"""Answers in, bytes out."""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from gateway.asgi import Reply
from gateway.v2.request import BINARY_FORM, JSON_FORM, Decoded, OutputForm
from gateway.v2.response import is_slow_to_render, render
from models.errors import InvalidRequestError
from models.inference import InferRequest, InferResponse
from models.spec import ModelSpec
from models.tensors import DataType
from tests.gateway.fake_engine import LABELS, make_spec, tensor

SPEC = make_spec("m", [], [tensor("o", DataType.FP32, 4, labels=LABELS)])
FLAT_SPEC = make_spec("m", [], [tensor("o", DataType.FP32, 4)], 0)


def answer(form: OutputForm, request_id: str = "", spec: ModelSpec = SPEC, **outputs: object) -> Reply:
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    response = InferResponse(model="m", version=3, request_id=request_id, outputs=arrays)
    decoded = Decoded(InferRequest(model="m", inputs={}), form)
    return render(decoded, response, spec)


def strings(*elements: bytes) -> np.ndarray:
    return np.array([*elements, None], np.object_)[:-1]


def test_a_json_answer_is_flat_and_exact() -> None:
    reply = answer(JSON_FORM, "7", a=np.array([[0.1, 2]], np.float32), b=np.array([[2**63 - 1]], np.int64))

    assert reply.headers == ((b"content-type", b"application/json"),)
    assert reply.body == (
        b'{"id":"7","model_name":"m","model_version":"3","outputs":['
        b'{"name":"a","datatype":"FP32","shape":[1,2],"data":[0.10000000149011612,2.0]},'
        b'{"name":"b","datatype":"INT64","shape":[1,1],"data":[9223372036854775807]}]}'
    )


def test_a_binary_answer_carries_its_blobs_behind_the_json() -> None:
    reply = answer(BINARY_FORM, a=np.array([[1, 2]], np.int16), b=strings(b"", b"\xc3\xa9", b"\x00\xff"))

    text = (
        b'{"model_name":"m","model_version":"3","outputs":['
        b'{"name":"a","datatype":"INT16","shape":[1,2],"parameters":{"binary_data_size":4}},'
        b'{"name":"b","datatype":"BYTES","shape":[3],"parameters":{"binary_data_size":16}}]}'
    )
    assert reply.body == text + b"\1\0\2\0" + b"\0\0\0\0" + b"\2\0\0\0\xc3\xa9" + b"\2\0\0\0\x00\xff"
    assert reply.headers == (
        (b"content-type", b"application/octet-stream"),
        (b"inference-header-content-length", b"%d" % len(text)),
    )


def test_an_empty_binary_output_alone_makes_a_json_answer() -> None:
    reply = answer(BINARY_FORM, a=np.zeros((0, 4), np.float32))

    assert reply.headers == ((b"content-type", b"application/json"),)
    assert json.loads(reply.body)["outputs"][0]["parameters"] == {"binary_data_size": 0}


def test_a_transposed_output_is_sent_in_row_major_order() -> None:
    reply = answer(BINARY_FORM, a=np.arange(6, dtype=np.uint8).reshape(2, 3).T)

    assert reply.body.endswith(bytes([0, 3, 1, 4, 2, 5]))


def test_not_a_number_and_infinities_are_printed_as_such() -> None:
    reply = answer(JSON_FORM, a=np.array([np.nan, np.inf, -np.inf, 0.5], np.float32))

    assert b'"data":[NaN,Infinity,-Infinity,0.5]' in reply.body


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-1, 1e30, 200, dtype=np.float32),
        np.linspace(-1e-300, 1e300, 200),
        np.arange(200, dtype=np.uint64) + np.uint64(2**63),
        np.arange(400, dtype=np.int8)[::2] * np.int8(1),
        np.arange(200) % 3 == 0,
        np.append(np.linspace(0, 1, 200, dtype=np.float32), [np.nan, np.inf]).astype(np.float32).reshape(2, 101).T,
    ],
    ids=["FP32", "FP64", "UINT64", "INT8", "BOOL", "not finite, transposed"],
)
def test_many_numbers_are_written_as_few_are(values: np.ndarray) -> None:
    reply = answer(JSON_FORM, a=values)

    data = reply.body.partition(b'"data":[')[2].removesuffix(b"]}]}")
    assert [np.float64(text) for text in json.loads(b"[" + data + b"]")] == pytest.approx(
        values.reshape(-1).astype(np.float64).tolist(), rel=0, abs=0, nan_ok=True
    )
    assert data.startswith(json.dumps(values.reshape(-1).tolist()[:3], separators=(",", ":"))[1:-1].encode())


def test_the_word_null_in_a_string_changes_nothing() -> None:
    reply = answer(JSON_FORM, a=strings(b"null"), b=np.array([1.5]))

    assert json.loads(reply.body)["outputs"][0]["data"] == ["null"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_has_no_json_form(dtype: type) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        answer(JSON_FORM, a=np.zeros(0, dtype))

    assert str(caught.value) == (
        f"sending {'FP16' if dtype is np.float16 else 'BF16'} data via JSON is not supported. Please use the binary "
        "data format for output"
    )


def test_bytes_that_are_no_utf8_are_sent_in_json_as_they_are() -> None:
    reply = answer(JSON_FORM, a=strings(b'\xff\xfe\x00"\n\\/', "é".encode()))

    assert b'"data":["\xff\xfe\\u0000\\"\\n\\\\/","\xc3\xa9"]' in reply.body


def test_the_parameters_of_an_answer_come_before_its_outputs() -> None:
    response = InferResponse(
        model="m", version=3, outputs={}, parameters={"a": 1, "b": True, "c": "x", "d": 0.5, "e": math.inf}
    )

    reply = render(Decoded(InferRequest(model="m", inputs={}), JSON_FORM), response, SPEC)

    assert reply.body == (
        b'{"model_name":"m","model_version":"3",'
        b'"parameters":{"a":1,"b":true,"c":"x","d":0.5,"e":Infinity},"outputs":[]}'
    )


class Sink:
    """A region of shared memory that keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[tuple[bytes, str]] = []

    def write(self, data: memoryview | bytes, output: str) -> None:
        self.written.append((bytes(data), output))


def test_an_output_in_shared_memory_leaves_only_its_description() -> None:
    sink = Sink()

    reply = answer(OutputForm(is_binary=False, region=sink), a=np.array([[1, 2]], np.int16))  # type: ignore[arg-type]

    assert sink.written == [(b"\1\0\2\0", "a")]
    assert json.loads(reply.body)["outputs"] == [{"name": "a", "datatype": "INT16", "shape": [1, 2]}]


def test_classes_are_sorted_labelled_and_shaped_by_row() -> None:
    scores = np.array([[0.25, 0.8123, 0.25, 0.1], [0, 1, 2, 3]], np.float32)

    reply = answer(OutputForm(is_binary=False, classes=3), o=scores)

    output = json.loads(reply.body)["outputs"][0]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 3])
    assert output["data"] == [
        "0.812300:1:dog", "0.250000:0:cat", "0.250000:2", "3.000000:3:bird", "2.000000:2", "1.000000:1:dog",
    ]  # fmt: skip


def test_integer_classes_are_plain_and_unsigned_ones_sort_right() -> None:
    scores = np.array([1, 255, 0], np.uint8)

    reply = answer(OutputForm(is_binary=False, classes=9), spec=FLAT_SPEC, o=scores)

    output = json.loads(reply.body)["outputs"][0]
    assert (output["shape"], output["data"]) == ([3], ["255:1", "1:0", "0:2"])


def test_what_is_no_number_is_the_last_class() -> None:
    scores = np.array([1, np.nan, 3], np.float32)

    reply = answer(OutputForm(is_binary=False, classes=3), spec=FLAT_SPEC, o=scores)

    assert json.loads(reply.body)["outputs"][0]["data"] == ["3.000000:2", "1.000000:0", "nan:1"]


def test_classes_of_nothing_are_nothing() -> None:
    reply = answer(OutputForm(is_binary=True, classes=2), o=np.zeros((2, 0), np.float32))

    assert json.loads(reply.body)["outputs"][0]["shape"] == [2, 0]


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (np.zeros((1, 2), np.bool_), "class result not available for output due to unsupported type 'BOOL'"),
        (np.zeros((1, 2), np.float16), "unsupported type 'FP16'"),
        (strings(b"a").reshape(1, 1), "unsupported type 'BYTES'"),
        (np.zeros((1, 1_000_001), np.int8), "classification output tensor too large"),
    ],
)
def test_outputs_that_have_no_classes_are_refused(scores: np.ndarray, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        answer(OutputForm(is_binary=False, classes=1), o=scores)


@pytest.mark.parametrize(
    ("form", "values", "is_slow"),
    [
        (BINARY_FORM, np.zeros(1000), False),
        (JSON_FORM, np.zeros(1000), True),
        (JSON_FORM, np.zeros(10), False),
        (BINARY_FORM, strings(*[b"a"] * 1000), True),
        (OutputForm(is_binary=True, classes=1), np.zeros(1000), True),
    ],
)
def test_rendering_is_slow_when_elements_are_looked_at_one_by_one(form, values, is_slow) -> None:
    response = InferResponse(model="m", version=1, outputs={"o": values})
    decoded = Decoded(InferRequest(model="m", inputs={}), form)

    assert is_slow_to_render(decoded, response, inline_elements=100) is is_slow
