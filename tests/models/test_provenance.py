"""Where the values of a configuration in force come from."""

from pathlib import Path

import pytest

from models.model_directory import read_model
from models.provenance import leaves
from tests.models.builders import FAKE, identity_model, spec_of, write_model

SIDE = """\
labels = "labels.txt"
[batching]
max_queue_rows = 99
[batching.parameters]
max_queue_delay_microseconds = 7
"""


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("backend", "config.pbtxt:1"),
        ("max_batch_size", "config.pbtxt:2"),
        ("input[0].dims[0]", "config.pbtxt:3"),
        ("input[0].format", "default"),
        ("output[0].label_filename", "shoal.toml:1"),
        ("dynamic_batching.preferred_batch_size[1]", "config.pbtxt:6"),
        ("parameters.a.b.string_value", "config.pbtxt:9"),
        ("optimization.execution_accelerators.cpu_execution_accelerator[0].parameters.p", "config.pbtxt:10"),
        ("instance_group[0].kind", "default"),
        ("name", "directory"),
        ("shoal.batching.policy", "config.pbtxt:5"),
        ("shoal.batching.parameters.preferred_batch_size[0]", "config.pbtxt:6"),
        ("shoal.batching.parameters.max_queue_delay_microseconds", "shoal.toml:5"),
        ("shoal.batching.max_queue_rows", "shoal.toml:3"),
        ("shoal.batching.max_queue_requests", "default"),
        ("shoal.execution.step_timeout_s", "default"),
    ],
)
def test_a_value_names_its_file_and_line(tmp_path: Path, path: str, source: str) -> None:
    config = FAKE + (
        "dynamic_batching {\n  preferred_batch_size: [ 4, 8 ]\n}\n"
        'parameters {\n  key: "a.b" value { string_value: "c" } }\n'
        "optimization { execution_accelerators { cpu_execution_accelerator {"
        ' name: "openvino" parameters { key: "p" value: "q" } } } }'
    )
    spec = spec_of(write_model(tmp_path, config, SIDE, labels="cat\n"))

    assert spec.sources[path] == source


@pytest.mark.parametrize("path", ["backend", "max_batch_size", "input[0].name", "output[0].dims[0]"])
def test_what_the_model_file_says_names_it(tmp_path: Path, path: str) -> None:
    spec = spec_of(write_model(tmp_path, versions=["3"], model=identity_model()))

    assert spec.sources[path] == "3/model.onnx"


@pytest.mark.parametrize(
    ("given", "other"), [('\nplatform: "onnxruntime_onnx"', "backend"), ('\nbackend: "onnxruntime"', "platform")]
)
def test_of_backend_and_platform_the_one_that_is_given_decides_the_other(
    tmp_path: Path, given: str, other: str
) -> None:
    spec = spec_of(write_model(tmp_path, given, model=identity_model()))

    assert spec.sources[other] == "config.pbtxt:2"


def test_every_value_has_a_source(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, FAKE + "instance_group { gpus: [ 0, 1 ] }", SIDE, labels="cat\n"))

    assert {path for path, _ in leaves(spec.config)} <= set(spec.sources)


def test_what_a_load_request_says_names_it(tmp_path: Path) -> None:
    directory = write_model(tmp_path, FAKE)
    override = (
        '{"backend": "fake", "max_batch_size": 2, "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [16]}],'
        ' "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [16]}]}'
    )

    (spec,) = read_model(directory, override=override).versions

    assert spec.sources["max_batch_size"] == spec.sources["input[0].dims[0]"]
    assert "load request" in spec.sources["max_batch_size"]


def test_sources_do_not_make_versions_differ(tmp_path: Path) -> None:
    plain, moved = (spec_of(write_model(tmp_path / name, config)) for name, config in (("a", FAKE), ("b", "\n" + FAKE)))

    assert plain.sources != moved.sources
    assert plain.config == moved.config
