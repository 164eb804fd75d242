"""The names that code for Triton's python backend imports, by themselves."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backends.triton_python import pb_utils

NAMES = {
    "get_input_tensor_by_name",
    "get_output_tensor_by_name",
    "get_input_config_by_name",
    "get_output_config_by_name",
    "using_decoupled_model_transaction_policy",
    "triton_to_numpy_type",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "serialize_byte_tensor",
    "deserialize_bytes_tensor",
    "load_model",
    "unload_model",
    "is_model_ready",
    "Tensor",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "TritonError",
    "TritonModelException",
    "ResponseIterator",
    "PreferredMemory",
    "MemoryType",
    "Logger",
    "MetricFamily",
    "Metric",
    "ModelConfig",
    "InferenceTrace",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_MEMORY_CPU",
}


def test_every_documented_name_is_there() -> None:
    assert set(pb_utils.__all__) >= NAMES


@pytest.mark.parametrize("word", pb_utils.TRITON_STRING_TO_NUMPY)
def test_element_types_have_a_word_a_number_and_a_numpy_type(word: str) -> None:
    numpy_type = pb_utils.triton_string_to_numpy(word)
    number = pb_utils.numpy_to_triton_type(numpy_type)
    assert pb_utils.triton_to_numpy_type(number) is numpy_type
    assert pb_utils.Tensor("x", np.zeros(2, numpy_type)).triton_dtype() == number


def test_a_tensor_says_what_it_is() -> None:
    tensor = pb_utils.Tensor("x", np.zeros((2, 3), np.float32))
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()) == ("x", [2, 3], 11, True)


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([b"a"]), np.array(["a"], object)])
def test_texts_of_any_kind_are_strings(value: Any) -> None:
    assert pb_utils.Tensor("x", value).triton_dtype() == 13


def test_elements_that_triton_has_no_type_for_are_refused() -> None:
    with pytest.raises(
        pb_utils.TritonModelException, match=r"'x' has elements of type complex128, expected one of TYPE"
    ):
        pb_utils.Tensor("x", np.zeros(2, complex))


def test_tensors_go_and_come_by_dlpack_as_object_and_as_capsule() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = pb_utils.Tensor("x", array)
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)
    for source in (tensor, array, tensor.to_dlpack()):
        np.testing.assert_array_equal(pb_utils.Tensor.from_dlpack("y", source).as_numpy(), array)


def test_bfloat16_goes_and_comes_by_dlpack_too() -> None:
    array = np.array([[1.5, -3e38], [0, 1]], ml_dtypes.bfloat16)[:, ::-1]
    tensor = pb_utils.Tensor("x", array)
    for source in (tensor, tensor.to_dlpack()):
        found = pb_utils.Tensor.from_dlpack("y", source)
        assert found.triton_dtype() == tensor.triton_dtype()
        np.testing.assert_array_equal(found.as_numpy(), array)


def test_a_capsule_of_bfloat16_is_taken_once() -> None:
    capsule = pb_utils.Tensor("x", np.zeros(2, ml_dtypes.bfloat16)).to_dlpack()
    pb_utils.Tensor.from_dlpack("y", capsule)
    with pytest.raises(pb_utils.TritonModelException, match="'y' cannot be read by DLPack"):
        pb_utils.Tensor.from_dlpack("y", capsule)


def test_what_dlpack_cannot_hand_on_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"which DLPack cannot hand on .*use as_numpy"):
        pb_utils.Tensor("x", np.zeros(2, object)).to_dlpack()


def test_what_is_no_dlpack_tensor_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"'x' cannot be read by DLPack \("):
        pb_utils.Tensor.from_dlpack("x", "no tensor")


class OnGpu:
    """A tensor of another library that can be copied to the CPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: object) -> object:
        raise AssertionError("nobody reads it there")

    def cpu(self) -> Any:
        return np.ones(2, np.float32)


def test_a_tensor_on_a_gpu_is_copied() -> None:
    assert pb_utils.Tensor.from_dlpack("x", OnGpu()).as_numpy().tolist() == [1, 1]


def test_texts_are_serialised_each_after_its_length_and_back() -> None:
    array = np.array([[b"a", "é"], [b"", b"\x00\xff"]], object)
    data = pb_utils.serialize_byte_tensor(array)
    assert data == b"\x01\0\0\0a\x02\0\0\0\xc3\xa9\0\0\0\0\x02\0\0\0\x00\xff"
    assert pb_utils.deserialize_bytes_tensor(data).tolist() == [b"a", "é".encode(), b"", b"\x00\xff"]
    assert pb_utils.serialize_byte_tensor(np.zeros(2)) is None


def test_tensors_and_declarations_are_found_by_name() -> None:
    x = pb_utils.Tensor("x", np.zeros(1))
    config = {"input": [{"name": "x"}], "output": [{"name": "y"}]}
    assert pb_utils.get_input_tensor_by_name(pb_utils.InferenceRequest(inputs=[x]), "x") is x
    assert pb_utils.get_input_tensor_by_name(pb_utils.InferenceRequest(inputs=[x]), "y") is None
    assert pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse([x]), "x") is x
    assert pb_utils.get_input_config_by_name(config, "x") == {"name": "x"}
    assert pb_utils.get_output_config_by_name(config, "x") is None
    assert not pb_utils.using_decoupled_model_transaction_policy(config)


