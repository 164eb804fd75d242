"""The embedded model's graph answers as PyTorch does, always as the same file."""

import json
from importlib import resources

import numpy as np
import onnxruntime
import pytest

from models.zoo.lite0 import CLASSES, INPUT, OUTPUT, build, build_model
from models.zoo.weights import load_weights

ANSWERS = json.loads(resources.files("models.zoo").joinpath("golden.json").read_bytes())["answers"]


@pytest.fixture(scope="module")
def model_bytes():
    return build_model(load_weights()).SerializeToString()


@pytest.fixture(scope="module")
def session(model_bytes):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])


def golden_images(answers):
    rows = [np.random.default_rng(answer["seed"]).standard_normal((3, 224, 224)) for answer in answers]
    return np.stack(rows).astype(np.float32)


def test_logits_are_those_of_torch_in_one_batch(session):
    (logits,) = session.run([OUTPUT], {INPUT: golden_images(ANSWERS)})

    np.testing.assert_allclose(logits, [answer["logits"] for answer in ANSWERS], rtol=0, atol=1e-4)


def test_a_batch_of_one_gives_the_same_logits(session):
    (logits,) = session.run([OUTPUT], {INPUT: golden_images(ANSWERS[2:3])})

    np.testing.assert_allclose(logits, [ANSWERS[2]["logits"]], rtol=0, atol=1e-4)


def test_the_signature_has_a_free_batch_dimension(session):
    (declared_input,), (declared_output,) = session.get_inputs(), session.get_outputs()

    assert (declared_input.name, declared_input.shape) == (INPUT, ["batch", 3, 224, 224])
    assert (declared_output.name, declared_output.shape) == (OUTPUT, ["batch", CLASSES])


def test_two_builds_are_the_same_bytes_and_leave_one_file(tmp_path, model_bytes):
    build(tmp_path / "model.onnx")

    assert (tmp_path / "model.onnx").read_bytes() == model_bytes
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
