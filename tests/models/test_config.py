"""Validated configuration: what a good one becomes and how each impossible value is refused."""

from pathlib import Path

import pytest

from models.errors import ConfigError, RepositoryError
from models.model_directory import read_model
from models.spec import BatchingSpec, DeviceKind, InstanceGroup
from models.tensors import DataType, TensorSpec
from tests.models.builders import FAKE, INPUTS, OUTPUTS, edited, identity_model, refusal_of, spec_of, write_model

NORMAL = """\
name: "m"
backend: "fake"
max_batch_size: 8
input [ { name: "x", data_type: TYPE_FP32, dims: [ 3, -1 ] },
        { name: "s" data_type: TYPE_STRING dims: 1 optional: true } ]
output { name: "y" data_type: TYPE_INT64 dims: [ 2 ] label_filename: "labels.txt" }
dynamic_batching { preferred_batch_size: [ 8, 4, 4 ] max_queue_delay_microseconds: 5000 }
instance_group [ { kind: KIND_GPU gpus: [ 0, 2 ] }, { name: "cpu" kind: KIND_CPU count: 3 }, { } ]
parameters { key: "service_base_us" value { string_value: "100" } }
optimization { eager_batching: true }
model_warmup {
  name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 3, 2 ] zero_data: true } }
}
metric_tags { key: "team" value: "vision" }
"""


def test_a_normal_config_becomes_plain_values(tmp_path: Path) -> None:
    directory = write_model(tmp_path, NORMAL, labels="cat\ndog\n")
    spec = spec_of(directory)
    assert (spec.name, spec.version, spec.platform, spec.backend, spec.max_batch_rows) == ("m", 1, "", "fake", 8)
    assert spec.inputs == (
        TensorSpec(name="x", data_type=DataType.FP32, dims=(3, -1)),
        TensorSpec(name="s", data_type=DataType.BYTES, dims=(1,), optional=True),
    )
    assert spec.outputs == (TensorSpec(name="y", data_type=DataType.INT64, dims=(2,), labels=("cat", "dog")),)
    assert spec.batching == BatchingSpec(
        policy="triton", parameters={"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 5000}
    )
    assert spec.instance_groups == (
        InstanceGroup(name="m_0", kind=DeviceKind.GPU, count=1, gpus=(0, 2), is_default_count=True),
        InstanceGroup(name="cpu", kind=DeviceKind.CPU, count=3),
        InstanceGroup(name="m_2", kind=DeviceKind.AUTO, count=1, is_default_count=True),
    )
    assert spec.parameters == {"service_base_us": "100"}
    assert spec.file == directory / "1"
    assert spec.preprocessing is None


def test_the_shown_config_has_the_defaults_that_triton_fills_in(tmp_path: Path) -> None:
    config = spec_of(write_model(tmp_path, FAKE + "dynamic_batching { }")).config
    assert config["name"] == "m"
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["dynamic_batching"]["preferred_batch_size"] == [8]  # type: ignore[index]
    assert config["optimization"]["input_pinned_memory"] == {"enable": True}  # type: ignore[index]
    assert config["instance_group"][0]["name"] == "m"  # type: ignore[index]
    assert config["instance_group"][0]["kind"] == "KIND_CPU"  # type: ignore[index]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param("max_batch_size: 0", BatchingSpec(policy="single"), id="no batch dimension"),
        pytest.param("max_batch_size: 4", BatchingSpec(policy="shoal"), id="no dynamic batching"),
        pytest.param(
            "max_batch_size: 4 dynamic_batching { }",
            BatchingSpec(policy="triton", parameters={"preferred_batch_size": [4]}),
            id="dynamic",
        ),
        pytest.param(
            "max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 2"
            " default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 300 }"
            " priority_queue_policy { key: 1 value { max_queue_size: 7 } } }",
            BatchingSpec(
                policy="triton",
                parameters={
                    "preferred_batch_size": [4],
                    "priority_levels": 2,
                    "default_priority_level": 2,
                    "default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 300},
                    "priority_queue_policy": {"1": {"timeout_action": "REJECT", "max_queue_size": 7}},
                },
            ),
            id="priorities",
        ),
        pytest.param(
            "max_batch_size: 4 dynamic_batching { preserve_ordering: true }",
            BatchingSpec(policy="triton", parameters={"preferred_batch_size": [4], "preserve_ordering": True}),
            id="ordering",
        ),
    ],
)
def test_the_policy_follows_from_the_config(tmp_path: Path, config: str, expected: BatchingSpec) -> None:
    directory = write_model(tmp_path, f'backend: "fake" {config} {INPUTS} {OUTPUTS}')
    assert spec_of(directory).batching == expected


def test_another_file_name_is_honoured(tmp_path: Path) -> None:
    directory = write_model(
        tmp_path, 'backend: "onnxruntime" default_model_filename: "net.onnx"', model=identity_model()
    )
    (directory / "1" / "model.onnx").rename(directory / "1" / "net.onnx")
    assert spec_of(directory).file.name == "net.onnx"


