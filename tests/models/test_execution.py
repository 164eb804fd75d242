"""How a version is executed: what `optimization` says of it, what is noted, and that it survives a trip as JSON."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from models.model_directory import read_model
from models.spec import Accelerator, ExecutionSpec, Host, ModelSpec
from tests.models.builders import FAKE, identity_model, refusal_of, spec_of, write_model

LIBTORCH = """\
platform: "pytorch_libtorch"
max_batch_size: 32
input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1000 ] label_filename: "labels.txt" } ]
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching { preferred_batch_size: [ 8, 16, 32 ] max_queue_delay_microseconds: 5000 priority_levels: 2
  default_priority_level: 1 priority_queue_policy { key: 2 value { max_queue_size: 7 } } }
optimization { execution_accelerators { gpu_execution_accelerator : [ {
  name : "tensorrt" parameters { key: "precision_mode" value: "FP16" } } ] } }
parameters { key: "INFERENCE_MODE" value { string_value: "true" } }
"""
SIDE = """\
[batching.parameters]
preferred_batch_size = [4]
[execution]
host = "process"
[preprocessing]
crop = 224
std = [58.4, 57.1, 57.4]
"""


def libtorch_model(root: Path, side: str = "") -> Path:
    directory = write_model(root, LIBTORCH, side, labels="cat\ndog\n")
    (directory / "1" / "model.pt").touch()
    return directory


def test_accelerators_and_graphs_become_plain_values(tmp_path: Path) -> None:
    config = FAKE + (
        'optimization { cuda { graphs: true } execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt"'
        ' parameters { key: "precision_mode" value: "FP16" } }, { name: "cuda" } ]'
        ' cpu_execution_accelerator { name: "openvino" } } }'
    )
    assert spec_of(write_model(tmp_path, config)).execution == ExecutionSpec(
        gpu_accelerators=(
            Accelerator(name="tensorrt", parameters={"precision_mode": "FP16"}),
            Accelerator(name="cuda"),
        ),
        cpu_accelerators=(Accelerator(name="openvino"),),
        cuda_graphs=True,
    )


@pytest.mark.parametrize(
    ("accelerators", "line", "found"),
    [
        ('[ { name: "tensorrt" },\n{ name: "tensorrt" } ]', 6, '"tensorrt" a second time'),
        ('[ { name: "tensorrt" },\n{ } ]', 6, "no name"),
    ],
)
def test_an_impossible_accelerator_is_refused_with_its_line(
    tmp_path: Path, accelerators: str, line: int, found: str
) -> None:
    place = "optimization.execution_accelerators.gpu_execution_accelerator[1].name"
    config = f"{FAKE}optimization {{ execution_accelerators {{ gpu_execution_accelerator {accelerators} }} }}"
    problem = refusal_of(read_model(write_model(tmp_path, config)))
    assert (problem.line, problem.field, problem.found) == (line, place, found)


NOTED = {
    "graph level": ("optimization { graph { level: 1 } }", "optimization.graph.level"),
    "priority": ("optimization { priority: PRIORITY_MAX }", "optimization.priority"),
    "pinned memory": ("optimization { input_pinned_memory { } }", "optimization.input_pinned_memory"),
    "eager batching": ("optimization { eager_batching: true }", "optimization.eager_batching"),
    "graphs": ("optimization { cuda { graphs: true } }", "optimization.cuda.graphs"),
    "graph sizes": ("optimization { cuda { graph_spec { batch_size: 1 } } }", "optimization.cuda.graph_spec"),
    "busy wait": ("optimization { cuda { busy_wait_events: true } }", "optimization.cuda.busy_wait_events"),
    "copy stream": ("optimization { cuda { output_copy_stream: true } }", "optimization.cuda.output_copy_stream"),
    "accelerator": (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
        "optimization.execution_accelerators.gpu_execution_accelerator",
    ),
    "host policy": ('instance_group { host_policy: "node0" }', "instance_group[0].host_policy"),
    "warm-up": ('model_warmup { name: "w" }', "model_warmup[0]"),
    "tags": ('metric_tags { key: "team" value: "vision" }', "metric_tags"),
    "file by GPU": ('cc_model_filenames { key: "8.6" value: "a.plan" }', "cc_model_filenames"),
}


@pytest.mark.parametrize(("config", "field"), NOTED.values(), ids=NOTED)
def test_what_has_no_effect_is_noted_with_its_line(tmp_path: Path, config: str, field: str) -> None:
    entry = read_model(write_model(tmp_path, FAKE + config))
    assert len(entry.versions) == 1
    assert [note.partition(": has no effect: ")[0] for note in entry.notes] == [f"m/config.pbtxt:5: {field}"]


def test_accelerators_of_the_device_that_no_group_is_on_are_noted(tmp_path: Path) -> None:
    accelerators = 'execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } }'
    config = f"optimization {{ {accelerators} }}\ninstance_group {{ kind: KIND_%s }}"
    on_cpu = read_model(write_model(tmp_path, config % "CPU", name="a", model=identity_model()))
    on_gpu = read_model(write_model(tmp_path, config % "GPU", name="b", model=identity_model()))
    assert [note.rpartition(": ")[2] for note in on_cpu.notes] == ["all instance groups are on the CPU"]
    assert on_gpu.notes == ()


def test_defaults_that_are_written_out_are_not_noted(tmp_path: Path) -> None:
    config = FAKE + (
        "optimization { priority: PRIORITY_DEFAULT input_pinned_memory { enable: true } eager_batching: false"
        " graph { level: 0 } cuda { graphs: false } }"
    )
    assert read_model(write_model(tmp_path, config)).notes == ()


def test_a_note_about_every_version_is_told_once(tmp_path: Path) -> None:
    config = FAKE + "version_policy { all { } } optimization { eager_batching: true }"
    entry = read_model(write_model(tmp_path, config, versions=("1", "2")))
    assert (len(entry.versions), len(entry.notes)) == (2, 1)


def test_a_triton_config_for_libtorch_on_gpus_is_read(tmp_path: Path) -> None:
    entry = read_model(libtorch_model(tmp_path))
    (spec,) = entry.versions
    assert [(group.kind.value, group.count, group.gpus) for group in spec.instance_groups] == [("KIND_GPU", 2, (0, 1))]
    assert spec.execution.gpu_accelerators[0].parameters == {"precision_mode": "FP16"}
    assert [tensor.name for tensor in (*spec.inputs, *spec.outputs)] == ["input__0", "output__0"]
    assert ['backend "pytorch" takes no accelerators' in note for note in entry.notes] == [True]


def test_a_specification_survives_json(tmp_path: Path) -> None:
    spec = spec_of(libtorch_model(tmp_path, SIDE))
    adapter = TypeAdapter(ModelSpec)
    read = adapter.validate_json(adapter.dump_json(spec))
    assert read == spec
    assert read.execution.host is Host.PROCESS
    assert isinstance(read.file, Path)
    assert read.batching.parameter_lines == spec.batching.parameter_lines
