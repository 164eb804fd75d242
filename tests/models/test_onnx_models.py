"""Signatures of ONNX files, completion from them, and configs that contradict them."""

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models.errors import RepositoryError
from models.model_directory import read_model
from models.onnx_signature import OnnxTensor, read_signature
from models.spec import BatchingSpec
from models.tensors import DataType
from tests.models.builders import Dims, identity_model, refusal_of, refusals_of, spec_of, two_by_two_model, write_model


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize(
    ("dims", "read"),
    [(("N", 3, None), (-1, 3, -1)), ((2, 16), (2, 16)), ((), ()), (None, None)],
    ids=["variable", "fixed", "scalar", "unknown rank"],
)
def test_dims_are_read(tmp_path: Path, dims: Dims, read: tuple[int, ...] | None) -> None:
    signature = read_signature(saved(tmp_path, identity_model(dims)), "m/1/model.onnx")
    assert signature.inputs == (OnnxTensor(name="x", kind="FLOAT", data_type=DataType.FP32, dims=read),)


@pytest.mark.parametrize("data_type", DataType)
def test_every_data_type_is_read(tmp_path: Path, data_type: DataType) -> None:
    code = TensorProto.STRING if data_type is DataType.BYTES else helper.np_dtype_to_tensor_dtype(data_type.numpy)
    signature = read_signature(saved(tmp_path, identity_model(data_type=code)), "m/1/model.onnx")
    assert signature.inputs[0].data_type is data_type


def test_initializers_are_not_inputs(tmp_path: Path) -> None:
    model = identity_model(weight=100)
    sparse = onnx.SparseTensorProto(values=helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0]), dims=[4])
    model.graph.sparse_initializer.append(sparse)
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [4]))
    signature = read_signature(saved(tmp_path, model), "m/1/model.onnx")
    assert [tensor.name for tensor in signature.inputs] == ["x"]


def test_weights_outside_the_file_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(identity_model(weight=2000), file, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    assert len(read_signature(file, "m/1/model.onnx").inputs) == 1


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x00" * 64, b"\xff" * 64, b":\x03abc"], ids=repr)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(RepositoryError, match=r"^m/1/model.onnx: found .*, expected an ONNX model"):
        read_signature(tmp_path / "model.onnx", "m/1/model.onnx")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(identity_model(weight=10).SerializeToString())
    del content[data.draw(st.integers(1, len(content))) :]
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "model.onnx").write_bytes(content)
    try:
        outcome = f"{len(read_signature(tmp_path / 'model.onnx', 'm/1/model.onnx').outputs)} output"
    except RepositoryError as error:
        outcome = str(error)
    assert outcome == "1 output" or outcome.startswith("m/1/model.onnx: found")


def test_a_model_without_config_is_completed(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, model=two_by_two_model()))
    assert (spec.backend, spec.max_batch_rows) == ("onnxruntime", 4)
    assert spec.batching == BatchingSpec(policy="shoal")
    assert [(tensor.name, tensor.data_type, tensor.dims) for tensor in spec.inputs] == [
        ("a", DataType.FP32, (16,)),
        ("b", DataType.FP32, (16,)),
    ]
    assert [output.name for output in spec.outputs] == ["sum", "difference"]
    assert spec.config["max_batch_size"] == 4
    assert spec.config["dynamic_batching"]["preferred_batch_size"] == [4]  # type: ignore[index]
    assert [tensor["dims"] for tensor in spec.config["input"]] == [[16], [16]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dims", [(1, 16), ("N",), (3, "N")], ids=["fixed first", "only a batch", "variable last"])
def test_batching_is_not_assumed_without_a_variable_first_dimension(tmp_path: Path, dims: Dims) -> None:
    spec = spec_of(write_model(tmp_path, model=identity_model(dims)))
    assert (spec.max_batch_rows, spec.batching.policy) == (0, "single")
    assert len(spec.inputs[0].dims) == len(dims or ())


def test_one_tensor_without_variable_first_dimension_rules_batching_out(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, model=identity_model(("N", 16), (1, 16))))
    assert (spec.max_batch_rows, spec.inputs[0].dims, spec.outputs[0].dims) == (0, (-1, 16), (1, 16))