IMPOSSIBLE = {
    "another name": (FAKE + 'name: "n"', 5, "name", '"n"', '"m"'),
    "negative batch": (edited("size: 8", "size: -1"), 2, "max_batch_size", "-1", "0 (no batch dimension)"),
    "unknown backend": (edited("fake", "dali"), 1, "backend", '"dali"', "onnxruntime, pytorch, tensorrt, python, fake"),
    "unknown platform": ('\nplatform: "caffe2"', 2, "platform", '"caffe2"', "onnxruntime_onnx"),
    "contradicting pair": (FAKE + 'platform: "onnxruntime_onnx"', 1, "backend", '"fake"', '"onnxruntime", the backend'),
    "no backend": (edited('backend: "fake"', ""), None, "backend", "neither backend nor", 'backend: "onnxruntime"'),
    "no model file": ('backend: "onnxruntime"', None, "default_model_filename", "no such file", '"model.onnx"'),
    "file elsewhere": (
        'backend: "onnxruntime"\ndefault_model_filename: "../x"', 2, "default_model_filename", "'../x'", "plain file",
    ),
    "input without name": (edited('name: "x"', ""), 3, "input[0].name", "no name", "the name"),
    "duplicate input": (f"{FAKE}{INPUTS}", 5, "input[1].name", '"x"', "input[0] does not have"),
    "duplicate output": (f"{FAKE}{OUTPUTS}", 5, "output[1].name", '"y"', "output[0] does not have"),
    "no input": (edited(INPUTS, ""), None, "input", "no input", "at least one"),
    "no output": (edited(OUTPUTS, ""), None, "output", "no output", "at least one"),
    "no type": (edited('"y" data_type: TYPE_FP32', '"y"'), 4, "output[0].data_type", "TYPE_INVALID", "TYPE_FP32"),
    "type number": (edited('"y" data_type: TYPE_FP32', '"y" data_type: 77'), 4, "output[0].data_type", "77", "TYPE_FP"),
    "no dims": (edited('"y" data_type: TYPE_FP32 dims: [ 16 ]', '"y" data_type: TYPE_FP32'), 4, "output[0].dims",
                "no dimensions", "at least one"),
    "dim 0": (edited("dims: [ 16 ]", "dims: [\n16,\n0 ]"), 5, "input[0].dims[1]", "0", "-1 for a variable"),
    "dim -2": (edited("dims: [ 16 ]", "dims: -2"), 3, "input[0].dims[0]", "-2", "-1 for a variable"),
    "format": (edited('"x"', '"x" format: FORMAT_NCHW'), 3, "input[0].format", "FORMAT_NCHW with 1 dims", "3 dims"),
    "preferred 0": (FAKE + "dynamic_batching {\npreferred_batch_size: [ 4,\n0 ] }", 7,
                    "dynamic_batching.preferred_batch_size[1]", "0", "from 1 to max_batch_size, 8"),
    "preferred too large": (FAKE + "dynamic_batching { preferred_batch_size: 9 }", 5,
                            "dynamic_batching.preferred_batch_size[0]", "9", "from 1 to max_batch_size, 8"),
    "endless delay": (FAKE + "dynamic_batching { max_queue_delay_microseconds: 3600000001 }", 5,
                      "dynamic_batching.max_queue_delay_microseconds", "3600000001", "one hour"),
    "no default level": (FAKE + "dynamic_batching { priority_levels: 2 }", 5,
                         "dynamic_batching.default_priority_level", "0", "from 1 to priority_levels, 2"),
    "default level without levels": (FAKE + "dynamic_batching { default_priority_level: 1 }", 5,
                                     "dynamic_batching.default_priority_level", "1", "priority_levels"),
    "policy of no level": (FAKE + "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 4 } } }",
                           5, "dynamic_batching.priority_queue_policy[0]", "level 1", "no levels"),
    "endless timeout": (FAKE + "dynamic_batching { default_queue_policy {\n"
                        "default_timeout_microseconds: 3600000001 } }", 6,
                        "dynamic_batching.default_queue_policy.default_timeout_microseconds", "more than one hour",
                        "3600000000"),
    "ordered levels": (FAKE + "dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
                       "preserve_ordering: true }", 6, "dynamic_batching.preserve_ordering", "2 priority levels",
                       "at most one level"),
    "ordered delays": (FAKE + "dynamic_batching {\npreserve_ordering: true default_queue_policy { timeout_action: DELAY"
                       " default_timeout_microseconds: 5 } }", 6, "dynamic_batching.preserve_ordering", "delays",
                       "REJECT"),
    "dynamic batching without batches": (edited("size: 8", "size: 0") + "dynamic_batching { }", 5, "dynamic_batching",
                                         "max_batch_size 0", "remove dynamic_batching"),
    "reshape of other size": (edited("[ 16 ]", "[ 16 ] reshape { shape: [ 4, 5 ] }"), 3, "input[0].reshape.shape",
                              "[4, 5]", "as many elements as dims, [16]"),
    "reshape to nothing": (edited("[ 16 ]", "[ 16 ] reshape { shape: [ 16, 0 ] }"), 3, "input[0].reshape.shape",
                           "[16, 0]", "positive sizes"),
    "no labels": (edited('"y"', '"y" label_filename: "l.txt"'), 4, "output[0].label_filename", "'l.txt'",
                  "one label a line"),
    "latest 0": (FAKE + "version_policy { latest { } }", 5, "version_policy.latest.num_versions", "0", "at least 1"),
    "specific none": (FAKE + "version_policy { specific { } }", 5, "version_policy.specific", "no versions", "one"),
    "specific negative": (FAKE + "version_policy { specific { versions: [ 1,\n-1 ] } }", 6,
                          "version_policy.specific.versions[1]", "-1", "0 or more"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "line", "field", "found", "expected"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_value_is_refused_with_its_line(
    tmp_path: Path, config: str, line: int | None, field: str, found: str, expected: str
) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, config)))
    assert (problem.source, problem.line, problem.field) == ("m/config.pbtxt", line, field)
    assert found in problem.found
    assert expected in problem.expected


