"""Everything that `tritonclient.grpc` offers, unmodified, against the whole server."""

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.e2e.client_models import DATATYPES, row, write_repository
from tests.e2e.server import PATIENCE_S, Server
from tests.gateway.v2.segments import needs_shared_memory

pytestmark = pytest.mark.e2e

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = write_repository(tmp_path_factory.mktemp("clients"))
    flags = ("--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
    restricted = "--grpc-restricted-protocol=trace:secret=word"
    with Server(f"--model-repository={root}", *flags, restricted) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        yield client


def inputs(array: np.ndarray, word: str = "FP32") -> list[triton.InferInput]:
    tensor = triton.InferInput("x", array.shape, word)
    tensor.set_data_from_numpy(array)
    return [tensor]


def failure(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status(), caught.value.message()


@pytest.mark.parametrize("word", DATATYPES)
def test_values_come_back_as_they_went(client, word: str) -> None:
    sent = row(word)
    result = client.infer(f"echo_{word.lower()}", inputs(sent, word), outputs=[triton.InferRequestedOutput("y")])
    np.testing.assert_array_equal(result.as_numpy("y"), sent)
    assert result.get_output("y").datatype == word


def test_an_answer_says_what_it_answers(client) -> None:
    response = client.infer("echo_fp32", inputs(ROWS), model_version="1", request_id="é 1").get_response(as_json=True)
    assert (response["id"], response["model_name"], response["model_version"]) == ("é 1", "echo_fp32", "1")


def test_many_asynchronous_requests_each_get_their_own_answer(client) -> None:
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for number in range(32):

        def keep(result: Any, error: Any, number: int = number) -> None:
            answers.put((number, result, error))

        client.async_infer("echo_fp32", inputs(ROWS + number), callback=keep)
    for _ in range(32):
        number, result, error = answers.get(timeout=PATIENCE_S)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("y"), ROWS + number)


def test_an_asynchronous_request_that_fails_tells_its_callback(client) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.async_infer("nothing", inputs(ROWS), callback=lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=PATIENCE_S)
    assert result is None
    assert error.status() == "StatusCode.NOT_FOUND"


def test_an_asynchronous_request_may_be_cancelled(client) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    call = client.async_infer("slow", inputs(ROWS), callback=lambda result, error: answers.put((result, error)))
    call.cancel()
    result, error = answers.get(timeout=PATIENCE_S)
    assert result is None
    assert error.status() == "StatusCode.CANCELLED"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_may_be_compressed(client, algorithm: str) -> None:
    result = client.infer("echo_fp32", inputs(ROWS), compression_algorithm=algorithm)
    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)


def test_classes_are_named_by_the_labels_of_the_model(client) -> None:
    scores = np.array([[0.25, 0.5, 0.125], [3, 1, 2]], np.float32)
    wanted = [triton.InferRequestedOutput("y", class_count=2)]
    result = client.infer("labelled", inputs(scores), outputs=wanted)
    assert result.as_numpy("y").tolist() == [
        [b"0.500000:1:dog", b"0.250000:0:cat"],
        [b"3.000000:0:cat", b"2.000000:2:cow"],
    ]


def test_what_a_client_says_of_a_request_comes_to_the_models_code(client) -> None:
    result = client.infer(
        "shows",
        inputs(np.zeros((1, 1), np.int32), "INT32"),
        request_id="r",
        sequence_id=2**62,
        sequence_start=True,
        sequence_end=True,
        priority=1,
        timeout=30_000_000,
        parameters={"colour": "röd", "n": -3, "is": True},
        headers={"x-other": "1"},
    )
    assert json.loads(result.as_numpy("shown")[0, 0]) == {
        "id": "r",
        "sequence": [2**62, 3],
        "timeout": 30_000_000,
        "parameters": {"colour": "röd", "n": -3, "is": True},
    }


def test_a_sequence_may_be_named_by_a_text(client) -> None:
    result = client.infer("shows", inputs(np.zeros((1, 1), np.int32), "INT32"), sequence_id="s-1", sequence_end=True)
    assert json.loads(result.as_numpy("shown")[0, 0])["sequence"] == ["s-1", 2]


