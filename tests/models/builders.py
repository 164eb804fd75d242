"""Model directories for tests: tiny ONNX files and the configurations beside them."""

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from models.errors import ConfigError
from models.model_directory import read_model
from models.model_entry import ModelEntry
from models.spec import ModelSpec

Dims = Sequence[int | str | None] | None

INPUTS = 'input { name: "x" data_type: TYPE_FP32 dims: [ 16 ] }'
OUTPUTS = 'output { name: "y" data_type: TYPE_FP32 dims: [ 16 ] }'
FAKE = f'backend: "fake"\nmax_batch_size: 8\n{INPUTS}\n{OUTPUTS}\n'
"""A valid configuration of four lines, to which tests add the fifth."""


def edited(old: str, new: str) -> str:
    """FAKE with the first `old` replaced."""
    assert old in FAKE
    return FAKE.replace(old, new, 1)


def identity_model(
    dims: Dims = ("N", 16), output_dims: Dims = (), *, data_type: int = TensorProto.FLOAT, weight: int = 0
) -> onnx.ModelProto:
    """Input "x" -> Identity -> output "y"; `output_dims` is `dims` if empty, `weight` bytes are an initializer "w"."""
    inputs = [helper.make_tensor_value_info("x", data_type, dims)]
    outputs = [helper.make_tensor_value_info("y", data_type, dims if output_dims == () else output_dims)]
    initializers = []
    if weight:
        initializers.append(helper.make_tensor("w", TensorProto.UINT8, [weight], bytes(weight), raw=True))
        inputs.append(helper.make_tensor_value_info("w", TensorProto.UINT8, [weight]))
    node = helper.make_node("Identity", ["x"], ["y"])
    return helper.make_model(helper.make_graph([node], "identity", inputs, outputs, initializers))


def two_by_two_model(dims: Dims = ("N", 16)) -> onnx.ModelProto:
    """Inputs "a" and "b", outputs "sum" and "difference"."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
            "two",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("a", "b")],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("sum", "difference")],
        )
    )


def write_model(
    root: Path,
    config: str | None = None,
    side: str | None = None,
    *,
    name: str = "m",
    versions: Sequence[str] = ("1",),
    model: onnx.ModelProto | None = None,
    labels: str | None = None,
) -> Path:
    """Write a model directory; `model`, if given, becomes model.onnx of every version."""
    directory = root / name
    for version in versions:
        (directory / version).mkdir(parents=True)
        if model is not None:
            onnx.save(model, directory / version / "model.onnx")
    for file_name, text in (("config.pbtxt", config), ("shoal.toml", side), ("labels.txt", labels)):
        if text is not None:
            (directory / file_name).write_text(text, encoding="utf-8")
    return directory


def spec_of(directory: Path) -> ModelSpec:
    """The only served version of a model that must be fine."""
    entry = read_model(directory)
    assert entry.problems == ()
    (spec,) = entry.versions
    return spec


def refusal_of(entry: ModelEntry) -> ConfigError:
    """The only problem of a model that must have one, and no versions."""
    (problem,) = refusals_of(entry)
    return problem


def refusals_of(entry: ModelEntry) -> list[ConfigError]:
    """The problems of a model that must have some, and no versions."""
    assert entry.versions == ()
    assert entry.problems
    return [problem for problem in entry.problems if isinstance(problem, ConfigError)]


FIXTURES = Path(__file__).with_name("fixtures")
"""Configurations as people have them, without the model files."""


def article_model(root: Path, name: str, *versions: str) -> Path:
    """A model directory with one of the fixtures' configurations and files that fit it, for each version."""
    directory = root / name
    directory.mkdir(parents=True)
    (directory / "config.pbtxt").write_bytes((FIXTURES / name / "config.pbtxt").read_bytes())
    (directory / "labels.txt").write_text("".join(f"class {index}\n" for index in range(1000)))
    for version in versions or ("1",):
        (directory / version).mkdir()
        if name == "resnet50_libtorch":
            (directory / version / "model.pt").touch()
        else:
            onnx.save(scoring_model(), directory / version / "model.onnx")
    return directory


def scoring_model() -> onnx.ModelProto:
    """Input "data", N pictures 3x224x224 -> the mean of each channel, times a matrix -> "scores" of 1000 classes."""
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [3, 1000], [index / 1000 for index in range(3000)])
    nodes = [
        helper.make_node("GlobalAveragePool", ["data"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["means"]),
        helper.make_node("MatMul", ["means", "weights"], ["scores"]),
    ]
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, ("N", 3, 224, 224))
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("N", 1000))
    graph = helper.make_graph(nodes, "scoring", [data], [scores], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
