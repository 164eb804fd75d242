"""Golden photographs of a version: recorded by the command, compared before the version may answer."""

import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from backends.placing import Machine
from backends.ports import Placement
from batching.clock import MonotonicClock
from gateway.cli import app
from gateway.decoding import ThreadDecoder
from gateway.golden_check import check_golden
from gateway.golden_record import record_golden
from models.errors import ConfigError, GoldenMismatchError
from models.images.decode import decode
from models.images.header import ImageLimits
from models.inference import NO_TIMING, Tensors, Timing
from models.preprocessing import Preprocessing
from models.spec import ModelSpec
from tests.images.pictures import encoded, photo
from tests.models.builders import spec_of, write_model

CONFIG = """\
backend: "fake"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3, 8, 8 ] }
"""
SIDE = '[preprocessing]\nresize = 9\ncrop = 8\ncolour = "RGB"\noutput = "probabilities"\n'
MACHINE = Machine(gpus={}, defaults=Placement())


def photographs(directory: Path) -> list[Path]:
    files = []
    for number in range(2):
        file = directory / f"{number}.png"
        file.write_bytes(encoded(photo(90, 70, seed=number)))
        files.append(file)
    return files


def recorded(root: Path, config: str = CONFIG, side: str = SIDE) -> Path:
    """A model directory with golden photographs; the model answers its input."""
    directory = write_model(root, config, side)
    asyncio.run(record_golden(directory, photographs(root), machine=MACHINE, clock=MonotonicClock()))
    return directory


class Mirror:
    """Answers the row as probabilities, times a factor."""

    def __init__(self, spec: ModelSpec, factor: float = 1.0) -> None:
        self.spec = spec
        self.factor = factor

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        row = decode(image, how, ImageLimits())
        return {"y": row[np.newaxis] * np.float32(self.factor)}, NO_TIMING


def check(served: Mirror, **limits: int) -> None:
    decoder = ThreadDecoder(1, ImageLimits(**limits))
    try:
        asyncio.run(check_golden(served, decoder))
    finally:
        decoder.close()


def test_photographs_and_answers_are_recorded_in_the_models_directory(tmp_path: Path) -> None:
    directory = recorded(tmp_path)

    document = json.loads((directory / "golden.json").read_text())

    assert sorted(file.name for file in (directory / "golden").iterdir()) == ["0.png", "1.png"]
    assert [entry["file"] for entry in document["photos"]] == ["golden/0.png", "golden/1.png"]
    assert [len(entry["top"]["1"]) for entry in document["photos"]] == [5, 5]


def test_a_version_that_is_as_recorded_passes(tmp_path: Path) -> None:
    check(Mirror(spec_of(recorded(tmp_path))))


def test_a_version_without_golden_photographs_passes(tmp_path: Path) -> None:
    check(Mirror(spec_of(write_model(tmp_path, CONFIG, SIDE))))


