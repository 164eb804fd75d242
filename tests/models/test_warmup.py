"""``model_warmup``: requests that the model takes become samples; all others are refused by file and line."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.config_warmup import bytes_elements
from models.errors import SeveralProblemsError
from models.model_directory import read_model
from models.spec import WarmupData, WarmupInput, WarmupSample
from models.tensors import DataType
from tests.models.builders import refusal_of, spec_of, write_model

CONFIG = """\
backend: "fake"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] },
        { name: "s" data_type: TYPE_STRING dims: [ 2 ] optional: true } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
model_warmup {
  name: "first"
  batch_size: 2
  inputs {
    key: "x"
    value {
      data_type: TYPE_FP32
      dims: [ 3, 5 ]
      random_data: true
    }
  }
}
"""
STRINGS = 'inputs { key: "s" value { data_type: TYPE_STRING dims: [ 2 ] input_data_file: "words" } }'


def elements(*words: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(word)) + word for word in words)


def write(root: Path, config: str = CONFIG, **files: bytes) -> Path:
    """The model, with files in its directory ``warmup/``."""
    directory = write_model(root, config)
    (directory / "warmup").mkdir()
    for name, content in files.items():
        (directory / "warmup" / name).write_bytes(content)
    return directory


def test_a_block_becomes_a_sample(tmp_path: Path) -> None:
    directory = write(
        tmp_path, CONFIG.replace("  batch_size", f"  count: 3 {STRINGS}\n  batch_size"), words=elements(b"a", b"")
    )

    (sample,) = spec_of(directory).warmup

    text = WarmupInput(data_type=DataType.BYTES, dims=(2,), data=WarmupData.FILE, file=directory / "warmup" / "words")
    row = WarmupInput(data_type=DataType.FP32, dims=(3, 5), data=WarmupData.RANDOM)
    assert sample == WarmupSample(name="first", rows=2, count=3, inputs={"s": text, "x": row})


def test_what_is_not_said_is_once_and_a_block_without_a_name_has_its_place_for_one(tmp_path: Path) -> None:
    (sample,) = spec_of(write(tmp_path, CONFIG.replace('  name: "first"', ""))).warmup

    assert (sample.name, sample.count) == ("model_warmup[0]", 1)


def test_a_model_without_batches_has_samples_without_rows(tmp_path: Path) -> None:
    config = CONFIG.replace("max_batch_size: 4", "max_batch_size: 0").replace("batch_size: 2", "batch_size: 1")

    (sample,) = spec_of(write(tmp_path, config)).warmup

    assert sample.rows == 0


def test_a_block_without_a_batch_size_is_left_out_as_triton_does_and_noted(tmp_path: Path) -> None:
    entry = read_model(write(tmp_path, CONFIG.replace("  batch_size: 2", "")))

    assert entry.versions[0].warmup == ()
    assert entry.notes == (
        "m/config.pbtxt:6: model_warmup[0]: has no effect: its batch_size is 0, as if not given; write batch_size: 1 "
        "or more",
    )


FILE = 'input_data_file: "words"'
WRONG = {
    "unknown input": (
        ("  inputs {", '  inputs { key: "z" value { zero_data: true } }\n  inputs {'),
        9,
        "inputs.z",
        'found "z", expected an input of the model: x, s',
    ),
    "no input": ((CONFIG[CONFIG.index("  inputs") : -2], ""), 6, "inputs", 'found no input "x", expected each input'),
    "type": (("      data_type: TYPE_FP32", "      data_type: TYPE_FP16"), 12, "inputs.x.data_type", "found TYPE_FP16"),
    "dims": (("dims: [ 3, 5 ]", "dims: [ 2, 5 ]"), 13, "inputs.x.dims", r"found \[2, 5\], expected sizes that fit"),
    "rank": (("dims: [ 3, 5 ]", "dims: [ 3 ]"), 13, "inputs.x.dims", r"found \[3\], expected sizes that fit"),
    "no size": (("dims: [ 3, 5 ]", "dims: [ 3, -1 ]"), 13, "inputs.x.dims", r"found \[3, -1\], expected sizes"),
    "no data": (("      random_data: true\n", ""), 11, "inputs.x", "found no data, expected one of zero_data"),
    "batch": (("  batch_size: 2", "  batch_size: 5"), 8, "batch_size", "found 5, expected at most max_batch_size, 4"),
    "no file": (
        ("random_data: true", 'input_data_file: "none"'),
        14,
        "inputs.x.input_data_file",
        r"found no file 'none', expected a file in the directory warmup/ of the model",
    ),
    "file outside": (
        ("random_data: true", 'input_data_file: "../config.pbtxt"'),
        14,
        "inputs.x.input_data_file",
        r"found no file '../config.pbtxt'",
    ),
    "file size": (
        ("random_data: true", FILE),
        14,
        "inputs.x.input_data_file",
        "found 'words' with 9 bytes, expected 60, those of one row",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_request_that_the_model_would_not_take_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    (old, new), line, field, sentence = WRONG[name]
    assert CONFIG.count(old) == 1
    config = CONFIG.replace(old, new)

    problem = refusal_of(read_model(write(tmp_path, config, words=elements(b"hello"))))

    assert (problem.line, problem.field) == (line, f"model_warmup[0].{field}")
    with pytest.raises(type(problem), match=sentence):
        raise problem


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (elements(b"a"), "'words' with 1 elements, expected 2, those of one row"),
        (elements(b"a", b"b")[:-1], "'words' with an element that ends at byte 10 in a file of 9 bytes"),
        (elements(b"a", b"b") + b"\1", "'words' with an element that ends at byte 15 in a file of 11 bytes"),
    ],
)
def test_a_file_of_strings_holds_the_elements_of_one_row(tmp_path: Path, content: bytes, found: str) -> None:
    config = CONFIG.replace("  inputs {\n", f"  {STRINGS}\n  inputs {{\n")

    problem = refusal_of(read_model(write(tmp_path, config, words=content)))

    assert found in str(problem)
    assert problem.line == 9


def test_all_mistakes_of_a_block_are_told_at_once(tmp_path: Path) -> None:
    config = CONFIG.replace("dims: [ 3, 5 ]", "dims: [ 3 ]").replace("  batch_size: 2", "  batch_size: 9")

    entry = read_model(write(tmp_path, config))

    assert not isinstance(entry.problems[0], SeveralProblemsError)
    assert len(entry.problems) == 2


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_elements_are_read_as_they_were_written(words: list[bytes]) -> None:
    assert bytes_elements(elements(*words)) == words
