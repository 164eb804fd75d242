"""Which backend runs a model, from which file, and what must be written for it."""

from pathlib import Path

import pytest

from models.model_directory import read_model
from models.spec import ModelSpec
from models.tensors import DataType
from tests.models.builders import INPUTS, OUTPUTS, identity_model, refusal_of, refusals_of, spec_of, write_model

TENSORS = f"max_batch_size: 8 {INPUTS} {OUTPUTS}\n"


def with_files(root: Path, config: str, *files: str) -> Path:
    directory = write_model(root, config)
    for file in files:
        (directory / "1" / file).touch()
    return directory


def summary(spec: ModelSpec) -> tuple[str, str, str]:
    return (spec.backend, spec.platform, spec.file.name)


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ("", ["model.pt"], ("pytorch", "pytorch_libtorch", "model.pt")),
        ("", ["model.pt2"], ("pytorch", "pytorch_libtorch", "model.pt2")),
        ("", ["model.pth", "model.py"], ("pytorch", "pytorch_libtorch", "model.pth")),
        ("", ["model.py"], ("python", "", "model.py")),
        ("", ["model.plan"], ("tensorrt", "tensorrt_plan", "model.plan")),
        ('platform: "pytorch_libtorch"', ["model.pt2", "model.pt"], ("pytorch", "pytorch_libtorch", "model.pt")),
        ('platform: "tensorrt_plan"', ["model.plan"], ("tensorrt", "tensorrt_plan", "model.plan")),
        ('backend: "pytorch" default_model_filename: "n.bin"', ["n.bin"], ("pytorch", "pytorch_libtorch", "n.bin")),
        ('backend: "python" default_model_filename: "serve.py"', ["serve.py"], ("python", "", "serve.py")),
    ],
)
def test_backend_platform_and_file_follow_from_each_other(
    tmp_path: Path, config: str, files: list[str], expected: tuple[str, str, str]
) -> None:
    spec = spec_of(with_files(tmp_path, TENSORS + config, *files))
    assert summary(spec) == expected
    assert spec.config["default_model_filename"] == expected[2]


def test_an_onnx_model_without_a_config_is_completed(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, model=identity_model()))
    assert summary(spec) == ("onnxruntime", "onnxruntime_onnx", "model.onnx")
    assert spec.config["default_model_filename"] == "model.onnx"


@pytest.mark.parametrize("plan", [(), ("model.plan",)])
def test_a_tensorrt_model_is_completed_from_its_onnx_file(tmp_path: Path, plan: tuple[str, ...]) -> None:
    directory = write_model(tmp_path, 'backend: "tensorrt"', model=identity_model())
    for file in plan:
        (directory / "1" / file).touch()
    spec = spec_of(directory)
    assert summary(spec) == ("tensorrt", "tensorrt_plan", *(plan or ("model.onnx",)))
    assert (spec.max_batch_rows, spec.inputs[0].data_type, spec.inputs[0].dims) == (4, DataType.FP32, (16,))


def test_a_config_that_contradicts_the_onnx_file_of_a_plan_is_refused(tmp_path: Path) -> None:
    directory = write_model(tmp_path, 'backend: "tensorrt"\n' + TENSORS, model=identity_model(("N", 5)))
    (directory / "1" / "model.plan").touch()
    assert [problem.field for problem in refusals_of(read_model(directory))] == ["input[0].dims", "output[0].dims"]


def test_a_model_of_torchvision_needs_no_file(tmp_path: Path) -> None:
    config = TENSORS + 'backend: "pytorch" parameters { key: "torchvision_model" value { string_value: "resnet18" } }'
    without, with_weights = with_files(tmp_path / "a", config), with_files(tmp_path / "b", config, "model.pth")
    assert spec_of(without).file == without / "1"
    assert "resnet18" in spec_of(without).parameters.values()
    assert spec_of(with_weights).file == with_weights / "1" / "model.pth"


def test_a_named_file_is_needed_by_a_model_of_torchvision_too(tmp_path: Path) -> None:
    parameters = 'parameters { key: "torchvision_model" value { string_value: "resnet18" } }'
    config = f'{TENSORS}backend: "pytorch" default_model_filename: "best.pth" {parameters}'
    problem = refusal_of(read_model(with_files(tmp_path, config, "model.pth")))
    assert (problem.field, problem.found) == ("default_model_filename", "no such file")


@pytest.mark.parametrize(
    ("backend", "alternatives"),
    [
        ("pytorch", ['"model.pt"', '"model.pt2"', '"model.pth"', "torchvision_model"]),
        ("tensorrt", ['"model.plan"', '"model.onnx"']),
        ("python", ['"model.py"']),
    ],
)
def test_a_missing_file_is_named_with_what_else_would_do(tmp_path: Path, backend: str, alternatives: list[str]) -> None:
    problem = refusal_of(read_model(with_files(tmp_path, f'{TENSORS}backend: "{backend}"')))
    assert (problem.field, problem.found) == ("default_model_filename", "no such file")
    assert [word for word in alternatives if word not in problem.expected] == []


@pytest.mark.parametrize(
    ("files", "kind", "example"),
    [
        (["model.pt"], "input", 'name: "input__0" data_type: TYPE_FP32 dims: [ 3, 224, 224 ]'),
        (["model.py"], "input", 'input [ { name: "input" data_type'),
        (["model.plan"], "input", "put the ONNX file that it was built from beside it as model.onnx"),
        (["model.pt"], "output", 'name: "output__0" data_type: TYPE_FP32 dims: [ 1000 ]'),
    ],
)
def test_tensors_that_no_file_tells_must_be_written(tmp_path: Path, files: list[str], kind: str, example: str) -> None:
    config = INPUTS if kind == "output" else ""
    problem = refusals_of(read_model(with_files(tmp_path, config, *files)))[0]
    assert (problem.field, problem.found) == (kind, f"no {kind}")
    assert example in str(problem)


@pytest.mark.parametrize(
    ("config", "files", "field", "advice"),
    [
        ("", ["model.savedmodel"], "backend", "python -m tf2onnx.convert --saved-model"),
        ("", ["model.graphdef"], "backend", "--graphdef FILE"),
        ('\nplatform: "tensorflow_savedmodel"', [], "platform", "python -m tf2onnx.convert"),
        ('\nbackend: "tensorflow"', [], "backend", "python -m tf2onnx.convert"),
        ("", ["model.xml"], "backend", "export the original model"),
        ('\nplatform: "torch_aoti"', ["model.pt2"], "platform", "torch.export.save"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_with_a_way_out(
    tmp_path: Path, config: str, files: list[str], field: str, advice: str
) -> None:
    problem = refusal_of(read_model(with_files(tmp_path, config, *files)))
    assert (problem.field, problem.line) == (field, 2 if config else None)
    assert advice in problem.expected
