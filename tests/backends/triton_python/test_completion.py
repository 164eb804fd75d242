"""`auto_complete_config`: a model's code completes its configuration, outside of this process."""

import sys
from pathlib import Path

import pytest

from backends.triton_python.completion import complete
from models.errors import RepositoryError
from models.model_directory import read_model
from models.model_entry import ModelEntry
from tests.backends.triton_python.builders import HEAD, IDENTITY
from tests.models.builders import write_model

pytestmark = pytest.mark.slow  # starts a process

COMPLETES = f"""{HEAD}
import json, sys
print("what code prints is no answer")
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        config = auto_complete_model_config.as_dict()
        names = [tensor["name"] for tensor in config["input"]] + [tensor["name"] for tensor in config["output"]]
        if "x" not in names:
            auto_complete_model_config.add_input({{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}})
        auto_complete_model_config.add_output({{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}})
        auto_complete_model_config.set_max_batch_size(8)
        auto_complete_model_config.set_dynamic_batching()
        return auto_complete_model_config
    def execute(self, requests):
        return []
"""


def read(root: Path, code: str, config: str | None = None) -> ModelEntry:
    directory = write_model(root, config)
    (directory / "1" / "model.py").write_text(code)
    return read_model(directory, completer=complete)


def failure(root: Path, statement: str) -> str:
    code = COMPLETES.replace("        config = auto_complete_model_config.as_dict()", f"        {statement}")
    entry = read(root, code)
    assert entry.versions == ()
    assert all("absent" not in str(problem) for problem in entry.problems)
    assert str(root) not in str(entry.problems[0])
    assert str(entry.problems[0]).count("model 'm'") <= 1
    return str(entry.problems[0])


def test_inputs_and_outputs_come_from_the_code_which_this_process_never_runs(tmp_path: Path) -> None:
    (spec,) = read(tmp_path, COMPLETES).versions
    assert [(tensor.name, tensor.dims) for tensor in (*spec.inputs, *spec.outputs)] == [("x", (4,)), ("y", (-1,))]
    assert (spec.max_batch_rows, spec.wants_requests, spec.batching.policy) == (8, True, "shoal")
    assert spec.sources["input[0].name"] == "1/model.py"
    assert "triton_python_backend_utils" not in sys.modules


def test_what_the_configuration_says_is_kept(tmp_path: Path) -> None:
    text = 'input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] }\nmax_batch_size: 2'
    (spec,) = read(tmp_path, COMPLETES, text).versions
    assert (spec.inputs[0].dims, spec.outputs[0].name, spec.max_batch_rows) == ((2, 2), "y", 2)


def test_code_is_not_asked_when_the_configuration_is_complete(tmp_path: Path) -> None:
    text = """backend: "python"
        input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }"""
    (spec,) = read(tmp_path, "raise RuntimeError\n" + COMPLETES, text).versions
    assert spec.wants_requests


def test_code_that_completes_nothing_leaves_the_problem_as_it_is(tmp_path: Path) -> None:
    problems = " ".join(map(str, read(tmp_path, IDENTITY).problems))
    assert "found no input, expected at least one input" in problems


FAILURES = {
    "raises": ("raise ValueError('no weights')", "ValueError: no weights (at model.py:9)"),
    "contradicts": ("auto_complete_model_config.add_input({'name': 'x'})", "input: found no data_type, dims, expected"),
    "numbers of numpy": (
        "auto_complete_model_config.add_input({'name': 'z', 'data_type': 'TYPE_FP32', 'dims': np.ones(1)})",
        "input: found a value that is no JSON (Object of type ndarray is not JSON serializable), expected plain "
        "numbers and texts (at model.py:9)",
    ),
    "numbers of numpy elsewhere": (
        "auto_complete_model_config.as_dict = lambda: np.ones(1); return auto_complete_model_config",
        "model.py: found a configuration that is no JSON (Object of type ndarray is not JSON serializable), expected",
    ),
    "writes the answer itself": ("import os; os.write(int(sys.argv[2]), b'}')", "its process wrote what is no answer"),
    "exits": ("sys.exit(3)", "SystemExit: 3 (at model.py:9)"),
    "crashes": ("import os; os._exit(3)", "its process exited with status 3, expected a completed configuration"),
    "returns nothing": ("return None", "model.py: found None returned, expected the ModelConfig that it was given"),
    "no schema": ("return pb_utils.ModelConfig({'colour': 1})",
                  'found a configuration that cannot be one (Message type "inference.ModelConfig" has no field named'),
    "decoupled": ("auto_complete_model_config.set_model_transaction_policy({'decoupled': True}); "
                  "config = auto_complete_model_config.as_dict()",
                  "model_transaction_policy.decoupled: found true, expected no such field"),
}  # fmt: skip


@pytest.mark.parametrize(("statement", "text"), FAILURES.values(), ids=FAILURES)
def test_code_that_fails_is_a_problem_of_the_model(tmp_path: Path, statement: str, text: str) -> None:
    assert text in failure(tmp_path, statement)


def test_a_child_that_the_code_forks_answers_nothing(tmp_path: Path) -> None:
    code = COMPLETES.replace(
        "        config =", "        import os; pid = os.fork(); pid and os.waitpid(pid, 0)\n        config ="
    )
    (spec,) = read(tmp_path, code).versions
    assert spec.inputs[0].name == "x"


def test_threads_that_the_code_starts_end_with_its_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stays = "import threading\ndef stay():\n    threading.main_thread().join()\n    print('outlived')\n"
    code = f"{stays}threading.Thread(target=stay).start()\n{COMPLETES}"
    (spec,) = read(tmp_path, code).versions
    assert spec.inputs[0].name == "x"
    assert capfd.readouterr().err == "what code prints is no answer\n"


def test_code_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text("import threading\nthreading.Event().wait()\n")
    with pytest.raises(
        RepositoryError, match=r"model 'm' version 1: auto_complete_config: its process was ended: it too"
    ):
        complete(file, "{}", timeout_s=0.5)


def test_code_may_have_packages_of_the_same_names_as_the_server(tmp_path: Path) -> None:
    code = f"import models.colours\n{COMPLETES}"
    package = tmp_path / "m" / "1" / "models"
    package.mkdir(parents=True)
    (package / "colours.py").touch()
    (tmp_path / "m" / "1" / "model.py").write_text(code)
    assert read_model(tmp_path / "m", completer=complete).problems == ()
