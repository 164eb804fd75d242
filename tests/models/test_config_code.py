"""Configurations of models that are code in Triton's form: what is read from their text, and what is refused."""

from pathlib import Path

import pytest

from models.model_directory import read_model
from tests.models.builders import INPUTS, OUTPUTS, spec_of, write_model

CONFIG = f'backend: "python"\nmax_batch_size: 8\n{INPUTS}\n{OUTPUTS}\n'


def model_of(root: Path, code: str, more: str = "") -> Path:
    directory = write_model(root, CONFIG + more)
    (directory / "1" / "model.py").write_text(code)
    return directory


OF_TRITON = {
    "class": "class TritonPythonModel:\n    pass\n",
    "subclass": "class TritonPythonModel(Base): pass\n",
    "import": "from colours.model import (Palette,\n    TritonPythonModel)\n",
    "import as": "from colours import Model as TritonPythonModel\n",
    "annotation": "import sys\nTritonPythonModel: type = make()\n",
    "assignment": "if True:\n    TritonPythonModel = make()\n",
}
OF_OTHERS = {
    "none": "def execute(inputs): pass\n",
    "comment": "# class TritonPythonModel:\nclass Model: pass\n",
    "docstring": '"""Ported.\n\nclass TritonPythonModel:\n    ...\n"""\nclass Model: pass\n',
    "use": "import sys\nprint(TritonPythonModel)\n",
    "condition": "if TritonPythonModel: pass\n",
    "no Python": "class TritonPythonModel(\n",
    "no text": "class Caf\udce9: pass\n",
}


@pytest.mark.parametrize("code", OF_TRITON.values(), ids=OF_TRITON)
def test_code_with_tritons_class_is_told_by_its_text(tmp_path: Path, code: str) -> None:
    assert spec_of(model_of(tmp_path, f"import nothing_like_it\n{code}")).wants_requests


def test_a_comment_may_have_bytes_of_any_encoding(tmp_path: Path) -> None:
    directory = model_of(tmp_path, "")
    (directory / "1" / "model.py").write_bytes(b"# caf\xe9\nclass TritonPythonModel: pass\n")
    assert spec_of(directory).wants_requests


@pytest.mark.parametrize("code", OF_OTHERS.values(), ids=OF_OTHERS)
def test_other_code_gets_whole_batches(tmp_path: Path, code: str) -> None:
    directory = model_of(tmp_path, "")
    (directory / "1" / "model.py").write_bytes(code.encode(errors="surrogateescape"))
    assert not spec_of(directory).wants_requests


def test_parameters_may_name_the_models_directory(tmp_path: Path) -> None:
    more = 'parameters { key: "w" value { string_value: "$$TRITON_MODEL_DIRECTORY/1/w.npy" } }'
    spec = spec_of(model_of(tmp_path, "", more))
    assert spec.parameters == {"w": f"{tmp_path}/m/1/w.npy"}
    assert str(tmp_path) not in str(spec.config)


def test_an_environment_of_its_own_is_refused_with_what_to_do(tmp_path: Path) -> None:
    more = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "env.tar.gz" } }'
    (problem,) = read_model(model_of(tmp_path, "", more)).problems
    assert str(problem).startswith(
        'm/config.pbtxt:5: parameters.EXECUTION_ENV_PATH.string_value: found "env.tar.gz", expected no such parameter'
    )
    assert "pip install" in str(problem)


def test_without_a_completer_no_code_is_run_and_what_is_missing_is_told(tmp_path: Path) -> None:
    directory = write_model(tmp_path, 'backend: "python"')
    (directory / "1" / "model.py").write_text("raise RuntimeError\nclass TritonPythonModel: pass\n")
    assert "found no input, expected at least one input" in str(read_model(directory).problems[0])
