"""Completion of a config.pbtxt from the ONNX file, and the check of what the config says against it.

Explicit values are kept; where they contradict the file the model could not run, so they are refused.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from models.config_checks import dims_line
from models.errors import ConfigError
from models.onnx_signature import OnnxSignature, OnnxTensor
from models.pbtxt import ConfigText, enum_word

DEFAULT_MAX_BATCH_SIZE = 4  # Triton's default-max-batch-size

Pair = tuple[str, Any, OnnxTensor]  # field path, the config's tensor, the file's tensor


def complete_from_onnx(text: ConfigText, signature: OnnxSignature, model_file: str) -> list[ConfigError]:
    """Fill in inputs, outputs and batching of an ONNX model.

    Args:
        text: The configuration.
        signature: What the file declares.
        model_file: The file's name for messages, e.g. ``1/model.onnx``.

    Returns:
        Where the config contradicts the file, or the file leaves open what the config does not say.
    """
    _complete_names(text, signature)
    kinds = {"input": signature.inputs, "output": signature.outputs}
    problems = [problem for kind, declared in kinds.items() for problem in _strangers(text, kind, declared)]
    pairs = [pair for kind, declared in kinds.items() for pair in _pairs(text, kind, declared)]
    problems += _complete_batching(text, pairs, model_file)
    for pair in pairs:
        problems += _complete_type(text, pair, model_file)
        problems += _complete_dims(text, pair, model_file)
    return problems


def _complete_names(text: ConfigText, signature: OnnxSignature) -> None:
    # A model needs all of its inputs, but may well be served with some of its outputs.
    listed = {tensor.name for tensor in text.message.input}
    for tensor in signature.inputs:
        if tensor.name not in listed:
            text.message.input.add(name=tensor.name)
    if not text.message.output:
        for tensor in signature.outputs:
            text.message.output.add(name=tensor.name)


def _strangers(text: ConfigText, kind: str, declared: tuple[OnnxTensor, ...]) -> Iterator[ConfigError]:
    """Tensors that the file does not have; one without a name is a problem of its own."""
    known = [tensor.name for tensor in declared]
    listed = ", ".join(f'"{name}"' for name in known) or "none"
    for index, tensor in enumerate(getattr(text.message, kind)):
        if tensor.name and tensor.name not in known:
            near = known if len(known) == 1 else difflib.get_close_matches(tensor.name, known, n=1)
            yield text.lines.error(
                f"{kind}[{index}].name",
                found=f'"{tensor.name}"',
                expected=f"one of the model's {kind}s: {listed}",
                fix=f'name: "{near[0]}"' if near else "",
            )


def _pairs(text: ConfigText, kind: str, declared: tuple[OnnxTensor, ...]) -> Iterator[Pair]:
    by_name = {tensor.name: tensor for tensor in declared}
    for index, tensor in enumerate(getattr(text.message, kind)):
        if tensor.name in by_name:
            yield f"{kind}[{index}]", tensor, by_name[tensor.name]


def _complete_batching(text: ConfigText, pairs: list[Pair], model_file: str) -> list[ConfigError]:
    config = text.message
    problems: list[ConfigError] = []
    if text.lines.mentions("max_batch_size"):
        if config.max_batch_size != 0:
            problems += _batch_dimension_problems(text, pairs, model_file)
        if problems:
            config.max_batch_size = 0  # what it must be, so that the dims are compared with the file's
    elif all(_may_be_batched(tensor, declared) for _, tensor, declared in pairs):
        config.max_batch_size = DEFAULT_MAX_BATCH_SIZE
        config.dynamic_batching.SetInParent()
    return problems


def _may_be_batched(tensor: Any, declared: OnnxTensor) -> bool:
    # One dimension must be left for the row, and dims that count every dimension of the file include the first one.
    dims, given = declared.dims, tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    if dims is None:
        return len(given) > 0
    if dims[:1] != (-1,):
        return False
    if tensor.HasField("reshape"):
        return len(given) == len(dims) - 1  # to the model a row may well be a scalar
    return len(dims) > 1 and len(given) in (0, len(dims) - 1)


def _batch_dimension_problems(text: ConfigText, pairs: list[Pair], model_file: str) -> Iterator[ConfigError]:
    for path, tensor, declared in pairs:
        if declared.dims is not None and declared.dims[:1] != (-1,):
            where = f'{path.partition("[")[0]} "{tensor.name}" of {model_file} has the shape {list(declared.dims)}'
            yield text.lines.error(
                "max_batch_size",
                found=str(text.message.max_batch_size),
                expected=f"0, because {where}, whose first dimension is not variable",
                fix="max_batch_size: 0",
            )
            return  # one tensor is reason enough


def _complete_type(text: ConfigText, pair: Pair, model_file: str) -> Iterator[ConfigError]:
    path, tensor, declared = pair
    if declared.data_type is None:
        found = f'"{tensor.name}" of type {declared.kind} in {model_file}'
        expected = "a tensor of a type that requests can carry; if it is an output, list only the outputs to serve"
        yield text.lines.error(path, found=found, expected=expected)
        return
    word = declared.data_type.config_name
    if not tensor.data_type:  # TYPE_INVALID, which is what a missing one is
        tensor.data_type = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name[word].number
    elif enum_word(tensor, "data_type") != word:
        expected = f'{word}, the type of "{tensor.name}" in {model_file}'
        found = enum_word(tensor, "data_type")
        yield text.lines.error(f"{path}.data_type", found=found, expected=expected, fix=f"data_type: {word}")


def _complete_dims(text: ConfigText, pair: Pair, model_file: str) -> Iterator[ConfigError]:
    path, tensor, declared = pair
    if tensor.HasField("reshape"):
        yield from _reshape_problems(text, pair, model_file)
        return
    if declared.dims is None:
        return  # the config's word counts; if it says nothing, the check of dims refuses it
    dims = declared.dims[1:] if text.message.max_batch_size > 0 else declared.dims
    if not tensor.dims:
        tensor.dims.extend(dims)
        if not tensor.dims:
            yield _scalar_problem(text, pair, model_file)
    elif not _agree(tuple(tensor.dims), dims):
        batch = " without its batch dimension" if text.message.max_batch_size > 0 else ""
        expected = f'{list(dims)}, the shape of "{tensor.name}" in {model_file}{batch}'
        found = f"{list(tensor.dims)}"
        yield text.lines.error(f"{path}.dims", found=found, expected=expected, fix=dims_line(dims))


def _reshape_problems(text: ConfigText, pair: Pair, model_file: str) -> Iterator[ConfigError]:
    """The model takes the shape after reshaping; how a request has it, the file cannot say."""
    path, tensor, declared = pair
    if declared.dims is None:
        return
    dims, shape = declared.dims[1:] if text.message.max_batch_size > 0 else declared.dims, tuple(tensor.reshape.shape)
    if not _agree(shape, dims):
        batch = " without its batch dimension" if text.message.max_batch_size > 0 else ""
        expected = f'{list(dims)}, the shape of "{tensor.name}" in {model_file}{batch}'
        fix = f"reshape {{ shape: [ {', '.join(map(str, dims))} ] }}"
        yield text.lines.error(f"{path}.reshape.shape", found=f"{list(shape)}", expected=expected, fix=fix)


def _scalar_problem(text: ConfigText, pair: Pair, model_file: str) -> ConfigError:
    path, tensor, declared = pair
    found = f'the shape {list(declared.dims or ())} of "{tensor.name}" in {model_file}'
    fix = "max_batch_size: 0" if text.message.max_batch_size > 0 else ""
    return text.lines.error(f"{path}.dims", found=found, expected="at least one dimension in a row", fix=fix)


def _agree(given: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    # A config may fix what the file leaves open, never the other way round.
    return len(given) == len(declared) and all(
        of_file in (-1, of_config) for of_config, of_file in zip(given, declared, strict=True)
    )
