"""A configuration in force can be written down, and what is written leads to the same version."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from models.effective import side_text
from models.examples.writing import write_ensemble
from models.model_directory import read_model
from models.pbtxt_writer import config_text, json_to_text
from models.spec import ModelSpec
from tests.models.builders import FAKE, identity_model, spec_of, write_model
from tests.models.configs import Texts, texts


def rewritten(directory: Path, spec: ModelSpec) -> ModelSpec:
    """What the directory is after its own configuration was replaced by the one in force."""
    (directory / "config.pbtxt").write_text(config_text(spec), encoding="utf-8")
    (directory / "shoal.toml").write_text(side_text(spec), encoding="utf-8")
    return spec_of(directory)


@settings(max_examples=40, deadline=None)
@given(texts())
def test_the_configuration_in_force_leads_to_the_same_version(given: Texts) -> None:
    with TemporaryDirectory() as root:
        directory = write_model(Path(root), given.config, given.side)
        spec = spec_of(directory)

        again = rewritten(directory, spec)

    assert again == spec
    assert (config_text(again), side_text(again)) == (config_text(spec), side_text(spec))


@pytest.mark.parametrize(
    ("config", "side"),
    [
        (None, None),
        (None, 'labels = "labels.txt"'),
        ("max_batch_size: 0", None),
        ("max_batch_size: 8 dynamic_batching { }", '[batching]\npolicy = "triton"\n'),
    ],
    ids=["nothing given", "labels of the side file", "no batches", "batches"],
)
def test_what_was_completed_from_a_model_file_stays(tmp_path: Path, config: str | None, side: str | None) -> None:
    directory = write_model(tmp_path, config, side, model=identity_model(), labels="cat\ndog\n")
    spec = spec_of(directory)

    assert rewritten(directory, spec) == spec


def test_a_model_without_batches_stays_one_when_its_json_is_loaded(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "max_batch_size: 0", model=identity_model())
    spec = spec_of(directory)

    (again,) = read_model(directory, override=json.dumps(spec.config)).versions

    assert (again.max_batch_rows, again.config) == (0, spec.config)


def test_an_ensemble_and_what_it_consists_of_stay(tmp_path: Path) -> None:
    write_ensemble(tmp_path)
    (tmp_path / "photo-labels" / "shoal.toml").write_text("[batching]\nmax_queue_requests = 3\n")
    specs = {directory: spec_of(directory) for directory in tmp_path.iterdir()}

    assert {directory: rewritten(directory, spec) for directory, spec in specs.items()} == specs


def test_preprocessing_stays(tmp_path: Path) -> None:
    config = FAKE.replace("[ 16 ]", "[ 3, 96, 96 ]", 1)
    directory = write_model(tmp_path, config, "[preprocessing]\nresize = 96\ncrop = 96\nmean = [1.0, 2.0, 3.5]\n")
    spec = spec_of(directory)

    assert rewritten(directory, spec) == spec


def test_defaults_that_depend_on_the_machine_are_not_written_down(tmp_path: Path) -> None:
    text = config_text(spec_of(write_model(tmp_path, FAKE + "instance_group { gpus: 0 }")))

    assert "KIND_CPU" not in text
    assert "count" not in text
    assert "gpus: [0]" in text


# As a Triton server answers /v2/models/resnet/config: every field, defaults too, 64-bit numbers in maps' keys as text.
ANSWER_OF_TRITON = {
    "name": "m", "platform": "", "backend": "fake", "runtime": "",
    "version_policy": {"latest": {"num_versions": 1}}, "max_batch_size": 8,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [16], "is_shape_tensor": False,
               "allow_ragged_batch": False, "optional": False, "is_non_linear_format_io": False}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [16], "label_filename": "", "is_shape_tensor": False,
                "is_non_linear_format_io": False}],
    "batch_input": [], "batch_output": [],
    "optimization": {"priority": "PRIORITY_DEFAULT", "input_pinned_memory": {"enable": True},
                     "output_pinned_memory": {"enable": True}, "gather_kernel_buffer_threshold": 0,
                     "eager_batching": False},
    "dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 100, "preserve_ordering": False,
                         "priority_levels": 2, "default_priority_level": 1,
                         "priority_queue_policy": {"2": {"timeout_action": "REJECT", "default_timeout_microseconds": 0,
                                                         "allow_timeout_override": False, "max_queue_size": 4}}},
    "instance_group": [{"name": "m", "kind": "KIND_CPU", "count": 1, "gpus": [], "secondary_devices": [],
                        "profile": [], "passive": False, "host_policy": ""}],
    "default_model_filename": "", "cc_model_filenames": {}, "metric_tags": {},
    "parameters": {"service_row_us": {"string_value": "0"}}, "model_warmup": [],
}  # fmt: skip


def test_what_triton_answers_turned_into_text_loads(tmp_path: Path) -> None:
    spec = spec_of(write_model(tmp_path, json_to_text(ANSWER_OF_TRITON)))

    assert json.loads(json.dumps(spec.config)) == ANSWER_OF_TRITON


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the fields of"):
        json_to_text({"max_batch_sise": 8})
