"""A configuration in force -> text of a config.pbtxt that leads to it again."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

from models.pbtxt import ModelConfig
from models.spec import DeviceKind, InstanceGroup, ModelSpec


def config_text(spec: ModelSpec) -> str:
    """The config.pbtxt of a version as it is in force; with `models.effective.side_text` it is the whole of it."""
    message = _message(spec.config)
    for group, of_spec in zip(message.instance_group, spec.instance_groups, strict=False):  # an ensemble shows none
        _say_as_given(group, of_spec)
    return _text(message)


def json_to_text(config: Mapping[str, object]) -> str:
    """The config.pbtxt of a configuration as JSON-ready values, in the form of ``/config`` (Triton's or this one's).

    Raises:
        ValueError: They are no such configuration.
    """
    try:
        return _text(_message(config))
    except json_format.ParseError as error:
        raise ValueError(f"found {error}, expected the fields of a config.pbtxt") from None


def _message(config: Mapping[str, object]) -> ModelConfig:
    message = ModelConfig()
    json_format.ParseDict(config, message)
    return message


def _say_as_given(message: Any, group: InstanceGroup) -> None:
    """Undo the defaults of one instance group, which depend on the machine."""
    if group.is_default_count:
        message.ClearField("count")
    if group.kind is DeviceKind.AUTO:
        message.ClearField("kind")
        message.gpus[:] = group.gpus


def _text(message: ModelConfig) -> str:
    # The text format leaves out zeros, but no max_batch_size at all means that one is chosen.
    zero = "" if message.max_batch_size else "max_batch_size: 0\n"
    return zero + str(text_format.MessageToString(message, use_short_repeated_primitives=True, as_utf8=True))
