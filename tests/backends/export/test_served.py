"""Versions are tried in a process of their own."""

import os
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExportError
from backends.export.served import compared_sizes, one_by_one, served
from models.inference import Array
from models.model_directory import read_model
from models.spec import ModelSpec
from models.tensors import DataType
from tests.backends.builders import model, tensor
from tests.backends.export.builders import save_colours

pytestmark = pytest.mark.slow

ROWS = np.random.default_rng(0).random((3, 3, 16, 16), np.float32)


def code(directory: Path, text: str) -> ModelSpec:
    """A model that is Python code."""
    file = directory / "model.py"
    file.write_text(text)
    inputs, outputs = [tensor("x", DataType.FP32, (3,))], [tensor("y", DataType.FP32, (3,))]
    return model(inputs=inputs, outputs=outputs, backend="python", file=file)


def test_batches_are_computed_in_another_process(tmp_path: Path) -> None:
    spec = code(tmp_path, "import os\ndef execute(inputs):\n    return {'y': 0 * inputs['x'] + os.getpid()}")

    found: Array = served(spec, lambda compute: compute(np.zeros((2, 3), np.float32)))

    assert found.shape == (2, 3)
    assert found[0, 0] != np.float32(os.getpid())


def test_rows_have_the_same_scores_in_a_batch_and_alone(tmp_path: Path) -> None:
    spec = read_model(save_colours(tmp_path)).versions[0]

    together, alone = served(spec, lambda compute: (compute(ROWS), one_by_one(compute, ROWS)))

    assert together.shape == (3, 3)
    assert np.allclose(together, alone, rtol=1e-5)


def test_a_crash_is_told(tmp_path: Path) -> None:
    spec = code(tmp_path, "import os\ndef execute(inputs):\n    os.kill(os.getpid(), 9)")

    with pytest.raises(ExportError, match=r"m/1: python does not survive this network: .* was killed by signal 9"):
        served(spec, lambda compute: compute(np.zeros((1, 3), np.float32)))


def test_a_version_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    spec = code(tmp_path, "raise ValueError('not today')")

    with pytest.raises(ExportError, match="not today"):
        served(spec, lambda compute: compute(np.zeros((1, 3), np.float32)))


@pytest.mark.parametrize(("largest", "sizes"), [(0, (1,)), (1, (1,)), (4, (1, 4)), (8, (1, 8)), (64, (1, 8))])
def test_sizes_go_up_to_eight_rows(largest: int, sizes: tuple[int, ...]) -> None:
    assert compared_sizes(model(max_batch_rows=largest)) == sizes