def test_a_response_is_outputs_or_an_error_and_may_have_parameters() -> None:
    failed = pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND))
    fine = pb_utils.InferenceResponse([], parameters={"a": 1})
    error = failed.error()
    assert error is not None
    assert (failed.has_error(), error.message(), error.code()) == (True, "no", 2)
    assert (fine.has_error(), fine.error(), json.loads(fine.parameters())) == (False, None, {"a": 1})
    with pytest.raises(pb_utils.TritonModelException, match="it is an error: no"):
        pb_utils.get_output_tensor_by_name(failed, "x")


def test_a_request_that_code_makes_says_what_it_was_given() -> None:
    request = pb_utils.InferenceRequest(
        "m", ["y"], [], 2, "id", 7, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, 5, parameters='{"a": 1}'
    )
    request.set_flags(request.flags() | pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL)
    assert (request.model_name(), request.requested_output_names(), request.request_id()) == ("m", {"y"}, "id")
    assert (request.correlation_id(), request.flags(), request.timeout(), request.parameters()) == (7, 3, 5, '{"a": 1}')
    assert request.trace().get_context() is None


REFUSED: dict[str, Callable[[], object]] = {
    "async_exec": lambda: asyncio.run(pb_utils.InferenceRequest("m", ["y"], []).async_exec()),
    "own sender": lambda: pb_utils.InferenceRequest("m", ["y"], []).get_response_sender(),
    "unload_model": lambda: pb_utils.unload_model("m"),
    "is_model_ready": lambda: pb_utils.is_model_ready("m"),
    "ResponseIterator": pb_utils.ResponseIterator,
    "counter down": lambda: counter().increment(-1),
    "counter set": lambda: counter().set(1),
    "counter observe": lambda: counter().observe(1),
}


def counter() -> pb_utils.Metric:
    return pb_utils.MetricFamily("n", "number", pb_utils.MetricFamily.COUNTER).Metric()


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_here_says_so(call: Callable[[], object]) -> None:
    with pytest.raises(pb_utils.TritonModelException, match=r"model|sender|expected"):
        call()


def test_metrics_count_by_their_labels() -> None:
    family = pb_utils.MetricFamily(name="n", description="number", kind=pb_utils.MetricFamily.COUNTER)
    family.Metric({"colour": "red"}).increment(2)
    family.Metric({"colour": "red"}).increment(1)
    assert (family.Metric({"colour": "red"}).value(), family.Metric({"colour": "blue"}).value()) == (3, 0)


def test_gauges_are_set_and_histograms_observe() -> None:
    gauge = pb_utils.MetricFamily("g", "gauge", pb_utils.MetricFamily.GAUGE).Metric()
    histogram = pb_utils.MetricFamily("h", "histogram", pb_utils.MetricFamily.HISTOGRAM).Metric(buckets=[1, 10])
    gauge.set(5)
    gauge.increment(-2)
    for value in (1, 5, 50):
        histogram.observe(value)
    assert (gauge.value(), histogram.value(), histogram.bucket_counts()) == (3, 56, [1, 2, 3])


TENSOR = {"name": "x", "data_type": "TYPE_FP32", "dims": [4]}


def test_a_configuration_is_completed_and_what_it_says_is_kept() -> None:
    config = pb_utils.ModelConfig(json.dumps({"max_batch_size": 0, "input": [TENSOR], "output": [{"name": "y"}]}))
    config.add_input(TENSOR)
    config.add_output({"name": "y", "data_type": "TYPE_INT64", "dims": [1]})
    config.add_output({"name": "z", "data_type": "TYPE_INT64", "dims": [1], "label_filename": "labels.txt"})
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    config.set_model_transaction_policy({"decoupled": False})
    found = config.as_dict()
    assert found["input"] == [TENSOR]
    assert [tensor["name"] for tensor in found["output"]] == ["y", "z"]
    assert found["output"][0] == {"name": "y", "data_type": "TYPE_INT64", "dims": [1]}
    assert (found["max_batch_size"], found["dynamic_batching"]) == (8, {})


CONTRADICTIONS: dict[str, tuple[Callable[[pb_utils.ModelConfig], None], str]] = {
    "type": (
        lambda c: c.add_input({**TENSOR, "data_type": "TYPE_INT8"}),
        "data_type is TYPE_FP32 in the configuration",
    ),
    "dims": (lambda c: c.add_input({**TENSOR, "dims": [5]}), r"dims is \[4\] in the configuration and \[5\] in auto"),
    "batch": (lambda c: c.set_max_batch_size(2), "max_batch_size is 4 in the configuration and 2 in auto_complete"),
    "missing key": (lambda c: c.add_output({"name": "y"}), "output: found no data_type, dims, expected the keys"),
    "unknown key": (lambda c: c.add_input({**TENSOR, "shape": [1]}), "input: found shape, expected the keys"),
    "policy": (lambda c: c.set_model_transaction_policy({"x": 1}), "found x, expected the keys decoupled"),
}


@pytest.mark.parametrize(("change", "text"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_code_that_contradicts_its_configuration_is_told(
    change: Callable[[pb_utils.ModelConfig], None], text: str
) -> None:
    config = pb_utils.ModelConfig({"max_batch_size": 4, "input": [TENSOR]})
    with pytest.raises(ValueError, match=text):
        change(config)
