"""What a config.pbtxt may say and this version does not do: refused by name, never ignored."""

from collections.abc import Iterator

from models.errors import ConfigError
from models.pbtxt import ConfigText, ModelConfig

Refusal = tuple[str, str, str]  # field path, what was found, how the sentence names it


def unsupported_problems(text: ConfigText) -> Iterator[ConfigError]:
    """Nothing is asked for that would silently not happen."""
    for path, found, feature in _unsupported(text.message):
        yield text.lines.error(path, found=found, expected=f"no such field: {feature} is not supported yet; remove it")


def _unsupported(config: ModelConfig) -> Iterator[Refusal]:
    if config.HasField("sequence_batching"):
        yield "sequence_batching", "a sequence batcher", "sequence batching"
    if config.model_transaction_policy.decoupled:
        yield "model_transaction_policy.decoupled", "true", "more than one response a request"
    if config.response_cache.enable:
        yield "response_cache.enable", "true", "the response cache"
    if config.HasField("model_repository_agents"):
        yield "model_repository_agents", "agents", "a repository agent"
    if config.HasField("model_operations"):
        yield "model_operations", "operator libraries", "loading custom operators"
    yield from _of_tensors(config)
    yield from _of_instance_groups(config)


def _of_tensors(config: ModelConfig) -> Iterator[Refusal]:
    for field in ("batch_input", "batch_output"):
        if getattr(config, field):
            yield f"{field}[0]", "a tensor that the server makes", "ragged batching"
    for kind in ("input", "output"):
        for index, tensor in enumerate(getattr(config, kind)):
            for flag, feature in _TENSOR_FLAGS.items():
                if getattr(tensor, flag, False):
                    yield f"{kind}[{index}].{flag}", "true", feature


_TENSOR_FLAGS = {
    "allow_ragged_batch": "ragged batching",
    "is_shape_tensor": "a shape tensor (of TensorRT)",
    "is_non_linear_format_io": "a non-linear tensor format (of TensorRT)",
}


def _of_instance_groups(config: ModelConfig) -> Iterator[Refusal]:
    for index, group in enumerate(config.instance_group):
        if group.passive:
            yield f"instance_group[{index}].passive", "true", "a passive instance"
        if group.secondary_devices:
            yield f"instance_group[{index}].secondary_devices", "devices", "a secondary device"
