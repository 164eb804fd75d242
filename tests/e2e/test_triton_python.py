"""Triton's python models as their users see them: a repository, a server, requests over HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_SHOWS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = json.loads(args["model_config"])["name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0, 0] == b"unknown":
                error = pb_utils.TritonError("no such colour", pb_utils.TritonError.NOT_FOUND)
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=error))
                continue
            if x[0, 0] == b"odd":
                raise ValueError("odd colours are not known")
            parameters = json.loads(request.parameters())
            shown = [self.name, len(requests), request.request_id(), parameters, request.timeout()]
            sequence = [request.correlation_id(), request.flags()]
            texts = np.array([[json.dumps(shown + sequence if any(sequence) else shown)]] * len(x), dtype=object)
            tensors = [pb_utils.Tensor("shown", texts), pb_utils.Tensor("x", x)]
            responses.append(pb_utils.InferenceResponse(tensors, parameters=parameters))
        return responses
"""
_SHOWS_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "shown" data_type: TYPE_STRING dims: [ 1 ] }, { name: "x" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
_TOGETHER = """
[batching]
policy = "fixed"
[batching.parameters]
batch_rows = 2
"""
_THROUGH = """
platform: "ensemble"
max_batch_size: 8
input [ { name: "colour" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "said" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "together" model_version: -1
  input_map { key: "x" value: "colour" } output_map { key: "shown" value: "said" }
} ] }
"""
_COMPLETES = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.add_input({"name": "INPUT1", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.add_output({"name": "OUTPUT1", "data_type": "TYPE_FP32", "dims": [4]})
        auto_complete_model_config.set_max_batch_size(0)
        return auto_complete_model_config

    def execute(self, requests):
        def answer(request):
            a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
            tensors = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            return pb_utils.InferenceResponse(tensors)
        return [answer(request) for request in requests]
"""


def add(root: Path, name: str, code: str, config: str = "", side: str = "") -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(code)
    if config:
        (root / name / "config.pbtxt").write_text(config)
    if side:
        (root / name / "shoal.toml").write_text(side)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("triton-python")
    add(root, "together", _SHOWS, _SHOWS_CONFIG, _TOGETHER)
    add(root, "alone", _SHOWS, _SHOWS_CONFIG)
    add(root, "counted", _SHOWS, _SHOWS_CONFIG)
    add(root, "add_sub", _COMPLETES)
    add(root, "through", "", _THROUGH)
    with Server(f"--model-repository={root}") as server:
        yield server


def ask(server: Server, model: str, *rows: str, name: str = "x", **more: Any) -> Any:
    inputs = [{"name": name, "datatype": "BYTES", "shape": [len(rows), 1], "data": list(rows)}]
    return server.client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **more})


def shown(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return list(answer.json()["outputs"][0]["data"])


def test_two_requests_of_one_batch_each_come_with_their_own_id_and_parameters(server: Server) -> None:
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(ask, server, "together", "red", id="a", parameters={"shade": 3, "timeout": 9_000_000})
        second = threads.submit(ask, server, "together", "blue", id="b", parameters={"dark": True})
        answers = [first.result(), second.result()]
    assert [shown(answer) for answer in answers] == [
        ['["together", 2, "a", {"shade": 3}, 9000000]'],
        ['["together", 2, "b", {"dark": true}, 0]'],
    ]
    assert [answer.json()["outputs"][1]["data"] for answer in answers] == [["red"], ["blue"]]


def test_requests_that_come_through_an_ensemble_are_told_apart(server: Server) -> None:
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda colour: ask(server, "through", colour, name="colour"), ("red", "blue")))
    assert [shown(answer) for answer in answers] == [['["together", 2, "", {}, 0]']] * 2


def test_what_is_said_of_a_request_comes_through_an_ensemble(server: Server) -> None:
    said = {"shade": 3, "timeout": 9_000_000, "sequence_id": 7, "sequence_start": True}
    with ThreadPoolExecutor(2) as threads:
        told = threads.submit(ask, server, "through", "red", name="colour", id="a", parameters=said)
        other = threads.submit(ask, server, "through", "blue", name="colour")
        answers = [told.result(), other.result()]
    assert [shown(answer) for answer in answers] == [
        ['["together", 2, "a", {"shade": 3}, 9000000, 7, 1]'],
        ['["together", 2, "", {}, 0]'],
    ]
    assert [list(answer.json()["parameters"].values()) for answer in answers] == [[7, True, False], [0, False, False]]


def test_only_the_request_with_the_error_gets_it_with_the_status_of_its_code(server: Server) -> None:
    with ThreadPoolExecutor(2) as threads:
        good = threads.submit(ask, server, "together", "red", id="c")
        bad = threads.submit(ask, server, "together", "unknown", id="d")
        answers = [good.result(), bad.result()]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert answers[1].json()["error"] == "no such colour"


def test_an_error_as_an_answer_counts_as_a_success_and_an_exception_as_a_failure(server: Server) -> None:
    def counts() -> np.ndarray:
        stats = server.stats("counted")
        stages = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
        (size,) = stats["batch_stats"]
        of_size = size["compute_infer"]["count"]
        return np.array([stats["execution_count"], of_size, *(stats["inference_stats"][s]["count"] for s in stages)])

    ask(server, "counted", "red")
    found = [counts()]
    for colour in ("unknown", "odd"):
        ask(server, "counted", colour)
        found.append(counts())
    assert np.diff(found, axis=0).tolist() == [[1, 1, 1, 0, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0, 0, 0]]


def test_an_exception_is_told_by_the_users_line(server: Server) -> None:
    answer = ask(server, "alone", "odd")
    assert answer.status_code == 500
    assert answer.json()["error"] == (
        "Failed to process the request(s) for model 'alone_0_0', message: ValueError: odd colours are not known"
        "\n\nAt:\n  model.py(19): execute\n"
    )


def test_the_parameters_of_a_response_are_beside_its_outputs(server: Server) -> None:
    told = {"shade": -3, "dark": True, "name": "röd"}
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda more: ask(server, "together", "red", **more), ({"parameters": told}, {})))
    assert [answer.json().get("parameters") for answer in answers] == [told, None]


def test_a_request_may_want_some_outputs_only(server: Server) -> None:
    answer = ask(server, "alone", "red", "blue", outputs=[{"name": "x"}]).json()
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("x", ["red", "blue"])]


def test_parameters_too_large_to_hand_on_are_the_callers_mistake(server: Server) -> None:
    answer = ask(server, "alone", "red", parameters={"text": "x" * 70_000})
    assert answer.status_code == 400
    assert "expected at most 65536" in answer.json()["error"]


def test_the_unmodified_client_calls_a_model_that_completed_its_own_configuration(server: Server) -> None:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.port}")
    arrays = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
    inputs = [tritonclient.http.InferInput(f"INPUT{index}", [4], "FP32") for index in range(2)]
    for each, array in zip(inputs, arrays, strict=True):
        each.set_data_from_numpy(array)
    try:
        result = client.infer("add_sub", inputs)
        config = client.get_model_config("add_sub")
        with pytest.raises(InferenceServerException, match="expected 2 inputs but got 1 inputs"):
            client.infer("add_sub", inputs[:1])
    finally:
        client.close()
    assert result.as_numpy("OUTPUT0").tolist() == [1, 2, 3, 4]
    assert result.as_numpy("OUTPUT1").tolist() == [-1, 0, 1, 2]
    assert [tensor["name"] for tensor in config["input"]] == ["INPUT0", "INPUT1"]