def test_a_client_that_waits_too_little_is_told_so(client) -> None:
    status, _ = failure(lambda: client.infer("slow", inputs(ROWS), client_timeout=0.1))
    assert status == "StatusCode.DEADLINE_EXCEEDED"


def test_a_tensor_may_be_larger_than_the_usual_limit_of_messages(client) -> None:
    large = np.zeros((8, 300_000), np.float32)
    result = client.infer("wide", inputs(large))
    assert result.as_numpy("y").nbytes == large.nbytes


ERRORS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "model": (
        lambda c: c.infer("nothing", inputs(ROWS)),
        "NOT_FOUND",
        "Request for unknown model: 'nothing' is not found",
    ),
    "version": (
        lambda c: c.infer("single", inputs(ROWS[0]), model_version="9"),
        "NOT_FOUND",
        "Request for unknown model: 'single' version 9 is not found",
    ),
    "version that is none": (
        lambda c: c.infer("single", inputs(ROWS[0]), model_version="x"),
        "INVALID_ARGUMENT",
        "failed to get model version from specified version string 'x'",
    ),
    "shape": (
        lambda c: c.infer("single", inputs(ROWS), request_id="7"),
        "INVALID_ARGUMENT",
        "[request id: 7] unexpected shape for input 'x' for model 'single'. Expected [2], got [3,2].",
    ),
    "datatype": (
        lambda c: c.infer("echo_fp32", inputs(row("INT32"), "INT32")),
        "INVALID_ARGUMENT",
        "[request id: <id_unknown>] inference input 'x' data-type is 'INT32', but model 'echo_fp32' expects 'FP32'",
    ),
    "batch size": (
        lambda c: c.infer("echo_fp32", inputs(np.zeros((9, 2), np.float32))),
        "INVALID_ARGUMENT",
        "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'echo_fp32'",
    ),
    "the model's own": (
        lambda c: c.infer("shows", inputs(np.ones((1, 1), np.int32), "INT32")),
        "NOT_FOUND",
        "no such colour",
    ),
    "metadata": (
        lambda c: c.get_model_metadata("nothing"),
        "NOT_FOUND",
        "Request for unknown model: 'nothing' is not found",
    ),
    "config": (
        lambda c: c.get_model_config("single", "9"),
        "NOT_FOUND",
        "Request for unknown model: 'single' version 9 is not found",
    ),
    "statistics": (
        lambda c: c.get_inference_statistics("nothing"),
        "INVALID_ARGUMENT",
        "requested model 'nothing' is not available",
    ),
    "load": (
        lambda c: c.load_model("nothing"),
        "INTERNAL",
        "failed to load 'nothing', failed to poll from model repository",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "status", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_have_tritons_status_and_text(client, call: Callable[[Any], object], status: str, message: str) -> None:
    found_status, found_message = failure(lambda: call(client))
    assert found_status == f"StatusCode.{status}"
    assert found_message.startswith(message)


def test_health_and_metadata(client) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("single", "1")
    assert client.get_server_metadata(as_json=True).keys() == {"name", "version", "extensions"}
    metadata = client.get_model_metadata("labelled", as_json=True)
    assert (metadata["name"], metadata["versions"]) == ("labelled", ["1"])
    assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": ["-1", "3"]}]
    config = client.get_model_config("echo_bytes", "1").config
    assert (config.name, config.max_batch_size, list(config.input[0].dims)) == ("echo_bytes", 8, [2])


def test_the_statistics_of_one_model_and_of_all(client) -> None:
    client.infer("echo_int8", inputs(row("INT8"), "INT8"))
    (one,) = client.get_inference_statistics("echo_int8", "1").model_stats
    everyone = client.get_inference_statistics().model_stats
    counts = {getattr(one.inference_stats, name).count for name in ("success", "compute_infer", "compute_output")}
    assert counts == {one.execution_count} == {one.batch_stats[0].compute_input.count}
    assert (one.batch_stats[0].batch_size, one.last_inference > 0) == (1, True)
    assert {entry.name for entry in everyone} >= {"single", "labelled", "shows"}


def index(client: triton.InferenceServerClient) -> dict[str, tuple[str, str]]:
    return {entry.name: (entry.state, entry.reason) for entry in client.get_model_repository_index().models}


def test_a_model_is_unloaded_and_loaded_again(client) -> None:
    client.unload_model("spare", unload_dependents=True)
    unloaded = index(client)["spare"]
    with pytest.raises(InferenceServerException, match="unknown model: 'spare' has no available versions"):
        client.infer("spare", inputs(ROWS))
    client.load_model("spare")
    assert unloaded == ("UNAVAILABLE", "unloaded")
    assert (index(client)["spare"], client.is_model_ready("spare")) == (("READY", ""), True)


def test_a_model_is_loaded_with_another_configuration(client) -> None:
    config = {**client.get_model_config("spare", as_json=True)["config"], "max_batch_size": 3}
    client.load_model("spare", config=json.dumps(config))
    try:
        assert client.get_model_config("spare").config.max_batch_size == 3
    finally:
        client.unload_model("spare")
        client.load_model("spare")


def test_the_log_settings_are_read_and_set(client) -> None:
    before = client.get_log_settings(as_json=True)["settings"]
    changed = client.update_log_settings({"log_verbose_level": 1}, as_json=True)["settings"]
    again = client.update_log_settings({"log_verbose_level": 0}, as_json=True)["settings"]
    assert before.keys() == {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
    assert changed["log_verbose_level"] == {"uint32_param": 1}
    assert again == before


SECRET = {"triton-grpc-protocol-secret": "word"}


def test_the_trace_settings_are_read_and_set(client) -> None:
    how = {"headers": SECRET, "as_json": True}
    before = client.get_trace_settings(**how)["settings"]
    changed = client.update_trace_settings("single", {"trace_rate": "10"}, **how)["settings"]
    assert before["trace_level"] == {"value": ["OFF"]}
    assert changed == {**before, "trace_rate": {"value": ["10"]}}
    assert client.get_trace_settings("single", **how)["settings"] == changed
    assert client.update_trace_settings("single", {"trace_rate": None}, **how)["settings"] == before


@pytest.mark.parametrize("headers", [None, {"triton-grpc-protocol-secret": "guess"}], ids=["nothing", "a guess"])
def test_what_is_restricted_needs_its_header(client, headers: dict[str, str] | None) -> None:
    found = failure(lambda: client.get_trace_settings(headers=headers))
    text = "This protocol is restricted, expecting header 'triton-grpc-protocol-secret'"
    assert found == ("StatusCode.UNAVAILABLE", text)


@needs_shared_memory
def test_tensors_may_be_in_shared_memory_of_the_system(client) -> None:
    name, key = f"region-{uuid4().hex}", f"shoal-test-{uuid4().hex}"
    memory = shm.create_shared_memory_region(name, key, 2 * ROWS.nbytes)
    try:
        shm.set_shared_memory_region(memory, [ROWS])
        client.register_system_shared_memory(name, key, 2 * ROWS.nbytes)
        registered = client.get_system_shared_memory_status(name).regions[name]
        there = triton.InferInput("x", ROWS.shape, "FP32")
        there.set_shared_memory(name, ROWS.nbytes)
        back = triton.InferRequestedOutput("y")
        back.set_shared_memory(name, ROWS.nbytes, offset=ROWS.nbytes)
        result = client.infer("echo_fp32", [there], outputs=[back])
        client.unregister_system_shared_memory(name)
        found = np.array(shm.get_contents_as_numpy(memory, np.float32, ROWS.shape, ROWS.nbytes))
    finally:
        shm.destroy_shared_memory_region(memory)
    np.testing.assert_array_equal(found, ROWS)
    assert (registered.key, registered.byte_size) == (key, 2 * ROWS.nbytes)
    assert list(result.get_output("y").shape) == [3, 2]
    assert client.get_system_shared_memory_status().regions == {}


def test_memory_of_a_gpu_is_not_offered(client) -> None:
    client.unregister_cuda_shared_memory()
    assert client.get_cuda_shared_memory_status().regions == {}