def test_another_declaration_is_refused_with_the_photograph_and_the_reason(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    (directory / "shoal.toml").write_text(SIDE.replace("RGB", "BGR"))

    with pytest.raises(GoldenMismatchError) as caught:
        check(Mirror(spec_of(directory)))

    text = str(caught.value)
    assert text.startswith("m: version 1: golden photographs: photograph 'golden/0.png': channel ")
    assert 'red and blue are swapped: is colour = "BGR" right?' in text


def test_other_answers_are_refused_within_the_declared_tolerance(tmp_path: Path) -> None:
    directory = recorded(tmp_path)

    with pytest.raises(GoldenMismatchError, match=r"class \d+: found a probability of 0\.\d+, expected 0\.\d+ within"):
        check(Mirror(spec_of(directory), 0.8))

    (directory / "shoal.toml").write_text(SIDE + "[golden]\ntolerance_probability = 0.5\n")
    check(Mirror(spec_of(directory), 0.8))


def test_a_photograph_that_cannot_be_decoded_any_more_is_a_mismatch(tmp_path: Path) -> None:
    with pytest.raises(GoldenMismatchError, match=r"photograph 'golden/0.png': found a PNG of 90 x 70 pixels"):
        check(Mirror(spec_of(recorded(tmp_path))), max_side_pixels=50)


def test_a_missing_photograph_is_named(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    (directory / "golden" / "1.png").unlink()

    with pytest.raises(ConfigError, match=r"m/golden.json: golden/1.png: found no such photograph"):
        check(Mirror(spec_of(directory)))


def test_photographs_are_recorded_again_in_place(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    before = (directory / "golden.json").read_text()
    photos = sorted((directory / "golden").iterdir())

    asyncio.run(record_golden(directory, photos, machine=MACHINE, clock=MonotonicClock()))

    assert (directory / "golden.json").read_text() == before


def test_each_version_has_its_own_answers(tmp_path: Path) -> None:
    directory = write_model(tmp_path, "version_policy { all { } }\n" + CONFIG, SIDE, versions=("1", "3"))

    golden = asyncio.run(record_golden(directory, photographs(tmp_path), machine=MACHINE, clock=MonotonicClock()))

    assert [sorted(entry.top) for entry in golden.photos] == [["1", "3"]] * 2


@pytest.mark.parametrize(
    ("side", "names", "sentence"),
    [
        ("", ("0.png",), "m: found a model without preprocessing, expected"),
        ("x = 1", ("0.png",), "m/shoal.toml:1: x: found an unknown key"),
        (SIDE, ("0.png", "a/0.png"), "found the name '0.png' twice"),
        (SIDE, ("0.png", "m/config.pbtxt"), "m/config.pbtxt: found: text beginning 'backend:"),
        (SIDE, ("0.png", "empty.png"), "empty.png: the image is empty"),
        (SIDE, ("0.png", "/dev/zero"), "/dev/zero: file: found a device, expected a plain file"),
    ],
    ids=["no classifier", "wrong model", "same name", "no photograph", "empty", "device"],
)
def test_what_cannot_be_recorded_is_refused_in_a_sentence(
    tmp_path: Path, side: str, names: tuple[str, ...], sentence: str
) -> None:
    directory = write_model(tmp_path, CONFIG, side)
    photographs(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(encoded(photo(9, 9)))
    (tmp_path / "empty.png").write_bytes(b"")

    outcome = CliRunner().invoke(app, ["golden", str(directory), *(str(tmp_path / name) for name in names)])

    assert outcome.exit_code == 1
    assert sentence in outcome.stderr
    assert not (directory / "golden.json").exists()


def test_a_second_record_replaces_the_first_one_with_its_copies(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    other = tmp_path / "other.png"
    other.write_bytes(encoded(photo(50, 50, seed=5)))
    mine = directory / "golden" / "mine.txt"
    mine.write_text("")

    outcome = CliRunner().invoke(app, ["golden", str(directory), str(other)])

    assert sorted(file.name for file in (directory / "golden").iterdir()) == ["mine.txt", "other.png"]
    assert outcome.stdout.splitlines()[-2:] == [
        "the earlier record, of 2 photographs, is replaced",
        "recorded 1 photograph; it is compared whenever the model is loaded",
    ]


def test_another_answer_than_before_is_told_beside_the_new_one(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    (directory / "shoal.toml").write_text(SIDE.replace("RGB", "BGR"))

    outcome = CliRunner().invoke(app, ["golden", str(directory), str(tmp_path / "0.png")])

    first = outcome.stdout.splitlines()[0]
    assert re.fullmatch(r"golden/0.png, version 1: \d+ \(.*%\), was \d+ \(.*%\)", first)


def test_the_command_says_what_it_has_seen(tmp_path: Path) -> None:
    directory = write_model(tmp_path, CONFIG, SIDE)

    outcome = CliRunner().invoke(app, ["golden", str(directory), *map(str, photographs(tmp_path))])

    assert outcome.exit_code == 0, outcome.output
    first, _, last = outcome.stdout.splitlines()
    assert first.startswith("golden/0.png, version 1: ")
    assert last == "recorded 2 photographs; they are compared whenever the model is loaded"
