"""Instance groups: what they may say, the defaults that they get, and what they become.

KIND_AUTO is kept: whether there are GPUs is not known here. Only the shown configuration calls it KIND_CPU.
"""

from collections.abc import Iterator
from typing import Any

from models.errors import ConfigError
from models.pbtxt import ConfigText, ModelConfig, enum_word
from models.spec import DeviceKind, InstanceGroup, Resource

Problem = tuple[str, str, str, str]  # field path inside the group, what was found, what was expected, what to write


def instance_group_problems(text: ConfigText) -> Iterator[ConfigError]:
    """Every group has a possible kind, count, devices and needs, and a name of its own; the backend is known."""
    config = text.message
    for index, group in enumerate(config.instance_group):
        for field, found, expected, fix in _problems_of_group(group, config.backend):
            yield text.lines.error(f"instance_group[{index}].{field}", found=found, expected=expected, fix=fix)
    first: dict[str, int] = {}
    for index, name in enumerate(_names(config)):
        if name in first:
            # Of two equal names one is given in the file, and that is the one to change.
            given = index if config.instance_group[index].name else first[name]
            expected = f"a name that instance_group[{index + first[name] - given}] does not have"
            yield text.lines.error(f"instance_group[{given}].name", found=f'"{name}"', expected=expected)
        first[name] = index


def _problems_of_group(group: Any, backend: str) -> Iterator[Problem]:
    kind = enum_word(group, "kind")
    if kind == "KIND_MODEL" and backend != "python":
        expected = "KIND_CPU, KIND_GPU or KIND_AUTO; only the code of a python model chooses devices itself"
        yield "kind", "KIND_MODEL", expected, "kind: KIND_AUTO"
    elif kind not in {member.value for member in DeviceKind}:
        yield "kind", kind, "KIND_CPU, KIND_GPU or KIND_AUTO", "kind: KIND_AUTO"
    if group.count < 0:
        yield "count", str(group.count), "a number of instances, or 0 for the default", "count: 1"
    if kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
        yield "gpus[0]", f"{list(group.gpus)} with {kind}", "no gpus, or KIND_GPU", "kind: KIND_GPU"
    yield from _problems_of_gpus(group)
    yield from _problems_of_resources(group)
    if group.profile and backend != "tensorrt":
        yield "profile[0]", f'"{group.profile[0]}"', f'no profile: backend "{backend}" has none, only tensorrt has', ""


def _problems_of_gpus(group: Any) -> Iterator[Problem]:
    fix = f"gpus: [ {', '.join(map(str, dict.fromkeys(gpu for gpu in group.gpus if gpu >= 0))) or 0} ]"
    for index, gpu in enumerate(group.gpus):
        if gpu < 0:
            yield f"gpus[{index}]", str(gpu), "the number of a GPU, 0 or more", fix
        if gpu in group.gpus[:index]:
            expected = "each GPU once; raise count for more instances"
            yield f"gpus[{index}]", f"{gpu} a second time", expected, fix


def _problems_of_resources(group: Any) -> Iterator[Problem]:
    names: set[str] = set()
    for index, resource in enumerate(group.rate_limiter.resources):
        path = f"rate_limiter.resources[{index}]"
        if not resource.name:
            yield f"{path}.name", "no name", "the name of the resource", 'e.g. name: "R1"'
        if resource.name in names:
            yield f"{path}.name", f'"{resource.name}" a second time', "each resource once", ""
        if resource.count == 0:
            yield f"{path}.count", "0", "how much of it a batch needs, 1 or more", "count: 1"
        names.add(resource.name)


def instance_groups(config: ModelConfig) -> tuple[InstanceGroup, ...]:
    """The groups of a checked configuration, with defaults; without any, one of KIND_AUTO named after the model."""
    return tuple(
        InstanceGroup(
            name=name,
            kind=DeviceKind(enum_word(group, "kind")),
            count=group.count or _default_count(config, group),
            gpus=tuple(group.gpus),
            is_default_count=not group.count,
            resources=tuple(
                Resource(name=resource.name, count=resource.count, shared=getattr(resource, "global"))
                for resource in group.rate_limiter.resources
            ),
            priority=group.rate_limiter.priority,
        )
        for name, group in zip(_names(config), config.instance_group or [_anything(config)], strict=True)
    )


def normalise_instance_groups(config: ModelConfig) -> None:
    """Write the defaults into the configuration that is shown, as Triton does on a machine without GPUs."""
    groups = instance_groups(config)
    if not config.instance_group:
        config.instance_group.add()
    for message, group in zip(config.instance_group, groups, strict=True):
        message.name, message.count = group.name, group.count
        if group.kind is DeviceKind.AUTO:
            message.kind = message.KIND_CPU
            message.ClearField("gpus")


def _names(config: ModelConfig) -> list[str]:
    if not config.instance_group:
        return [config.name]
    return [group.name or f"{config.name}_{index}" for index, group in enumerate(config.instance_group)]


def _anything(config: ModelConfig) -> Any:
    """A group that says nothing."""
    return type(config)().instance_group.add()


def _default_count(config: ModelConfig, group: Any) -> int:
    """Triton's: 2 for ONNX Runtime on the CPU. Where the pool finds GPUs for KIND_AUTO, it takes 1 on each."""
    is_shared_cpu = enum_word(group, "kind") in ("KIND_CPU", "KIND_AUTO") and config.backend == "onnxruntime"
    return 2 if is_shared_cpu else 1
