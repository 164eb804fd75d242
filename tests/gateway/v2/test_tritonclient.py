"""The unmodified Triton client against a real server on a socket."""

import http.client
import socket
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import orjson
import pytest
import tritonclient.http as triton

from batching.core.errors import QueueFullError
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import served

pytestmark = pytest.mark.e2e

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.ones((1, 16), np.int32)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(FakeEngine({"ident_int8": QueueFullError(limit=1, unit="requests")}), max_body_bytes=2 << 20) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield client


def wanted(name: str, array: np.ndarray, datatype: str, is_binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=is_binary)
    return tensor


def simple_inputs(is_binary: bool = True) -> list[triton.InferInput]:
    return [wanted("INPUT0", A, "INT32", is_binary), wanted("INPUT1", B, "INT32", is_binary)]


def refusal_of(client: triton.InferenceServerClient, model: str, *inputs: triton.InferInput) -> tuple[str, str]:
    with pytest.raises(triton.InferenceServerException) as caught:
        client.infer(model, inputs)
    return caught.value.status(), caught.value.message()


def test_health_and_metadata(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert not client.is_model_ready("nobody")
    assert {"statistics", "binary_tensor_data"} <= set(client.get_server_metadata()["extensions"])
    assert client.get_model_metadata("simple")["inputs"][0]["shape"] == [-1, 16]
    assert client.get_model_config("simple")["max_batch_size"] == 8


def test_binary_tensors_without_listed_outputs(client) -> None:
    result = client.infer("simple", simple_inputs(), request_id="7")

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), A + B)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), A - B)
    assert result.get_response()["id"] == "7"


def test_json_tensors(client) -> None:
    outputs = [triton.InferRequestedOutput("OUTPUT1", binary_data=False)]

    result = client.infer("simple", simple_inputs(is_binary=False), outputs=outputs)

    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), A - B)
    assert result.as_numpy("OUTPUT0") is None


def test_one_output_binary_and_the_other_json(client) -> None:
    outputs = [
        triton.InferRequestedOutput("OUTPUT1", binary_data=True),
        triton.InferRequestedOutput("OUTPUT0", binary_data=False),
    ]

    result = client.infer("simple", simple_inputs(), outputs=outputs)

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), A + B)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), A - B)


def test_strings(client) -> None:
    strings = np.array([[b""], ["é".encode()], [b"\x00\xff"]], np.object_)

    result = client.infer("ident_str", [wanted("IN", strings, "BYTES")])

    assert result.as_numpy("OUT").tolist() == strings.tolist()


@pytest.mark.parametrize(("datatype", "dtype"), [("FP16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_half_precision(client, datatype: str, dtype: type) -> None:
    values = np.array([[0.5, -1.5, 3]], dtype)

    result = client.infer(f"ident_{datatype.lower()}", [wanted("IN", values, datatype)])

    np.testing.assert_array_equal(result.as_numpy("OUT"), values)


def test_half_precision_as_json_is_refused(client) -> None:
    outputs = [triton.InferRequestedOutput("OUT", binary_data=False)]

    with pytest.raises(triton.InferenceServerException, match="FP16 data via JSON is not supported"):
        client.infer("ident_fp16", [wanted("IN", np.ones((1, 2), np.float16), "FP16")], outputs=outputs)


@pytest.mark.parametrize("request_coding", ["gzip", "deflate"])
@pytest.mark.parametrize("reply_coding", ["gzip", "deflate"])
def test_compression(client, request_coding: str, reply_coding: str) -> None:
    result = client.infer(
        "simple",
        simple_inputs(),
        request_compression_algorithm=request_coding,
        response_compression_algorithm=reply_coding,
    )

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), A + B)


def test_classes(client) -> None:
    scores = np.array([[0.1, 0.7, 0.2, 0]], np.float32)
    outputs = [triton.InferRequestedOutput("OUT", class_count=2)]

    result = client.infer("cls", [wanted("IN", scores, "FP32")], outputs=outputs)

    assert result.as_numpy("OUT").tolist() == [[b"0.700000:1:dog", b"0.200000:2"]]


def test_a_large_tensor_in_one_piece(client) -> None:
    values = np.arange(150_528, dtype=np.float32).reshape(1, -1)

    result = client.infer("ident_fp32", [wanted("IN", values, "FP32")])

    np.testing.assert_array_equal(result.as_numpy("OUT"), values)


def test_a_large_tensor_as_json(client) -> None:
    values = np.arange(100_000, dtype=np.float32).reshape(1, -1)
    outputs = [triton.InferRequestedOutput("OUT", binary_data=False)]

    result = client.infer("ident_fp32", [wanted("IN", values, "FP32", is_binary=False)], outputs=outputs)

    np.testing.assert_array_equal(result.as_numpy("OUT"), values)


MISTAKES = {
    "unknown model": ("nobody", "404", "Request for unknown model: 'nobody' is not found", {}),
    "one input": ("simple", "400", "expected 2 inputs but got 1 inputs", {"INPUT0": A}),
    "shape": (
        "simple", "400", "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,8]",
        {"INPUT0": A[:, :8], "INPUT1": B},
    ),
    "type": (
        "simple", "400", "data-type is 'FP32', but model 'simple' expects 'INT32'",
        {"INPUT0": A.astype(np.float32), "INPUT1": B},
    ),
    "batch size": (
        "simple", "400", "batch-size must be <= 8 for 'simple'", {"INPUT0": A.repeat(9, 0), "INPUT1": B.repeat(9, 0)},
    ),
    "full queue": ("ident_int8", "503", "Exceeds maximum queue size", {"IN": np.ones((1, 1), np.int8)}),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_reported_in_tritons_words(client, mistake: str) -> None:
    model, expected_status, text, arrays = MISTAKES[mistake]
    datatypes = {"i": "INT", "f": "FP"}
    inputs = [
        wanted(name, array, f"{datatypes[array.dtype.kind]}{array.dtype.itemsize * 8}")
        for name, array in arrays.items()
    ]

    status, message = refusal_of(client, model, *inputs)

    assert (status, text in message) == (expected_status, True), message


def test_statistics_grow_by_what_was_asked(client) -> None:
    def successes() -> int:
        statistics = client.get_inference_statistics("simple")["model_stats"][0]["inference_stats"]
        return statistics["success"]["count"]

    before = successes()
    for _ in range(10):
        client.infer("simple", simple_inputs())

    assert successes() == before + 10


def test_a_body_over_the_limit_is_answered_and_the_connection_still_works(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v2/models/simple/infer", body=bytes(3 << 20))
    refusal = connection.getresponse()
    text = refusal.read()
    connection.request("GET", "/v2/health/ready")
    ready = connection.getresponse()

    connection.close()

    assert refusal.status == 400
    assert "--http-max-input-size" in orjson.loads(text)["error"]
    assert ready.status == 200


def test_a_client_that_hangs_up_cancels_its_request() -> None:
    engine = FakeEngine()
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]}'
    head = b"POST /v2/models/hold/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with served(engine) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head + body)
        assert engine.happened.get(timeout=10) == "entered"

        connection.close()

        assert engine.happened.get(timeout=10) == "cancelled"
