"""Completion of a config.pbtxt from the ONNX file, and the check of what the config says against it.

Explicit values are kept; where they contradict the file the model could not run, so they are refused.
"""

from collections.abc import Iterator
from typing import Any

from models.onnx_signature import OnnxSignature, OnnxTensor
from models.pbtxt import ConfigText, enum_word

DEFAULT_MAX_BATCH_SIZE = 4  # Triton's default-max-batch-size

Pair = tuple[str, Any, OnnxTensor]  # field path, the config's tensor, the file's tensor


def complete_from_onnx(text: ConfigText, signature: OnnxSignature, model_file: str) -> None:
    """Fill in inputs, outputs and batching of an ONNX model.

    Args:
        text: The configuration; the names of its tensors are present and unique.
        signature: What the file declares.
        model_file: The file's name for messages, e.g. ``1/model.onnx``.

    Raises:
        ConfigError: The config contradicts the file, or the file leaves open what the config does not say.
    """
    _complete_names(text, signature)
    pairs = [*_pairs(text, "input", signature.inputs), *_pairs(text, "output", signature.outputs)]
    _complete_batching(text, pairs, model_file)
    for pair in pairs:
        _complete_type(text, pair, model_file)
        _complete_dims(text, pair, model_file)


def _complete_names(text: ConfigText, signature: OnnxSignature) -> None:
    # A model needs all of its inputs, but may well be served with some of its outputs.
    listed = {tensor.name for tensor in text.message.input}
    for tensor in signature.inputs:
        if tensor.name not in listed:
            text.message.input.add(name=tensor.name)
    if not text.message.output:
        for tensor in signature.outputs:
            text.message.output.add(name=tensor.name)


def _pairs(text: ConfigText, kind: str, declared: tuple[OnnxTensor, ...]) -> Iterator[Pair]:
    by_name = {tensor.name: tensor for tensor in declared}
    for index, tensor in enumerate(getattr(text.message, kind)):
        if tensor.name not in by_name:
            names = ", ".join(f'"{name}"' for name in by_name) or "none"
            raise text.lines.error(
                f"{kind}[{index}].name", found=f'"{tensor.name}"', expected=f"one of the model's {kind}s: {names}"
            )
        yield f"{kind}[{index}]", tensor, by_name[tensor.name]


def _complete_batching(text: ConfigText, pairs: list[Pair], model_file: str) -> None:
    config = text.message
    if text.lines.mentions("max_batch_size"):
        if config.max_batch_size > 0:
            _check_batch_dimension(text, pairs, model_file)
    elif all(_may_be_batched(tensor, declared) for _, tensor, declared in pairs):
        config.max_batch_size = DEFAULT_MAX_BATCH_SIZE
        config.dynamic_batching.SetInParent()


def _may_be_batched(tensor: Any, declared: OnnxTensor) -> bool:
    # One dimension must be left for the row, and dims that count every dimension of the file include the first one.
    dims = declared.dims
    if dims is None:
        return len(tensor.dims) > 0
    return len(dims) > 1 and dims[0] == -1 and len(tensor.dims) in (0, len(dims) - 1)


def _check_batch_dimension(text: ConfigText, pairs: list[Pair], model_file: str) -> None:
    for path, tensor, declared in pairs:
        if declared.dims is not None and declared.dims[:1] != (-1,):
            where = f'{path.partition("[")[0]} "{tensor.name}" of {model_file} has the shape {list(declared.dims)}'
            raise text.lines.error(
                "max_batch_size",
                found=str(text.message.max_batch_size),
                expected=f"0, because {where}, whose first dimension is not variable",
            )


def _complete_type(text: ConfigText, pair: Pair, model_file: str) -> None:
    path, tensor, declared = pair
    if declared.data_type is None:
        found = f'"{tensor.name}" of type {declared.kind} in {model_file}'
        expected = "a tensor of a type that requests can carry; if it is an output, list only the outputs to serve"
        raise text.lines.error(path, found=found, expected=expected)
    word = declared.data_type.config_name
    if not tensor.data_type:  # TYPE_INVALID, which is what a missing one is
        tensor.data_type = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[word].number
    elif enum_word(tensor, "data_type") != word:
        expected = f'{word}, the type of "{tensor.name}" in {model_file}'
        raise text.lines.error(f"{path}.data_type", found=enum_word(tensor, "data_type"), expected=expected)


def _complete_dims(text: ConfigText, pair: Pair, model_file: str) -> None:
    path, tensor, declared = pair
    if declared.dims is None:
        return  # the config's word counts; if it says nothing, the check of dims refuses it
    dims = declared.dims[1:] if text.message.max_batch_size > 0 else declared.dims
    if not tensor.dims:
        tensor.dims.extend(dims)
        _refuse_scalar(text, pair, model_file)
    elif not _agree(tuple(tensor.dims), dims):
        batch = " without its batch dimension" if text.message.max_batch_size > 0 else ""
        expected = f'{list(dims)}, the shape of "{tensor.name}" in {model_file}{batch}'
        raise text.lines.error(f"{path}.dims", found=f"{list(tensor.dims)}", expected=expected)


def _refuse_scalar(text: ConfigText, pair: Pair, model_file: str) -> None:
    path, tensor, declared = pair
    if tensor.dims:
        return
    found = f'the shape {list(declared.dims or ())} of "{tensor.name}" in {model_file}'
    hint = "; set max_batch_size: 0" if text.message.max_batch_size > 0 else ""
    raise text.lines.error(f"{path}.dims", found=found, expected=f"at least one dimension in a row{hint}")


def _agree(given: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    # A config may fix what the file leaves open, never the other way round.
    return len(given) == len(declared) and all(
        of_file in (-1, of_config) for of_config, of_file in zip(given, declared, strict=True)
    )
