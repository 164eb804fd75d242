"""``ensemble_scheduling`` of a config.pbtxt: what such a configuration may say, and the steps that it becomes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from models.ensembles import check_graph
from models.errors import ConfigError
from models.pbtxt import ConfigText
from models.problems import Problems
from models.side_file import SideFile
from models.spec import EnsembleStep, ModelSpec

PLATFORM = "ensemble"
"""Triton's platform word, and the backend word of the specification."""
NO_POLICY = "none"
"""What stands for the policy of an ensemble, whose requests do not wait."""

_OF_THE_STEPS = {
    "backend": f'no backend: platform "{PLATFORM}" says it all, the models of the steps have backends',
    "instance_group": "no instance groups: the models of the steps have instances",
    "optimization": "no optimization: the models of the steps are optimised",
    "model_warmup": "no warm-up: the models of the steps are warmed up",
    "dynamic_batching": "no batcher: the models of the steps have queues and batchers",
    "default_model_filename": "no file: an ensemble is its steps",
    "cc_model_filenames": "no files: an ensemble is its steps",
}
_LATEST = -1


def is_ensemble(text: ConfigText) -> bool:
    """Whether the configuration is an ensemble's, be it a wrong one."""
    return bool(text.message.platform == PLATFORM or text.message.HasField("ensemble_scheduling"))


def ensemble_problems(text: ConfigText) -> Iterator[ConfigError]:
    """An ensemble has steps, each with a model and its maps, and no field of models that are run themselves."""
    config = text.message
    given = {field.name for field, _ in config.ListFields()}
    for field, expected in _OF_THE_STEPS.items():
        if field in given:
            path = field if text.lines.mentions(field) else f"{field}[0]"
            yield text.lines.error(path, found=f"{field} of an ensemble", expected=expected)
    if config.platform not in ("", PLATFORM):
        expected = f'"{PLATFORM}", because there is ensemble_scheduling; remove one of the two'
        yield text.lines.error("platform", found=f'"{config.platform}"', expected=expected)
    if not config.ensemble_scheduling.step:
        expected = "ensemble_scheduling { step [ ... ] } with at least one step"
        yield text.lines.error("ensemble_scheduling", found="no steps", expected=expected)
    for index, step in enumerate(config.ensemble_scheduling.step):
        yield from _problems_of_step(text, f"ensemble_scheduling.step[{index}]", step)


def _problems_of_step(text: ConfigText, path: str, step: Any) -> Iterator[ConfigError]:
    if not step.model_name:
        yield text.lines.error(f"{path}.model_name", found="no name", expected="the name of the model to run")
    if step.model_namespace:
        found, expected = f'"{step.model_namespace}"', "no namespace: model names are unique here"
        yield text.lines.error(f"{path}.model_namespace", found=found, expected=expected)
    if step.model_version < _LATEST:
        found, expected = str(step.model_version), "a version number, or -1 for the newest"
        yield text.lines.error(f"{path}.model_version", found=found, expected=expected)
    for field in ("input_map", "output_map"):
        entries = getattr(step, field)
        if not entries:
            fix = f'{field} {{ key: "<name in {step.model_name}>" value: "<ensemble tensor>" }}'
            yield text.lines.error(f"{path}.{field}", found=f"no {field}", expected="at least one entry", fix=fix)
        for key, value in entries.items():
            if not (key and value):
                found = f'key "{key}" with value "{value}"'
                yield text.lines.error(f"{path}.{field}", found=found, expected="two names")


def complete_ensemble(text: ConfigText) -> None:
    """Make the defaults of a checked ensemble explicit. A step that says nothing about its version means the newest."""
    text.message.platform = PLATFORM
    for index, step in enumerate(text.message.ensemble_scheduling.step):
        if not step.model_version and not text.lines.mentions(f"ensemble_scheduling.step[{index}].model_version"):
            step.model_version = _LATEST


def side_file_problems(side: SideFile) -> Iterator[ConfigError]:
    """shoal.toml says nothing that an ensemble has no use for."""
    tables = {
        "batching": side.tables.batching.model_fields_set - {"max_queue_requests", "deadlines"},
        "execution": side.tables.execution.model_fields_set,
    }
    for table, keys in tables.items():
        for key in sorted(keys):
            expected = "it in the shoal.toml of the models of the steps, which have queues and instances"
            yield side.lines.error(f"{table}.{key}", found=f"{key} of an ensemble", expected=expected)


def with_steps(spec: ModelSpec, text: ConfigText) -> ModelSpec:
    """The specification of an ensemble, from what a model with the same configuration would have.

    Raises:
        ConfigError: The steps make no graph that could run.
        SeveralProblemsError: For more than one reason.
    """
    steps = tuple(
        EnsembleStep(
            model=step.model_name,
            version=None if step.model_version == _LATEST else step.model_version,
            inputs=dict(sorted(step.input_map.items())),
            outputs=dict(sorted(step.output_map.items())),
        )
        for step in text.message.ensemble_scheduling.step
    )
    batching = replace(spec.batching, policy=NO_POLICY)
    ensemble = replace(spec, backend=PLATFORM, instance_groups=(), batching=batching, steps=steps)
    problems = Problems()
    problems.add_all(check_graph(ensemble))
    return problems.checked(ensemble)
