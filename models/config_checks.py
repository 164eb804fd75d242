"""Values of a config.pbtxt that cannot be: each with its line, what was found, what was expected and what to write.

Every check yields all that it finds: a server refuses the model with it, ``shoal check`` lists it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from models.errors import ConfigError
from models.pbtxt import ConfigText, enum_word
from models.reshaping import can_reshape
from models.tensors import DataType

Problems: TypeAlias = Iterator[ConfigError]
Finding = tuple[str, str, str, str]  # field path, what was found, what was expected, the line to write

_MAX_DELAY_US = 3_600_000_000


def name_problems(text: ConfigText, model: str) -> Problems:
    """The name, if given, is that of the directory."""
    name = text.message.name
    if name and name != model:
        expected = f'"{model}", the name of the model\'s directory; remove the field or rename one of the two'
        yield text.lines.error("name", found=f'"{name}"', expected=expected, fix=f'name: "{model}"')


def version_policy_problems(text: ConfigText) -> Problems:
    """The policy selects something."""
    policy = text.message.version_policy
    chosen = policy.WhichOneof("policy_choice")
    if chosen == "latest" and policy.latest.num_versions < 1:
        yield text.lines.error(
            "version_policy.latest.num_versions",
            found=str(policy.latest.num_versions),
            expected="at least 1, or no version would be served",
            fix="version_policy { latest { num_versions: 1 } }",
        )
    if chosen == "specific":
        if not policy.specific.versions:
            fix = "version_policy { specific { versions: [ 1 ] } }"
            expected = "at least one version"
            yield text.lines.error("version_policy.specific", found="no versions", expected=expected, fix=fix)
        for index, version in enumerate(policy.specific.versions):
            if version < 0:
                path = f"version_policy.specific.versions[{index}]"
                yield text.lines.error(path, found=str(version), expected="a version number, 0 or more")


def tensor_name_problems(text: ConfigText) -> Problems:
    """Every tensor has a name that no other of its kind has."""
    for kind in ("input", "output"):
        first: dict[str, int] = {}
        for index, tensor in enumerate(getattr(text.message, kind)):
            path = f"{kind}[{index}].name"
            if not tensor.name:
                yield text.lines.error(path, found="no name", expected=f"the name of the {kind}")
            elif tensor.name in first:
                expected = f"a name that {kind}[{first[tensor.name]}] does not have"
                yield text.lines.error(path, found=f'"{tensor.name}"', expected=expected)
            first.setdefault(tensor.name, index)


_CANNOT_TELL = {
    "pytorch": "the file does not say; names like input__0 go to forward() by their number",
    "python": "code does not say; with names of your own",
    "tensorrt": "a plan alone is not read for that: put the ONNX file that it was built from beside it as model.onnx",
}
_EXAMPLES = {
    "input": 'e.g. input [ {{ name: "{0}" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }} ]',
    "output": 'e.g. output [ {{ name: "{0}" data_type: TYPE_FP32 dims: [ 1000 ] }} ]',
}


def absent_tensor_problems(text: ConfigText) -> Problems:
    """The configuration of a model whose file says nothing about inputs and outputs has some."""
    config = text.message
    for kind, example in _EXAMPLES.items():
        sentence = _CANNOT_TELL.get(config.backend)
        if sentence is not None and not getattr(config, kind):
            name = f"{kind}__0" if config.backend == "pytorch" else kind
            expected = f"at least one {kind}: {sentence}"
            yield text.lines.error(kind, found=f"no {kind}", expected=expected, fix=example.format(name))


def tensor_problems(text: ConfigText, *, is_complete: bool = True) -> Problems:
    """Every tensor has a type, dims and a format that can be.

    Args:
        text: The configuration.
        is_complete: It has all that it will get; else what is missing is no problem.
    """
    for kind in ("input", "output"):
        tensors = getattr(text.message, kind)
        if not tensors and is_complete:
            yield text.lines.error(kind, found=f"no {kind}", expected=f"at least one {kind}")
        for index, tensor in enumerate(tensors):
            path = f"{kind}[{index}]"
            if tensor.data_type or is_complete:
                yield from _data_type_problems(text, path, tensor)
            if tensor.dims or is_complete:
                yield from _dims_problems(text, path, tensor)
            if tensor.dims and tensor.HasField("reshape"):
                yield from _reshape_problems(text, path, tensor)
            if kind == "input":
                yield from _format_problems(text, path, tensor)


def _data_type_problems(text: ConfigText, path: str, tensor: Any) -> Problems:
    word = enum_word(tensor, "data_type")
    words = [data_type.config_name for data_type in DataType]
    if word not in words:
        found = f"{word} (what a missing type means)" if word == "TYPE_INVALID" else word
        expected = f"one of {', '.join(words)}"
        yield text.lines.error(f"{path}.data_type", found=found, expected=expected, fix="e.g. data_type: TYPE_FP32")


def _dims_problems(text: ConfigText, path: str, tensor: Any) -> Problems:
    if not tensor.dims:
        expected = "at least one dimension, the batch dimension not counted"
        yield text.lines.error(f"{path}.dims", found="no dimensions", expected=expected)
    fix = dims_line([dim if dim > 0 else -1 for dim in tensor.dims])
    for index, dim in enumerate(tensor.dims):
        if dim < 1 and dim != -1:
            expected = "a positive size, or -1 for a variable one"
            yield text.lines.error(f"{path}.dims[{index}]", found=str(dim), expected=expected, fix=fix)


_RESHAPED_BY = {
    "python": "the model's own code reshapes",
    "ensemble": "the models of the steps may reshape",
}


def _reshape_problems(text: ConfigText, path: str, tensor: Any) -> Problems:
    shape = tensor.reshape.shape
    if text.message.backend in _RESHAPED_BY:
        expected = f"no such field: {_RESHAPED_BY[text.message.backend]}; remove it"
        yield text.lines.error(f"{path}.reshape", found="a shape", expected=expected)
    elif any(size < 1 and size != -1 for size in shape):
        expected = "positive sizes, or -1 for a variable one"
        yield text.lines.error(f"{path}.reshape.shape", found=str(list(shape)), expected=expected)
    elif not can_reshape(tensor.dims, shape):
        expected = f"as many elements as dims, {list(tensor.dims)}, and variable ones in the same places"
        yield text.lines.error(f"{path}.reshape.shape", found=str(list(shape)), expected=expected)


def dims_line(dims: Sequence[int]) -> str:
    """The line of a config.pbtxt that says so."""
    return f"dims: [ {', '.join(map(str, dims))} ]"


def _format_problems(text: ConfigText, path: str, tensor: Any) -> Problems:
    word = enum_word(tensor, "format")
    if word not in ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"):
        yield text.lines.error(f"{path}.format", found=word, expected="FORMAT_NONE, FORMAT_NHWC or FORMAT_NCHW")
    elif word != "FORMAT_NONE" and len(tensor.dims) not in (0, 3):
        found, fix = f"{word} with {len(tensor.dims)} dims", "format: FORMAT_NONE"
        yield text.lines.error(f"{path}.format", found=found, expected="3 dims, or FORMAT_NONE", fix=fix)


def max_batch_size_problems(text: ConfigText) -> Problems:
    """The largest batch is not negative."""
    rows = text.message.max_batch_size
    if rows < 0:
        expected = "0 (no batch dimension) or the largest number of rows in a batch"
        yield text.lines.error("max_batch_size", found=str(rows), expected=expected, fix="max_batch_size: 0")


def dynamic_batching_problems(text: ConfigText) -> Problems:
    """Dynamic batching fits max_batch_size."""
    config = text.message
    if not config.HasField("dynamic_batching") or config.max_batch_size < 0:
        return  # a negative size is a problem by itself
    if config.max_batch_size == 0:
        expected = "max_batch_size of 1 or more; without a batch dimension remove dynamic_batching"
        yield text.lines.error("dynamic_batching", found="dynamic batching with max_batch_size 0", expected=expected)
        return
    batching = config.dynamic_batching
    for field, found, expected, fix in (
        *_problems_of_sizes(batching, config.max_batch_size),
        *_problems_of_delay(batching),
        *_problems_of_levels(batching),
    ):
        yield text.lines.error(f"dynamic_batching.{field}", found=found, expected=expected, fix=fix)


def _problems_of_sizes(batching: Any, max_batch_rows: int) -> Iterator[Finding]:
    sizes = batching.preferred_batch_size
    possible = sorted({rows for rows in sizes if 1 <= rows <= max_batch_rows}) or [max_batch_rows]
    fix = f"preferred_batch_size: [ {', '.join(map(str, possible))} ]"
    for index, rows in enumerate(sizes):
        if not 1 <= rows <= max_batch_rows:
            expected = f"a number of rows from 1 to max_batch_size, {max_batch_rows}"
            yield f"preferred_batch_size[{index}]", str(rows), expected, fix


def _problems_of_delay(batching: Any) -> Iterator[Finding]:
    delay_us = batching.max_queue_delay_microseconds
    if delay_us > _MAX_DELAY_US:
        field = "max_queue_delay_microseconds"
        yield field, str(delay_us), f"at most {_MAX_DELAY_US} (one hour)", f"e.g. {field}: 5000"


def _problems_of_levels(batching: Any) -> Iterator[Finding]:
    """Triton's own rules (`ValidateModelConfig`)."""
    levels = batching.priority_levels
    default = batching.default_priority_level
    if levels and not 1 <= default <= levels:
        expected = f"a level from 1 to priority_levels, {levels}"
        yield "default_priority_level", str(default), expected, "default_priority_level: 1"
    if default and not levels:
        found, fix = f"{default} without priority_levels", f"priority_levels: {default}"
        yield "default_priority_level", found, "priority_levels, or no default level", fix
    for index, level in enumerate(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            expected = f"a level from 1 to priority_levels, {levels}" if levels else "no levels without priority_levels"
            yield f"priority_queue_policy[{index}]", f"level {level}", expected, ""
    yield from _problems_of_queue_policies(batching)


def _problems_of_queue_policies(batching: Any) -> Iterator[Finding]:
    policies = {"default_queue_policy": batching.default_queue_policy}
    for index, policy in enumerate(batching.priority_queue_policy.values()):
        policies[f"priority_queue_policy[{index}].value"] = policy
    for path, policy in policies.items():
        if policy.default_timeout_microseconds > _MAX_DELAY_US:
            found = f"{policy.default_timeout_microseconds}, which is more than one hour"
            yield f"{path}.default_timeout_microseconds", found, f"at most {_MAX_DELAY_US}", ""
    if batching.preserve_ordering:
        yield from _problems_of_ordering(batching.priority_levels, list(policies.values()))


def _problems_of_ordering(levels: int, policies: Sequence[Any]) -> Iterator[Finding]:
    fix = "preserve_ordering: false"
    if levels > 1:
        found, expected = f"true with {levels} priority levels", "at most one level, or preserve_ordering false"
        yield "preserve_ordering", found, expected, fix
    for policy in policies:
        if enum_word(policy, "timeout_action") == "DELAY" and policy.default_timeout_microseconds:
            found = "true with a queue policy that delays"
            yield "preserve_ordering", found, "timeout_action REJECT, or preserve_ordering false", fix
