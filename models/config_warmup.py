"""``model_warmup`` of a config.pbtxt: the requests that every instance runs before the version is ready."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.errors import ConfigError
from models.pbtxt import ConfigText, ModelConfig, enum_word
from models.spec import WarmupData, WarmupInput, WarmupSample
from models.tensors import DataType, element_count
from models.text_files import file_inside

DIRECTORY = "warmup"
"""Of the model's directory: where the files of ``input_data_file`` are, as in Triton."""

_LENGTH_BYTES = 4


def warmup_problems(text: ConfigText, directory: Path) -> Iterator[ConfigError]:
    """Every sample is a request that the model takes, and its files are there.

    Args:
        text: Completed: with the model's inputs.
        directory: The model's.

    Raises:
        OSError: A file cannot be read.
    """
    for index, sample in enumerate(text.message.model_warmup):
        if not sample.batch_size:
            continue  # left out below, and noted
        path = f"model_warmup[{index}]"
        yield from _batch_size_problems(text, path, sample)
        declared = {tensor.name: tensor for tensor in text.message.input}
        for name in sorted(sample.inputs):
            if name in declared:
                yield from _input_problems(text, f"{path}.inputs.{name}", sample.inputs[name], declared[name])
                yield from _file_problems(text, f"{path}.inputs.{name}", sample.inputs[name], directory)
            else:
                expected = f"an input of the model: {', '.join(declared)}"
                yield text.lines.error(f"{path}.inputs.{name}", found=f'"{name}"', expected=expected)
        for tensor in text.message.input:
            if tensor.name not in sample.inputs and not tensor.optional:
                found, expected = f'no input "{tensor.name}"', "each input of the model that is not optional"
                yield text.lines.error(f"{path}.inputs", found=found, expected=expected)


def warmup_samples(config: ModelConfig, directory: Path) -> tuple[WarmupSample, ...]:
    """The samples of a checked configuration. Those with a `batch_size` of 0 are left out, as Triton does."""
    return tuple(
        WarmupSample(
            name=sample.name or f"model_warmup[{index}]",
            rows=sample.batch_size if config.max_batch_size > 0 else 0,
            count=max(1, sample.count),
            inputs={name: _input(given, directory) for name, given in sorted(sample.inputs.items())},
        )
        for index, sample in enumerate(config.model_warmup)
        if sample.batch_size
    )


def bytes_elements(content: bytes) -> list[bytes]:
    """The elements of a BYTES tensor: each a length in 4 bytes, little-endian, and so many bytes.

    Raises:
        ValueError: The last element is cut short.
    """
    elements = []
    position = 0
    while position < len(content):
        start = position + _LENGTH_BYTES
        end = start + int.from_bytes(content[position:start], "little")
        if end > len(content):
            raise ValueError(f"an element that ends at byte {end} in a file of {len(content)} bytes")
        elements.append(content[start:end])
        position = end
    return elements


def _batch_size_problems(text: ConfigText, path: str, sample: Any) -> Iterator[ConfigError]:
    largest = max(1, text.message.max_batch_size)
    if sample.batch_size > largest:
        expected = f"at most max_batch_size, {largest}" if text.message.max_batch_size else "1, for lack of batches"
        found, fix = str(sample.batch_size), f"batch_size: {largest}"
        yield text.lines.error(f"{path}.batch_size", found=found, expected=expected, fix=fix)


def _input_problems(text: ConfigText, path: str, given: Any, declared: Any) -> Iterator[ConfigError]:
    found, expected = enum_word(given, "data_type"), enum_word(declared, "data_type")
    if found != expected:
        fix = f"data_type: {expected}"
        yield text.lines.error(f"{path}.data_type", found=found, expected=f"that of the input, {expected}", fix=fix)
    dims, wanted = list(given.dims), list(declared.dims)
    fits = len(dims) == len(wanted) and all(dim == want or want < 0 for dim, want in zip(dims, wanted, strict=True))
    if not fits or any(dim < 1 for dim in dims):
        expected = f"sizes that fit the dims of the input, {wanted}, without the batch dimension"
        fix = f"dims: {wanted}" if all(want > 0 for want in wanted) else ""
        yield text.lines.error(f"{path}.dims", found=str(dims), expected=expected, fix=fix)
    if given.WhichOneof("input_data_type") is None:
        expected, fix = "one of zero_data, random_data, input_data_file", "zero_data: true"
        yield text.lines.error(path, found="no data", expected=expected, fix=fix)


def _file_problems(text: ConfigText, path: str, given: Any, directory: Path) -> Iterator[ConfigError]:
    if given.WhichOneof("input_data_type") != WarmupData.FILE.value:
        return
    path, name = f"{path}.{WarmupData.FILE.value}", given.input_data_file
    file = file_inside(directory / DIRECTORY, name)
    if file is None:
        expected = f"a file in the directory {DIRECTORY}/ of the model"
        yield text.lines.error(path, found=f"no file {name!r}", expected=expected)
        return
    problem = _size_problem(file, enum_word(given, "data_type"), element_count(tuple(given.dims)))
    if problem is not None:
        found, expected = problem
        yield text.lines.error(path, found=f"{name!r} with {found}", expected=expected)


def _size_problem(file: Path, word: str, elements: int) -> tuple[str, str] | None:
    """What was found and expected if the file does not hold one row."""
    if word == DataType.BYTES.config_name:
        try:
            found = len(bytes_elements(file.read_bytes()))
        except ValueError as error:
            return str(error), "elements of 4 bytes length, little-endian, and so many bytes"
        return None if found == elements else (f"{found} elements", f"{elements}, those of one row")
    try:
        row_bytes = elements * (DataType.from_config_name(word).element_bytes or 0)
    except KeyError:
        return None  # no type: told already
    found_bytes = file.stat().st_size
    return None if found_bytes == row_bytes else (f"{found_bytes} bytes", f"{row_bytes}, those of one row")


def _input(given: Any, directory: Path) -> WarmupInput:
    data = WarmupData(given.WhichOneof("input_data_type"))
    return WarmupInput(
        data_type=DataType.from_config_name(enum_word(given, "data_type")),
        dims=tuple(given.dims),
        data=data,
        file=directory / DIRECTORY / given.input_data_file if data is WarmupData.FILE else None,
    )
