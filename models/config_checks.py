"""Values of a config.pbtxt that cannot be: each refused with its line, what was found and what was expected."""

from collections.abc import Iterator, Sequence
from typing import Any

from models.pbtxt import ConfigText, enum_word
from models.tensors import DataType

_MAX_DELAY_US = 3_600_000_000


def check_name(text: ConfigText, model: str) -> None:
    """The name, if given, is that of the directory. Raises ConfigError."""
    name = text.message.name
    if name and name != model:
        expected = f'"{model}", the name of the model\'s directory; remove the field or rename one of the two'
        raise text.lines.error("name", found=f'"{name}"', expected=expected)


def check_version_policy(text: ConfigText) -> None:
    """The policy selects something. Raises ConfigError."""
    policy = text.message.version_policy
    chosen = policy.WhichOneof("policy_choice")
    if chosen == "latest" and policy.latest.num_versions < 1:
        path, expected = "version_policy.latest.num_versions", "at least 1, or no version would be served"
        raise text.lines.error(path, found=str(policy.latest.num_versions), expected=expected)
    if chosen == "specific":
        if not policy.specific.versions:
            raise text.lines.error("version_policy.specific", found="no versions", expected="at least one version")
        for index, version in enumerate(policy.specific.versions):
            if version < 0:
                path = f"version_policy.specific.versions[{index}]"
                raise text.lines.error(path, found=str(version), expected="a version number, 0 or more")


def check_tensor_names(text: ConfigText) -> None:
    """Every tensor has a name that no other of its kind has. Raises ConfigError."""
    for kind in ("input", "output"):
        first: dict[str, int] = {}
        for index, tensor in enumerate(getattr(text.message, kind)):
            path = f"{kind}[{index}].name"
            if not tensor.name:
                raise text.lines.error(path, found="no name", expected=f"the name of the {kind}")
            if tensor.name in first:
                expected = f"a name that {kind}[{first[tensor.name]}] does not have"
                raise text.lines.error(path, found=f'"{tensor.name}"', expected=expected)
            first[tensor.name] = index


_CANNOT_TELL = {
    "pytorch": "the file does not say: write e.g. {}; names like input__0 go to forward() by their number",
    "python": "code does not say: write e.g. {}, with names of your own",
    "tensorrt": "a plan alone is not read for that: put the ONNX file that it was built from beside it as model.onnx, "
    "or write e.g. {}",
}
_EXAMPLES = {
    "input": 'input [ {{ name: "{0}" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }} ]',
    "output": 'output [ {{ name: "{0}" data_type: TYPE_FP32 dims: [ 1000 ] }} ]',
}


def check_tensors_are_given(text: ConfigText) -> None:
    """The configuration of a model whose file says nothing about inputs and outputs has some.

    Raises:
        ConfigError: With an example of what to write.
    """
    config = text.message
    for kind, example in _EXAMPLES.items():
        sentence = _CANNOT_TELL.get(config.backend)
        if sentence is not None and not getattr(config, kind):
            name = f"{kind}__0" if config.backend == "pytorch" else kind
            expected = f"at least one {kind}: {sentence.format(example.format(name))}"
            raise text.lines.error(kind, found=f"no {kind}", expected=expected)


def check_tensors(text: ConfigText) -> None:
    """Every tensor is complete: type, dims, format. Raises ConfigError."""
    for kind in ("input", "output"):
        tensors = getattr(text.message, kind)
        if not tensors:
            raise text.lines.error(kind, found=f"no {kind}", expected=f"at least one {kind}")
        for index, tensor in enumerate(tensors):
            path = f"{kind}[{index}]"
            _check_data_type(text, path, tensor)
            _check_dims(text, path, tensor)
            if kind == "input":
                _check_format(text, path, tensor)


def _check_data_type(text: ConfigText, path: str, tensor: Any) -> None:
    word = enum_word(tensor, "data_type")
    words = [data_type.config_name for data_type in DataType]
    if word not in words:
        found = f"{word} (what a missing type means)" if word == "TYPE_INVALID" else word
        raise text.lines.error(f"{path}.data_type", found=found, expected=f"one of {', '.join(words)}")