UNSUPPORTED = {
    "sequences": (FAKE + "sequence_batching { }", 5, "sequence_batching"),
    "decoupled": (FAKE + "model_transaction_policy {\ndecoupled: true }", 6, "model_transaction_policy.decoupled"),
    "ragged": (edited("[ 16 ]", "[ 16 ] allow_ragged_batch: true"), 3, "input[0].allow_ragged_batch"),
    "shape tensor": (edited('"y"', '"y" is_shape_tensor: true'), 4, "output[0].is_shape_tensor"),
    "batch input": (FAKE + "batch_input { kind: BATCH_ELEMENT_COUNT }", 5, "batch_input[0]"),
    "batch output": (FAKE + "batch_output { }", 5, "batch_output[0]"),
    "cache": (FAKE + "response_cache { enable: true }", 5, "response_cache.enable"),
    "agents": (FAKE + "model_repository_agents { agents { } }", 5, "model_repository_agents"),
    "operators": (FAKE + 'model_operations { op_library_filename: "a.so" }', 5, "model_operations"),
    "passive": (FAKE + "instance_group { passive: true }", 5, "instance_group[0].passive"),
    "secondary": (FAKE + "instance_group { secondary_devices { } }", 5, "instance_group[0].secondary_devices"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "line", "field"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_would_silently_not_happen_is_refused(tmp_path: Path, config: str, line: int, field: str) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, config)))
    assert (problem.line, problem.field) == (line, field)
    assert "is not supported yet; remove it" in problem.expected


def test_switched_off_features_are_accepted(tmp_path: Path) -> None:
    config = FAKE + (
        "model_transaction_policy { decoupled: false } response_cache { enable: false } dynamic_batching {"
        " preserve_ordering: false priority_levels: 0 default_queue_policy { } }"
    )
    assert spec_of(write_model(tmp_path, config)).batching.policy == "triton"


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("cat\ndog", ("cat", "dog")),
        ("cat\r\ndog\r\n", ("cat", "dog")),
        ("\ufeffa\u2028b\n\nc\n", ("a\u2028b", "", "c")),
    ],
)
def test_labels_are_lines(tmp_path: Path, content: str, labels: tuple[str, ...]) -> None:
    directory = write_model(tmp_path, edited('"y"', '"y" label_filename: "labels.txt"'))
    (directory / "labels.txt").write_bytes(content.encode())
    assert spec_of(directory).outputs[0].labels == labels


def test_labels_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    directory = write_model(tmp_path, edited('"y"', '"y" label_filename: "labels.txt"'))
    (directory / "labels.txt").write_bytes(b"cat\nd\xf6g\n")
    problem = refusal_of(read_model(directory))
    assert (problem.source, problem.line, problem.found) == ("m/labels.txt", 2, "the byte 0xf6")


@pytest.mark.parametrize("name", ["../secret", "{root}/secret", "link", "1/../../secret"])
def test_a_file_outside_the_model_directory_is_no_label_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("cat\n")
    directory = write_model(tmp_path, edited('"y"', f'"y" label_filename: "{name.format(root=tmp_path)}"'))
    (directory / "link").symlink_to(tmp_path / "secret")
    assert refusal_of(read_model(directory)).field == "output[0].label_filename"


def test_no_message_shows_a_path_of_the_machine(tmp_path: Path) -> None:
    broken = write_model(tmp_path, 'backend: "onnxruntime"')
    (broken / "1" / "model.onnx").write_bytes(b"")
    problems = [*read_model(broken).problems, ConfigError(source="m/x", field="f", found="a", expected="b")]
    assert isinstance(problems[0], RepositoryError)
    assert all(str(tmp_path) not in str(problem) for problem in problems)


def test_a_tensor_format_without_a_word_is_refused(tmp_path: Path) -> None:
    problem = refusal_of(read_model(write_model(tmp_path, edited('"x"', '"x" format: 9'))))
    assert (problem.line, problem.field, problem.found) == (3, "input[0].format", "9")
