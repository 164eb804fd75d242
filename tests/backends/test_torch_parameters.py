"""The parameters of PyTorch models."""

import logging

import pytest

from backends.errors import LoadError
from backends.torch_engine.parameters import Optimize, Precision, read_parameters
from tests.backends.builders import model


def test_without_parameters_a_model_runs_as_it_is():
    parameters = read_parameters(model())

    assert (parameters.precision, parameters.compile_mode, parameters.optimize) == (
        Precision.FP32,
        None,
        Optimize.FREEZE,
    )
    assert parameters.inference_mode
    assert not parameters.cuda_graphs


def test_the_words_of_tritons_libtorch_backend_are_understood():
    parameters = read_parameters(
        model(
            DISABLE_OPTIMIZED_EXECUTION="true",
            INFERENCE_MODE="false",
            INTRA_OP_THREAD_COUNT="3",
            INTER_OP_THREAD_COUNT="2",
        )
    )

    assert not parameters.is_optimized
    assert not parameters.inference_mode
    assert (parameters.intra_op_threads, parameters.inter_op_threads) == (3, 2)


@pytest.mark.parametrize("name", ["ENABLE_NVFUSER", "ENABLE_TENSOR_FUSER", "ENABLE_WEIGHT_SHARING", "our_own_note"])
def test_parameters_without_effect_are_named_in_the_log(name: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        read_parameters(model(**{name: "true"}))

    assert f"parameter '{name.lower()}' has no effect" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("precision", "fp8", "expected one of fp32, fp16, bf16"),
        ("precision_check", "-1", "expected on, off, or a relative difference above 0"),
        ("precision_check", "nan", "expected on, off, or a relative difference above 0"),
        ("compile", "reduce-overhead", r"expected one of false, true, default, max-autotune \(recorded kernels are"),
        ("channels_last", "maybe", "expected true or false"),
        ("optimize", "all", "expected one of none, freeze, inference"),
        ("model_arguments", "[1]", "expected a JSON object"),
        ("model_arguments", "{", "expected a JSON object"),
        ("intra_op_thread_count", "-2", "expected a number from 0 up"),
        ("chanels_last", "true", "unknown, did you mean 'channels_last'"),
        ("INTRA_OP_THREADS_COUNT", "1", "unknown, did you mean 'intra_op_thread_count'"),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: str, message: str):
    with pytest.raises(LoadError, match=rf"model 'm' version 1: parameter '{name.lower()}' is .*: {message}"):
        read_parameters(model(**{name: value}))


def test_a_model_has_one_origin():
    with pytest.raises(LoadError, match="expected it or 'torchvision_model', not both"):
        read_parameters(model(model_class="model.py:Net", torchvision_model="resnet50"))