def _check_dims(text: ConfigText, path: str, tensor: Any) -> None:
    if not tensor.dims:
        expected = "at least one dimension, the batch dimension not counted"
        raise text.lines.error(f"{path}.dims", found="no dimensions", expected=expected)
    for index, dim in enumerate(tensor.dims):
        if dim < 1 and dim != -1:
            expected = "a positive size, or -1 for a variable one"
            raise text.lines.error(f"{path}.dims[{index}]", found=str(dim), expected=expected)


def _check_format(text: ConfigText, path: str, tensor: Any) -> None:
    word = enum_word(tensor, "format")
    if word not in ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"):
        raise text.lines.error(f"{path}.format", found=word, expected="FORMAT_NONE, FORMAT_NHWC or FORMAT_NCHW")
    if word != "FORMAT_NONE" and len(tensor.dims) != 3:
        found = f"{word} with {len(tensor.dims)} dims"
        raise text.lines.error(f"{path}.format", found=found, expected="3 dims, or FORMAT_NONE")


def check_max_batch_size(text: ConfigText) -> None:
    """The largest batch is not negative. Raises ConfigError."""
    rows = text.message.max_batch_size
    if rows < 0:
        expected = "0 (no batch dimension) or the largest number of rows in a batch"
        raise text.lines.error("max_batch_size", found=str(rows), expected=expected)


def check_dynamic_batching(text: ConfigText) -> None:
    """Dynamic batching fits max_batch_size. Raises ConfigError."""
    config = text.message
    if not config.HasField("dynamic_batching"):
        return
    if config.max_batch_size == 0:
        expected = "max_batch_size of 1 or more; without a batch dimension remove dynamic_batching"
        raise text.lines.error("dynamic_batching", found="dynamic batching with max_batch_size 0", expected=expected)
    batching = config.dynamic_batching
    for index, rows in enumerate(batching.preferred_batch_size):
        if not 1 <= rows <= config.max_batch_size:
            path = f"dynamic_batching.preferred_batch_size[{index}]"
            expected = f"a number of rows from 1 to max_batch_size, {config.max_batch_size}"
            raise text.lines.error(path, found=str(rows), expected=expected)
    if batching.max_queue_delay_microseconds > _MAX_DELAY_US:
        path, found = "dynamic_batching.max_queue_delay_microseconds", str(batching.max_queue_delay_microseconds)
        raise text.lines.error(path, found=found, expected=f"at most {_MAX_DELAY_US} (one hour)")
    for field, found, expected in _problems_of_levels(batching):
        raise text.lines.error(f"dynamic_batching.{field}", found=found, expected=expected)


def _problems_of_levels(batching: Any) -> Iterator[tuple[str, str, str]]:
    """Triton's own rules (`ValidateModelConfig`)."""
    levels = batching.priority_levels
    default = batching.default_priority_level
    if levels and not 1 <= default <= levels:
        yield "default_priority_level", str(default), f"a level from 1 to priority_levels, {levels}"
    if default and not levels:
        yield "default_priority_level", f"{default} without priority_levels", "priority_levels, or no default level"
    for index, level in enumerate(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            expected = f"a level from 1 to priority_levels, {levels}" if levels else "no levels without priority_levels"
            yield f"priority_queue_policy[{index}]", f"level {level}", expected
    yield from _problems_of_queue_policies(batching)


def _problems_of_queue_policies(batching: Any) -> Iterator[tuple[str, str, str]]:
    policies = {"default_queue_policy": batching.default_queue_policy}
    for index, policy in enumerate(batching.priority_queue_policy.values()):
        policies[f"priority_queue_policy[{index}].value"] = policy
    for path, policy in policies.items():
        if policy.default_timeout_microseconds > _MAX_DELAY_US:
            found = f"{policy.default_timeout_microseconds}, which is more than one hour"
            yield f"{path}.default_timeout_microseconds", found, f"at most {_MAX_DELAY_US}"
    if batching.preserve_ordering:
        yield from _problems_of_ordering(batching.priority_levels, list(policies.values()))


def _problems_of_ordering(levels: int, policies: Sequence[Any]) -> Iterator[tuple[str, str, str]]:
    if levels > 1:
        yield (
            "preserve_ordering",
            f"true with {levels} priority levels",
            "at most one level, or preserve_ordering false",
        )
    for policy in policies:
        if enum_word(policy, "timeout_action") == "DELAY" and policy.default_timeout_microseconds:
            found = "true with a queue policy that delays"
            yield "preserve_ordering", found, "timeout_action REJECT, or preserve_ordering false"
