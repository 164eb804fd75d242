"""A version's configuration -> ModelSpec: completed, checked, normalised as Triton does it, then plain values."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.config_backend import ONNX_FILE, complete_backend
from models.config_checks import (
    absent_tensor_problems,
    dynamic_batching_problems,
    max_batch_size_problems,
    name_problems,
    tensor_name_problems,
    tensor_problems,
    version_policy_problems,
)
from models.config_code import Completer, complete_from_code, environment_problems, is_triton_code, parameters_of
from models.config_completion import complete_from_onnx
from models.config_ensemble import complete_ensemble, ensemble_problems, is_ensemble, side_file_problems, with_steps
from models.config_execution import accelerator_problems, execution
from models.config_golden import golden_spec
from models.config_groups import instance_group_problems, instance_groups, normalise_instance_groups
from models.config_refusals import unsupported_problems
from models.config_warmup import warmup_problems, warmup_samples
from models.effective import effective_tables
from models.onnx_signature import read_signature
from models.pbtxt import ConfigText, ModelConfig, enum_word, to_json
from models.problems import Problems
from models.provenance import DEFAULT, Provenance, place, sources_of_side_file
from models.side_file import SideFile
from models.spec import BatchingSpec, ModelSpec
from models.tensors import DataType, TensorSpec
from models.text_files import file_inside, read_labels


def check_for_all_versions(text: ConfigText, model: str) -> None:
    """Check what does not depend on a version's files.

    Raises:
        ConfigError: Something unsupported, another name than `model`, an impossible version policy.
        SeveralProblemsError: More than one of these.
    """
    problems = Problems()
    problems.add_all(unsupported_problems(text))
    problems.add_all(environment_problems(text))
    problems.add_all(name_problems(text, model))
    problems.add_all(version_policy_problems(text))
    problems.add_all(tensor_name_problems(text))
    problems.raise_any()


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


def version_spec(
    text: ConfigText,
    side: SideFile,
    directory: Path,
    version: int,
    *,
    completer: Completer | None = None,
) -> ModelSpec:
    """Complete, check and convert the configuration for one version.

    Args:
        text: The parsed config.pbtxt, which `check_for_all_versions` has seen; not changed.
        side: The parsed shoal.toml.
        directory: The model's directory; its name is the model's.
        version: A version whose subdirectory exists.
        completer: Asks a model's code to complete its configuration, see `Completer`.

    Raises:
        ConfigError: The config, the side file, the labels and the model file do not make a model together.
        RepositoryError: The model file is damaged.
        SeveralProblemsError: More than one of these.
        OSError: A file cannot be read.
    """
    text = text.copy()
    provenance = Provenance(text)
    text.message.name = directory.name
    provenance.completed_from("directory")
    problems = Problems()
    file = problems.attempt(_complete, text, directory, version, provenance, completer)
    problems.add_all(tensor_problems(text, is_complete=not problems))
    are_tensors_fine = not problems
    problems.add_all(max_batch_size_problems(text))
    problems.add_all(dynamic_batching_problems(text))
    problems.add_all(instance_group_problems(text))
    problems.add_all(accelerator_problems(text))
    problems.add_all(warmup_problems(text, directory))
    _attempt_conversions(problems, text, side, directory, with_tensors=are_tensors_fine)
    if not is_ensemble(text):
        return _spec(text, side, directory, version, problems.checked(file), provenance)
    problems.add_all(side_file_problems(side))
    return with_steps(_spec(text, side, directory, version, problems.checked(file), provenance), text)


def _complete(
    text: ConfigText, directory: Path, version: int, provenance: Provenance, completer: Completer | None
) -> Path:
    """Fill in what the version's files say; returns the model's file. Raises ModelsError, for all problems together."""
    if is_ensemble(text):
        return _complete_ensemble(text, directory / str(version), provenance)
    is_told = bool(text.message.backend or text.message.platform)
    file = complete_backend(text, directory / str(version))
    provenance.completed_from(DEFAULT if is_told else f"{version}/{file.name}")
    problems = Problems()
    onnx_file = _onnx_file(text.message, file)
    if onnx_file is None:
        if complete_from_code(text, file, completer):
            provenance.completed_from(f"{version}/{file.name}")
            problems.add_all(unsupported_problems(text))
            problems.add_all(tensor_name_problems(text))
        problems.add_all(absent_tensor_problems(text))
    else:
        model_file = f"{version}/{onnx_file.name}"
        signature = read_signature(onnx_file, f"{directory.name}/{model_file}")
        problems.add_all(complete_from_onnx(text, signature, model_file))
        provenance.completed_from(model_file)
    return problems.checked(file)


def _complete_ensemble(text: ConfigText, version_directory: Path, provenance: Provenance) -> Path:
    problems = Problems()
    problems.add_all(ensemble_problems(text))
    complete_ensemble(text)
    provenance.completed_from(DEFAULT)
    return problems.checked(version_directory)


def _attempt_conversions(
    problems: Problems, text: ConfigText, side: SideFile, directory: Path, *, with_tensors: bool
) -> None:
    """Find what else is wrong: each part is converted for its problems only; `_spec` does it again for good."""
    config = text.message
    from_side = problems.attempt(side.labels, [output.name for output in config.output], directory) or {}
    for index, output in enumerate(config.output):
        if output.name not in from_side:
            problems.attempt(_labels, text, f"output[{index}]", output.label_filename, directory)
    if config.max_batch_size >= 0:
        problems.attempt(side.batching, BatchingSpec(), config.max_batch_size)
    if with_tensors:
        inputs = [_tensor(tensor, optional=tensor.optional) for tensor in config.input]
        problems.attempt(side.preprocessing, inputs)
    problems.attempt(golden_spec, side, directory)


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
    if config.HasField("ensemble_scheduling"):
        return
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(memory):
            getattr(config.optimization, memory).enable = True
    if config.HasField("dynamic_batching") and not config.dynamic_batching.preferred_batch_size:
        config.dynamic_batching.preferred_batch_size.append(config.max_batch_size)
    normalise_instance_groups(config)


def _spec(
    text: ConfigText, side: SideFile, directory: Path, version: int, file: Path, provenance: Provenance
) -> ModelSpec:
    config = text.message
    groups = instance_groups(config)
    _normalise(config)
    provenance.completed_from(DEFAULT)
    _show_labels_of(side, config)
    provenance.completed_from(place(side.lines, "labels"))
    inputs = tuple(_tensor(tensor, optional=tensor.optional) for tensor in config.input)
    outputs = _outputs(text, side, directory)
    spec = ModelSpec(
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
        golden=golden_spec(side, directory),
        scores=_scores(side, outputs),
        file=file,
        parameters=parameters_of(config, directory),
        config=to_json(config),
        warmup=warmup_samples(config, directory),
        wants_requests=is_triton_code(config, file),
    )
    own = sources_of_side_file(side, text, effective_tables(spec))
    return replace(spec, sources={**provenance.sources(spec.config), **own})


def _show_labels_of(side: SideFile, config: ModelConfig) -> None:
    """Labels that shoal.toml names are those in force, so that ``/config`` names them too."""
    if side.tables.labels is not None:
        labelled = side.tables.output.name if side.tables.output is not None else config.output[0].name
        next(output for output in config.output if output.name == labelled).label_filename = side.tables.labels


def _tensor(tensor: Any, *, optional: bool = False, labels: tuple[str, ...] = ()) -> TensorSpec:
    data_type = DataType.from_config_name(enum_word(tensor, "data_type"))
    return TensorSpec(
        name=tensor.name,
        data_type=data_type,
        dims=tuple(tensor.dims),
        optional=optional,
        labels=labels,
        reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
    )


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