@pytest.mark.parametrize(
    ("config", "rows", "policy", "dims"),
    [
        ("max_batch_size: 0", 0, "single", (-1, 16)),
        ("max_batch_size: 32", 32, "shoal", (16,)),
        ("dynamic_batching { }", 4, "triton", (16,)),
        ('input { name: "x" }', 4, "shoal", (16,)),
        ('input { name: "x" dims: [ -1, 16 ] }', 0, "single", (-1, 16)),
        ('input { name: "x" dims: [ 7, 16 ] }', 0, "single", (7, 16)),
        ('input { name: "x" dims: [ 16 ] }', 4, "shoal", (16,)),
    ],
)
def test_explicit_values_are_kept(tmp_path: Path, config: str, rows: int, policy: str, dims: tuple[int, ...]) -> None:
    spec = spec_of(write_model(tmp_path, config, model=identity_model()))
    assert (spec.max_batch_rows, spec.batching.policy, spec.inputs[0].dims) == (rows, policy, dims)


def test_missing_inputs_are_added_and_chosen_outputs_stay_chosen(tmp_path: Path) -> None:
    config = 'input { name: "b" } output { name: "difference" }'
    spec = spec_of(write_model(tmp_path, config, model=two_by_two_model()))
    assert [tensor.name for tensor in spec.inputs] == ["b", "a"]
    assert [tensor.name for tensor in spec.outputs] == ["difference"]


CONTRADICTIONS = {
    "unknown input": ('\ninput { name: "imag" }', 2, "input[0].name", '"imag"', 'inputs: "x"'),
    "unknown output": ('\noutput { name: "z" }', 2, "output[0].name", '"z"', 'outputs: "y"'),
    "type": ('input { name: "x"\ndata_type: TYPE_FP16 }', 2, "input[0].data_type", "TYPE_FP16", "TYPE_FP32"),
    "size": ('max_batch_size: 2\ninput { name: "x" dims: 17 }', 2, "input[0].dims", "[17]", "[16]"),
    "variable for fixed": ('max_batch_size: 2 input { name: "x" dims: -1 }', 1, "input[0].dims", "[-1]", "[16]"),
    "rank": ('max_batch_size: 2 input { name: "x" dims: [ 4, 4 ] }', 1, "input[0].dims", "[4, 4]", "batch dimension"),
    "rank without batch": ('max_batch_size: 0 input { name: "x" dims: 16 }', 1, "input[0].dims", "[16]", "[-1, 16]"),
}


@pytest.mark.parametrize(("config", "line", "field", "found", "expected"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_config_that_contradicts_the_file_is_refused(
    tmp_path: Path, config: str, line: int, field: str, found: str, expected: str
) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, config, model=identity_model())))
    assert (problem.source, problem.line, problem.field) == ("m/config.pbtxt", line, field)
    assert found in problem.found
    assert expected in problem.expected


@pytest.mark.parametrize(
    ("dims", "config", "field"),
    [
        ((8, 16), "max_batch_size: 8", "max_batch_size"),
        ((), "max_batch_size: 8", "max_batch_size"),
        (("N",), "max_batch_size: 8", "input[0].dims"),
        ((), "max_batch_size: 0", "input[0].dims"),
        (None, "", "input[0].dims"),
    ],
    ids=["fixed batch", "scalar batched", "empty rows", "scalar", "unknown rank"],
)
def test_a_file_that_does_not_suit_the_config_is_refused(tmp_path: Path, dims: Dims, config: str, field: str) -> None:
    problem, *_ = refusals_of(read_model(write_model(tmp_path, config, model=identity_model(dims))))
    assert problem.field == field


def test_dims_that_the_file_leaves_open_come_from_the_config(tmp_path: Path) -> None:
    config = 'max_batch_size: 2 input { name: "x" dims: 3 } output { name: "y" dims: 3 }'
    spec = spec_of(write_model(tmp_path, config, model=identity_model(None, None)))
    assert (spec.inputs[0].dims, spec.inputs[0].data_type) == ((3,), DataType.FP32)


def test_outputs_that_are_no_tensors_need_not_be_served(tmp_path: Path) -> None:
    model = identity_model()
    model.graph.output.append(helper.make_tensor_sequence_value_info("all", TensorProto.FLOAT, None))
    everything = refusal_of(read_model(write_model(tmp_path, name="a", model=model)))
    chosen = spec_of(write_model(tmp_path, 'output { name: "y" }', name="b", model=model))
    assert (everything.field, "sequence_type" in everything.found) == ("output[1]", True)
    assert [output.name for output in chosen.outputs] == ["y"]
