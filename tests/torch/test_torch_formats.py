"""Which files a PyTorch model may be, and which are refused."""

import collections
import logging
from pathlib import Path

import numpy as np
import pytest

from backends.errors import LoadError
from backends.ports import Placement

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from tests.torch.builders import (  # noqa: E402 - needs torch
    Double,
    float_model,
    floats,
    loaded,
    save_code,
    save_script,
)

pytestmark = pytest.mark.torch

X = np.array([[1, 2], [3, 4]], np.float32)
CLASS = {"model_class": "model.py:Double"}


def answer(file: Path, placement: Placement | None = None, **parameters: str) -> np.ndarray:
    with loaded(float_model(file, **parameters), placement) as executor:
        return executor.run({"x": X}, 2)["y"]


def exported(file: Path, *, by_name: bool = False) -> Path:
    example = torch.zeros(2, 2)
    arguments, keywords = ((), {"x": example}) if by_name else ((example,), {})
    rows = {0: torch.export.Dim("n")}
    program = torch.export.export(Double().eval(), arguments, keywords, dynamic_shapes={"x": rows})
    torch.export.save(program, file.with_suffix(".pt2"))
    return file.with_suffix(".pt2").rename(file)


@pytest.mark.parametrize("optimize", ["none", "freeze", "inference"])
def test_a_torchscript_file_is_served(tmp_path: Path, optimize: str):
    file = save_script(Double(), tmp_path / "model.pt")

    np.testing.assert_array_equal(answer(file, optimize=optimize), 2 * X)


def test_a_torchscript_file_that_was_frozen_is_served(tmp_path: Path):
    with pytest.warns(FutureWarning, match="deprecated"):
        torch.jit.freeze(torch.jit.script(Double().eval())).save(str(tmp_path / "model.pt"))

    np.testing.assert_array_equal(answer(tmp_path / "model.pt"), 2 * X)


def test_a_torchscript_file_runs_without_optimisation_if_told_so(tmp_path: Path):
    file = save_script(Double(), tmp_path / "model.pt")

    np.testing.assert_array_equal(answer(file, DISABLE_OPTIMIZED_EXECUTION="true", INFERENCE_MODE="false"), 2 * X)


@pytest.mark.parametrize("by_name", [False, True], ids=["positional", "by-name"])
def test_an_exported_program_is_told_by_its_content_and_served(tmp_path: Path, by_name: bool):
    file = exported(tmp_path / "model.pt", by_name=by_name)

    np.testing.assert_array_equal(answer(file), 2 * X)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_state_dict_fills_the_class_that_is_named(tmp_path: Path, is_zip: bool):
    save_code(tmp_path)
    state = {"weight": torch.tensor([5.0])}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=is_zip)

    np.testing.assert_array_equal(answer(tmp_path / "model.pt", **CLASS), 5 * X)


def test_a_state_dict_may_be_wrapped_as_training_scripts_do(tmp_path: Path):
    save_code(tmp_path)
    state = collections.OrderedDict({"module.weight": torch.tensor([5.0])})
    torch.save({"epoch": 7, "state_dict": state}, tmp_path / "model.pt")

    np.testing.assert_array_equal(answer(tmp_path / "model.pt", **CLASS), 5 * X)


def test_the_class_gets_its_arguments(tmp_path: Path):
    save_code(tmp_path, "import torch\ndef scale(by):\n    m = torch.nn.Linear(2, 2)\n    m.by = by\n    return m")
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "model.pt")
    spec = float_model(tmp_path / "model.pt", model_class="model.py:scale", model_arguments='{"by": 3}')

    with loaded(spec) as executor:
        assert executor.run({"x": X}, 2)["y"].shape == (2, 2)


def test_code_beside_the_model_can_be_imported_by_it(tmp_path: Path):
    (tmp_path / "helper_of_the_model.py").write_text("FACTOR = 3.0")
    save_code(
        tmp_path,
        """
        import torch
        from helper_of_the_model import FACTOR

        class Triple(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(1))
            def forward(self, x):
                return FACTOR * x + self.weight
        """,
    )
    torch.save({"weight": torch.zeros(1)}, tmp_path / "model.pt")

    np.testing.assert_array_equal(answer(tmp_path / "model.pt", model_class="model.py:Triple"), 3 * X)


