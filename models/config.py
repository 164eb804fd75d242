"""A version's configuration -> ModelSpec: completed, checked, normalised as Triton does it, then plain values."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.config_backend import ONNX_FILE, complete_backend
from models.config_checks import (
    check_dynamic_batching,
    check_max_batch_size,
    check_name,
    check_tensor_names,
    check_tensors,
    check_tensors_are_given,
    check_version_policy,
)
from models.config_completion import complete_from_onnx
from models.config_execution import check_accelerators, execution
from models.config_groups import check_instance_groups, instance_groups, normalise_instance_groups
from models.config_refusals import refuse_unsupported
from models.onnx_signature import read_signature
from models.pbtxt import ConfigText, ModelConfig, enum_word, to_json
from models.side_file import SideFile
from models.spec import BatchingSpec, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec
from models.text_files import file_inside, read_labels


def check_for_all_versions(text: ConfigText, model: str) -> None:
    """Check what does not depend on a version's files.

    Raises:
        ConfigError: Something unsupported, another name than `model`, an impossible version policy.
    """
    refuse_unsupported(text)
    check_name(text, model)
    check_version_policy(text)
    check_tensor_names(text)
    check_max_batch_size(text)


def served_versions(text: ConfigText, present: Sequence[int]) -> tuple[int, ...]:
    """The versions that the policy selects among those that are present, ascending."""
    policy = text.message.version_policy
    chosen = policy.WhichOneof("policy_choice")
    if chosen == "all":
        return tuple(sorted(present))
    if chosen == "specific":
        return tuple(sorted(set(policy.specific.versions).intersection(present)))
    return tuple(sorted(present)[-max(1, policy.latest.num_versions) :])


def absent_versions(text: ConfigText, present: Sequence[int]) -> tuple[int, ...]:
    """The versions that the policy names and that are not present, ascending."""
    return tuple(sorted(set(text.message.version_policy.specific.versions).difference(present)))


def version_spec(text: ConfigText, side: SideFile, directory: Path, version: int) -> ModelSpec:
    """Complete, check and convert the configuration for one version.

    Args:
        text: The parsed config.pbtxt, which `check_for_all_versions` has seen; not changed.
        side: The parsed shoal.toml.
        directory: The model's directory; its name is the model's.
        version: A version whose subdirectory exists.

    Raises:
        ConfigError: The config, the side file, the labels and the model file do not make a model together.
        RepositoryError: The model file is damaged.
        OSError: A file cannot be read.
    """
    text = text.copy()
    config = text.message
    config.name = directory.name
    file = complete_backend(text, directory / str(version))
    onnx_file = _onnx_file(config, file)
    if onnx_file is not None:
        model_file = f"{version}/{onnx_file.name}"
        complete_from_onnx(text, read_signature(onnx_file, f"{directory.name}/{model_file}"), model_file)
    else:
        check_tensors_are_given(text)
    check_tensors(text)
    check_dynamic_batching(text)
    check_instance_groups(text)
    check_accelerators(text)
    groups = instance_groups(config)
    _normalise(config)
    return _spec(text, side, directory, version, file, groups)


def _onnx_file(config: ModelConfig, file: Path) -> Path | None:
    """The file that the configuration is completed from; beside a TensorRT plan, the model that it was built from."""
    if config.backend == "onnxruntime":
        return file
    if config.backend == "tensorrt":
        source = file if file.suffix == ".onnx" else file.parent / ONNX_FILE
        return source if source.is_file() else None
    return None


def _normalise(config: ModelConfig) -> None:
    """Make Triton's defaults explicit, so that ``/config`` shows them."""
    if config.version_policy.WhichOneof("policy_choice") is None:
        config.version_policy.latest.num_versions = 1
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(memory):
            getattr(config.optimization, memory).enable = True
    if config.HasField("dynamic_batching") and not config.dynamic_batching.preferred_batch_size:
        config.dynamic_batching.preferred_batch_size.append(config.max_batch_size)
    normalise_instance_groups(config)


def _spec(
    text: ConfigText, side: SideFile, directory: Path, version: int, file: Path, groups: tuple[InstanceGroup, ...]
) -> ModelSpec:
    config = text.message
    inputs = tuple(_tensor(tensor, optional=tensor.optional) for tensor in config.input)
    outputs = _outputs(text, side, directory)
    return ModelSpec(
        name=config.name,
        version=version,
        platform=config.platform,
        backend=config.backend,
        max_batch_rows=config.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        instance_groups=groups,
        batching=side.batching(_batching(text), config.max_batch_size),
        execution=side.execution(execution(config)),
        preprocessing=side.preprocessing(inputs),
        scores=_scores(side, outputs),
        file=file,
        parameters={key: parameter.string_value for key, parameter in config.parameters.items()},
        config=to_json(config),
    )


def _tensor(tensor: Any, *, optional: bool = False, labels: tuple[str, ...] = ()) -> TensorSpec:
    data_type = DataType.from_config_name(enum_word(tensor, "data_type"))
    return TensorSpec(name=tensor.name, data_type=data_type, dims=tuple(tensor.dims), optional=optional, labels=labels)


def _scores(side: SideFile, outputs: tuple[TensorSpec, ...]) -> str:
    """The output that is classified: the one that shoal.toml names, else the first with labels, else the first."""
    if side.tables.output is not None:
        return side.tables.output.name
    return next((output.name for output in outputs if output.labels), outputs[0].name)


def _outputs(text: ConfigText, side: SideFile, directory: Path) -> tuple[TensorSpec, ...]:
    from_side = side.labels([output.name for output in text.message.output], directory)
    outputs = []
    for index, output in enumerate(text.message.output):
        labels = from_side.get(output.name) or _labels(text, f"output[{index}]", output.label_filename, directory)
        outputs.append(_tensor(output, labels=labels))
    return tuple(outputs)


def _labels(text: ConfigText, path: str, name: str, directory: Path) -> tuple[str, ...]:
    if not name:
        return ()
    file = file_inside(directory, name)
    if file is None:
        expected = "a file in the model's directory, one label a line"
        raise text.lines.error(f"{path}.label_filename", found=f"no file {name!r}", expected=expected)
    return read_labels(file, f"{directory.name}/{name}")


def _batching(text: ConfigText) -> BatchingSpec:
    """Triton's batcher if the file asks for dynamic batching; that completion adds it as Triton does is no wish."""
    config = text.message
    if config.max_batch_size == 0:
        return BatchingSpec(policy="single")
    if not text.lines.mentions("dynamic_batching"):
        return BatchingSpec()
    batching = config.dynamic_batching
    # Values as JSON has them, so that a specification is the same after a trip to another process.
    parameters: dict[str, object] = {
        "preferred_batch_size": sorted(set(batching.preferred_batch_size)),
        "max_queue_delay_microseconds": batching.max_queue_delay_microseconds,
        "preserve_ordering": batching.preserve_ordering,
        "priority_levels": batching.priority_levels,
        "default_priority_level": batching.default_priority_level,
        "default_queue_policy": _queue_policy(batching.default_queue_policy),
        "priority_queue_policy": {
            str(level): policy
            for level, message in sorted(batching.priority_queue_policy.items())
            if (policy := _queue_policy(message))
        },
    }
    return BatchingSpec(policy="triton", parameters={name: value for name, value in parameters.items() if value})


def _queue_policy(message: Any) -> dict[str, object]:
    """What is set; Triton's zeros mean unset."""
    fields = {field.name: value for field, value in message.ListFields()}
    if fields:
        fields["timeout_action"] = enum_word(message, "timeout_action")
    return fields
