"""A model's scheduler, as its configuration says."""

import dataclasses
import difflib
import json

from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.profiles import PROFILES, ProfileError, create_policy
from models.errors import ConfigError
from models.spec import ModelSpec


def create_scheduler(spec: ModelSpec) -> Scheduler:
    """A fresh scheduler with the policy that the configuration names.

    Raises:
        ConfigError: No such policy, or a parameter that it does not have, that cannot be, or that belongs elsewhere.
    """
    batching = spec.batching
    if "allowed_batch_sizes" in batching.parameters:
        raise ConfigError(
            source=f"{spec.name}/shoal.toml",
            line=batching.parameter_lines.get("allowed_batch_sizes"),
            field="batching.parameters.allowed_batch_sizes",
            found="sizes to pad to",
            expected="them as [batching] allowed_batch_sizes, which is what the executor pads to",
        )
    try:
        policy = create_policy(
            batching.policy,
            batching.parameters,
            max_batch_rows=spec.largest_batch_rows,
            faithful=batching.faithful,
            check_shapes=any(tensor.has_variable_dims for tensor in spec.inputs),
        )
    except ProfileError as error:
        raise _config_error(spec, error) from error
    return Scheduler(
        policy,
        create_limits(spec),
        enforce_deadlines=not batching.faithful,
        preserve_ordering=bool(batching.parameters.get("preserve_ordering", False)),
    )


def create_limits(spec: ModelSpec) -> Limits:
    """The scheduler's limits, from the model's configuration."""
    largest = spec.largest_batch_rows
    return Limits(
        max_batch_rows=largest,
        max_requests=spec.batching.max_queue_requests,
        max_rows=max(spec.batching.max_queue_rows, largest),
    )


class PriorityLevels:
    """The levels of a model's requests."""

    def __init__(self, spec: ModelSpec) -> None:
        levels = spec.batching.parameters.get("priority_levels", 0)
        default = spec.batching.parameters.get("default_priority_level", 0)
        self._levels = self._default = 0
        if isinstance(levels, int) and isinstance(default, int) and levels > 0:
            self._levels, self._default = levels, default

    def of(self, requested: int) -> int:
        """The model's default if a request asks for none or for one that there is not, as in Triton."""
        return requested if 1 <= requested <= self._levels else self._default


def _config_error(spec: ModelSpec, error: ProfileError) -> ConfigError:
    lines = spec.batching.parameter_lines
    asked = error.parameter
    parameter = next((name for name in lines if name and (asked == name or asked.startswith(f"{name}."))), "")
    is_of_pbtxt = not parameter and asked.split(".")[0] in spec.batching.parameters
    field = "batching.policy"
    if asked:
        field = f"{'dynamic_batching' if is_of_pbtxt else 'batching.parameters'}.{asked}"
    return ConfigError(
        source=f"{spec.name}/{'config.pbtxt' if is_of_pbtxt else 'shoal.toml'}",
        line=None if is_of_pbtxt else lines.get(parameter),
        field=field.encode("unicode_escape").decode(),
        found=error.found,
        expected=error.expected,
        fix=_fix(spec, error, is_of_side_file=parameter in lines),
    )


def _fix(spec: ModelSpec, error: ProfileError, *, is_of_side_file: bool) -> str:
    """The line with the name that was probably meant; empty if there is none like it."""
    profile = PROFILES.get(spec.batching.policy)
    if profile is None:
        near = difflib.get_close_matches(spec.batching.policy, PROFILES, n=1)
        return f'policy = "{near[0]}"' if near else ""
    if not is_of_side_file or error.parameter not in spec.batching.parameters:
        return ""
    names = {field.name.replace("_", ""): field.name for field in dataclasses.fields(profile.settings)}
    near = difflib.get_close_matches(error.parameter.replace("_", "").lower(), names, n=1, cutoff=0.7)
    if not near or names[near[0]] == error.parameter:
        return ""
    return f"{names[near[0]]} = {json.dumps(spec.batching.parameters[error.parameter])}"