def test_torchvision_models_go_by_their_name(tmp_path: Path):
    pytest.importorskip("torchvision")
    from torchvision.models import squeezenet1_1

    network = squeezenet1_1(num_classes=3).eval()
    torch.save(network.state_dict(), tmp_path / "model.pt")
    spec = float_model(
        tmp_path / "model.pt",
        [floats("image", 3, 32, 32)],
        [floats("scores", 3)],
        torchvision_model="squeezenet1_1",
        model_arguments='{"num_classes": 3}',
    )
    image = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)

    with loaded(spec) as executor:
        found = executor.run({"image": image}, 2)["scores"]

    with torch.inference_mode():
        np.testing.assert_allclose(found, network(torch.from_numpy(image)).numpy(), rtol=1e-4, atol=1e-5)


def test_a_torchvision_model_without_weights_says_that_its_answers_mean_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("torchvision")
    spec = float_model(tmp_path, [floats("x", 3, 32, 32)], [floats("y", 1000)], torchvision_model="squeezenet1_1")

    with caplog.at_level(logging.WARNING), loaded(spec) as executor:
        executor.run({"x": np.zeros((1, 3, 32, 32), np.float32)}, 1)

    assert "random" in caplog.text


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self):
        return Path.touch, (self._file,)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path: Path, is_zip: bool):
    save_code(tmp_path)
    file = tmp_path / "model.pt"
    torch.save({"weight": Malicious(tmp_path / "it-ran")}, file, _use_new_zipfile_serialization=is_zip)

    with pytest.raises(LoadError, match=r"model\.pt holds objects that are no tensors.*--trust-pickled-models"):
        answer(file, **CLASS)

    assert not (tmp_path / "it-ran").exists()


def test_an_exported_program_with_a_pickle_inside_is_refused_and_does_not_run(tmp_path: Path):
    import io
    import zipfile

    file = exported(tmp_path / "model.pt")
    evil = io.BytesIO()
    torch.save((Malicious(tmp_path / "it-ran"),), evil)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, evil.getvalue() if "sample_inputs" in name else content)

    with pytest.raises(LoadError, match="--trust-pickled-models"):
        answer(file)

    assert not (tmp_path / "it-ran").exists()


def test_a_pickled_module_is_served_if_its_author_is_trusted(tmp_path: Path):
    torch.save(torch.nn.Identity(), tmp_path / "model.pt")

    found = answer(tmp_path / "model.pt", Placement(trust_pickles=True))

    np.testing.assert_array_equal(found, X)


def test_a_pickled_module_is_refused_otherwise(tmp_path: Path):
    torch.save(torch.nn.Identity(), tmp_path / "model.pt")

    with pytest.raises(LoadError, match=r"torch\.nn\.modules\.linear\.Identity.*--trust-pickled-models"):
        answer(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, r"is a state dict, which needs its model: give parameter 'model_class'"),
        ({"model_class": "model.py"}, r"'model_class' is 'model\.py', expected a file in the version directory"),
        ({"model_class": "../model.py:Double"}, r"expected a file in the version directory"),
        ({"model_class": "model.py:Missing"}, r"model\.py has no class 'Missing'"),
        ({"model_class": "model.py:Lookup"}, r"the state dict in model\.pt does not fit the model.*table"),
        ({"model_class": "model.py:Double", "model_arguments": '{"depth": 1}'}, r"TypeError.*depth"),
        ({"torchvision_model": "resnet51"}, r"'torchvision_model' is 'resnet51', expected one of torchvision\.models"),
    ],
    ids=["nothing", "no-class", "outside", "missing-class", "other-class", "other-arguments", "unknown-name"],
)
def test_a_state_dict_without_its_model_is_refused_with_what_to_do(tmp_path: Path, parameters, message: str):
    save_code(tmp_path)
    torch.save({"weight": torch.zeros(1)}, tmp_path / "model.pt")

    with pytest.raises(LoadError, match=message):
        answer(tmp_path / "model.pt", **parameters)


def test_a_whole_model_takes_no_class(tmp_path: Path):
    file = save_script(Double(), tmp_path / "model.pt")

    with pytest.raises(LoadError, match="is a TorchScript file, which is a whole model"):
        answer(file, **CLASS)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(LoadError, match=r"found no file model\.pt, expected a TorchScript file"):
        answer(tmp_path / "model.pt")
