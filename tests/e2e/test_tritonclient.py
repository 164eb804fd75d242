"""The unmodified Triton client against the whole server with the embedded model."""

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest
import tritonclient.http as triton

from models.zoo.embedded import MODEL_NAME, write_repository
from tests.e2e.server import Server

pytestmark = pytest.mark.e2e

ROWS = np.random.default_rng(0).standard_normal((3, 3, 224, 224)).astype(np.float32)


@pytest.fixture
def client(lite0: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{lite0.port}") as client:
        yield client


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The logits of ONNX Runtime, without any of ours around it."""
    file = write_repository(tmp_path_factory.mktemp("direct")) / MODEL_NAME / "1" / "model.onnx"
    (logits,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"image": ROWS})
    return np.asarray(logits)


def infer(client: triton.InferenceServerClient, rows: np.ndarray = ROWS, is_binary: bool = True) -> np.ndarray:
    image = triton.InferInput("image", rows.shape, "FP32")
    image.set_data_from_numpy(rows, binary_data=is_binary)
    logits = triton.InferRequestedOutput("logits", binary_data=is_binary)
    return np.asarray(client.infer(MODEL_NAME, [image], outputs=[logits]).as_numpy("logits"))


def test_health_metadata_and_config(client) -> None:
    metadata = client.get_model_metadata(MODEL_NAME)
    config = client.get_model_config(MODEL_NAME)

    assert (client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL_NAME)) == (True, True, True)
    assert client.get_server_metadata()["name"] == "shoal"
    assert metadata["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 224, 224]}]
    assert (config["backend"], config["max_batch_size"]) == ("onnxruntime", 4)


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
def test_logits_equal_those_of_onnx_runtime_itself(client, expected: np.ndarray, is_binary: bool) -> None:
    logits = infer(client, is_binary=is_binary)

    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_binary_and_json_give_the_very_same_logits(client) -> None:
    binary, text = (infer(client, ROWS[:1], is_binary) for is_binary in (True, False))

    np.testing.assert_array_equal(binary, text)


def test_statistics_rise_by_exactly_what_was_sent(client) -> None:
    def counts() -> np.ndarray:
        entry = client.get_inference_statistics(MODEL_NAME)["model_stats"][0]
        stages = ("success", "queue", "compute_input", "compute_infer", "compute_output", "fail")
        return np.array([entry["inference_count"], *(entry["inference_stats"][stage]["count"] for stage in stages)])

    before = counts()
    for _ in range(4):
        infer(client, ROWS[:2])

    np.testing.assert_array_equal(counts() - before, [8, 4, 4, 4, 4, 4, 0])
