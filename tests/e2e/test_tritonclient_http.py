"""Everything that `tritonclient.http` offers, unmodified, against the whole server."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.http import InferenceServerClientPlugin
from tritonclient.utils import InferenceServerException

from tests.e2e.client_models import BINARY_ONLY, DATATYPES, row, write_repository
from tests.e2e.server import Server

pytestmark = pytest.mark.e2e

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = write_repository(tmp_path_factory.mktemp("clients"))
    flags = ("--model-control-mode=explicit", "--load-model=*", "--http-restricted-api=trace:secret=word")
    with Server(f"--model-repository={root}", *flags) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as client:
        yield client


def inputs(array: np.ndarray, word: str = "FP32", *, is_binary: bool = True) -> list[triton.InferInput]:
    tensor = triton.InferInput("x", array.shape, word)
    tensor.set_data_from_numpy(array, binary_data=is_binary)
    return [tensor]


def output(name: str = "y", **more: Any) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, **more)]


def failure(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status(), caught.value.message()


FORMS = {
    f"{word} {'binary' if there else 'JSON'} in, {'binary' if back else 'JSON'} out": (word, there, back)
    for word in DATATYPES
    for there in (True, False)
    for back in (True, False)
    if (there and back) or word not in BINARY_ONLY
}


@pytest.mark.parametrize(("word", "in_binary", "out_binary"), FORMS.values(), ids=FORMS)
def test_values_come_back_as_they_went(client, word: str, in_binary: bool, out_binary: bool) -> None:
    sent = row(word)
    result = client.infer(
        f"echo_{word.lower()}", inputs(sent, word, is_binary=in_binary), outputs=output(binary_data=out_binary)
    )
    found = result.as_numpy("y")
    if word == "BYTES" and not out_binary:
        found = np.array([[text.encode() for text in found[0]]], object)
    np.testing.assert_array_equal(found, sent)
    assert result.get_output("y")["datatype"] == word


@pytest.mark.parametrize("word", BINARY_ONLY)
def test_half_precision_cannot_be_asked_for_in_json(client, word: str) -> None:
    status, message = failure(
        lambda: client.infer(f"echo_{word.lower()}", inputs(row(word), word), outputs=output(binary_data=False))
    )
    assert status == "400"
    assert message.startswith(f"sending {word} data via JSON is not supported. Please use the binary data format")


def test_without_named_outputs_all_come_in_binary(client) -> None:
    result = client.infer("echo_fp32", inputs(ROWS), request_id="é 1")
    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("é 1", "echo_fp32", "1")
    assert response["outputs"][0]["parameters"] == {"binary_data_size": ROWS.nbytes}


def test_a_model_without_batch_dimension_and_a_version_in_the_path(client) -> None:
    result = client.infer("single", inputs(ROWS[0]), model_version="1")
    np.testing.assert_array_equal(result.as_numpy("y"), ROWS[0])


def test_many_asynchronous_requests_each_get_their_own_answer(client) -> None:
    pending = [client.async_infer("echo_fp32", inputs(ROWS + number), request_id=str(number)) for number in range(32)]
    for number, request in enumerate(pending):
        result = request.get_result()
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS + number)
        assert result.get_response()["id"] == str(number)


@pytest.mark.parametrize("there", [None, "gzip", "deflate"])
@pytest.mark.parametrize("back", [None, "gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
def test_bodies_may_be_compressed_both_ways(client, there: str | None, back: str | None, is_binary: bool) -> None:
    result = client.infer(
        "echo_fp32",
        inputs(ROWS, is_binary=is_binary),
        outputs=output(binary_data=is_binary),
        request_compression_algorithm=there,
        response_compression_algorithm=back,
    )
    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
def test_classes_are_named_by_the_labels_of_the_model(client, is_binary: bool) -> None:
    scores = np.array([[0.25, 0.5, 0.125], [3, 1, 2]], np.float32)
    result = client.infer("labelled", inputs(scores), outputs=output(class_count=2, binary_data=is_binary))
    found = [[text.decode() if isinstance(text, bytes) else text for text in line] for line in result.as_numpy("y")]
    assert found == [["0.500000:1:dog", "0.250000:0:cat"], ["3.000000:0:cat", "2.000000:2:cow"]]


def test_what_a_client_says_of_a_request_comes_to_the_models_code(client) -> None:
    result = client.infer(
        "shows",
        inputs(np.zeros((1, 1), np.int32), "INT32"),
        request_id="r",
        sequence_id=2**64 - 1,
        sequence_start=True,
        sequence_end=True,
        priority=1,
        timeout=30_000_000,
        parameters={"colour": "röd", "n": -3, "is": True},
        headers={"X-Other": "1"},
        query_params={"a": 1, "b": ["x", "y"]},
    )
    assert json.loads(result.as_numpy("shown")[0, 0]) == {
        "id": "r",
        "sequence": [2**64 - 1, 3],
        "timeout": 30_000_000,
        "parameters": {"colour": "röd", "n": -3, "is": True},
    }


def test_a_sequence_may_be_named_by_a_text(client) -> None:
    result = client.infer("shows", inputs(np.zeros((1, 1), np.int32), "INT32"), sequence_id="s-1", sequence_end=True)
    assert json.loads(result.as_numpy("shown")[0, 0])["sequence"] == ["s-1", 2]


ERRORS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "model": (
        lambda c: c.infer("nothing", inputs(ROWS)),
        "404",
        "Request for unknown model: 'nothing' is not found",
    ),
    "version": (
        lambda c: c.infer("single", inputs(ROWS[0]), model_version="9"),
        "404",
        "Request for unknown model: 'single' version 9 is not found",
    ),
    "shape": (
        lambda c: c.infer("single", inputs(ROWS), request_id="7"),
        "400",
        "[request id: 7] unexpected shape for input 'x' for model 'single'. Expected [2], got [3,2].",
    ),
    "datatype": (
        lambda c: c.infer("echo_fp32", inputs(row("INT32"), "INT32")),
        "400",
        "[request id: <id_unknown>] inference input 'x' data-type is 'INT32', but model 'echo_fp32' expects 'FP32'",
    ),
    "batch size": (
        lambda c: c.infer("echo_fp32", inputs(np.zeros((9, 2), np.float32))),
        "400",
        "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'echo_fp32'",
    ),
    "the model's own": (
        lambda c: c.infer("shows", inputs(np.ones((1, 1), np.int32), "INT32")),
        "404",
        "no such colour",
    ),
    "metadata": (
        lambda c: c.get_model_metadata("nothing"),
        "404",
        "Request for unknown model: 'nothing' is not found",
    ),
    "config": (
        lambda c: c.get_model_config("single", "9"),
        "404",
        "Request for unknown model: 'single' version 9 is not found",
    ),
    "statistics": (
        lambda c: c.get_inference_statistics("nothing"),
        "400",
        "requested model 'nothing' is not available",
    ),
    "load": (
        lambda c: c.load_model("nothing"),
        "500",
        "failed to load 'nothing', failed to poll from model repository",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "status", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_have_tritons_status_and_text(client, call: Callable[[Any], object], status: str, message: str) -> None:
    found_status, found_message = failure(lambda: call(client))
    assert found_status == status
    assert found_message == message or (message.endswith(".") and found_message.startswith(message))


def test_health_and_metadata(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("single", "1")
    assert not client.is_model_ready("single", "9")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata().keys() == {"name", "version", "extensions"}
    assert client.get_model_metadata("labelled") == {
        "name": "labelled",
        "versions": ["1"],
        "platform": "fake",  # the backend: there is no platform
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    config = client.get_model_config("echo_bytes", "1")
    assert (config["name"], config["max_batch_size"]) == ("echo_bytes", 8)
    assert (config["input"][0]["data_type"], config["input"][0]["dims"]) == ("TYPE_STRING", [2])


def test_the_statistics_of_one_model_and_of_all(client) -> None:
    client.infer("echo_int8", inputs(row("INT8"), "INT8"))
    (one,) = client.get_inference_statistics("echo_int8", "1")["model_stats"]
    everyone = client.get_inference_statistics()["model_stats"]
    assert one["batch_stats"][0]["batch_size"] == 1
    assert {entry["name"] for entry in everyone} >= {"single", "labelled", "shows"}


def index(client: triton.InferenceServerClient) -> dict[str, tuple[str, str]]:
    return {
        entry["name"]: (entry.get("state", ""), entry.get("reason", ""))
        for entry in client.get_model_repository_index()
    }


def test_a_model_is_unloaded_and_loaded_again(client) -> None:
    client.unload_model("spare", unload_dependents=True)
    unloaded = (index(client)["spare"], client.is_model_ready("spare"))
    client.load_model("spare")
    assert unloaded == (("UNAVAILABLE", "unloaded"), False)
    assert (index(client)["spare"], client.is_model_ready("spare")) == (("READY", ""), True)


def test_a_model_is_loaded_with_another_configuration(client) -> None:
    config = {**client.get_model_config("spare"), "max_batch_size": 3}
    client.load_model("spare", config=json.dumps(config))
    try:
        assert client.get_model_config("spare")["max_batch_size"] == 3
    finally:
        client.unload_model("spare")
        client.load_model("spare")


def test_bodies_that_the_client_makes_may_be_sent_by_other_means(server: Server) -> None:
    make, parse = (
        getattr(triton.InferenceServerClient, name) for name in ("generate_request_body", "parse_response_body")
    )
    body, json_size = make(inputs(ROWS), outputs=output(binary_data=True))
    answer = httpx.post(
        f"{server.url}/v2/models/echo_fp32/infer",
        content=body,
        headers={"Inference-Header-Content-Length": str(json_size)},
        trust_env=False,
    )
    result = parse(answer.content, header_length=int(answer.headers["Inference-Header-Content-Length"]))
    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)


def test_the_log_settings_are_read_and_set(client) -> None:
    before = client.get_log_settings()
    changed = client.update_log_settings({"log_verbose_level": 1})
    again = client.update_log_settings({"log_verbose_level": before["log_verbose_level"]})
    assert before.keys() == {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
    assert changed == {**before, "log_verbose_level": 1}
    assert again == before


SECRET = {"secret": "word"}


def test_the_trace_settings_are_read_and_set(client) -> None:
    before = client.get_trace_settings(headers=SECRET)
    changed = client.update_trace_settings("single", {"trace_rate": "10"}, headers=SECRET)
    assert before["trace_level"] == ["OFF"]
    assert changed == {**before, "trace_rate": "10"}
    assert client.get_trace_settings("single", headers=SECRET) == changed
    assert client.update_trace_settings("single", {"trace_rate": None}, headers=SECRET) == before


@pytest.mark.parametrize("headers", [None, {"secret": "guess"}], ids=["nothing", "a guess"])
def test_what_is_restricted_needs_its_header(client, headers: dict[str, str] | None) -> None:
    found = failure(lambda: client.get_trace_settings(headers=headers))
    assert found == ("403", "This API is restricted, expecting header 'secret'")


def test_a_plugin_of_the_client_may_add_headers_to_all_requests(client) -> None:
    class Secret(InferenceServerClientPlugin):
        def __call__(self, request: Any) -> None:
            request.headers.update(SECRET)

    client.register_plugin(Secret())
    assert client.get_trace_settings()["trace_level"] == ["OFF"]
    assert client.infer("single", inputs(ROWS[0])).as_numpy("y").tolist() == ROWS[0].tolist()


def test_shared_memory_that_is_not_offered_is_refused(client) -> None:
    assert client.get_system_shared_memory_status() == []
    status, message = failure(lambda: client.register_system_shared_memory("region", "key", 64))
    assert status == "501"
    assert message.startswith("Client shared memory is disabled.")


async def test_the_asyncio_client_offers_the_same(server: Server) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        results = await asyncio.gather(*(client.infer("echo_fp32", inputs(ROWS + number)) for number in range(16)))
        compressed = await client.infer(
            "echo_fp32",
            inputs(ROWS, is_binary=False),
            request_compression_algorithm="gzip",
            response_compression_algorithm="deflate",
        )
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'nothing' is not found"):
            await client.infer("nothing", inputs(ROWS))
        statistics = await client.get_inference_statistics("single")
        indexed = await client.get_model_repository_index()
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("single")
        assert (await client.get_model_metadata("single"))["name"] == "single"
        assert (await client.get_model_config("single"))["name"] == "single"
        assert (await client.get_server_metadata())["name"] == "shoal"
        assert (await client.get_log_settings())["log_info"] is True
        assert await client.get_system_shared_memory_status() == []
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS + number)
    np.testing.assert_array_equal(compressed.as_numpy("y"), ROWS)
    assert statistics["model_stats"][0]["name"] == "single"
    assert {entry["name"] for entry in indexed} >= {"single", "spare"}
