"""How PyTorch models run on the CPU."""

import gc
import logging
import re
import shutil
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from backends.errors import ExecutionError, LoadError, OutOfMemoryError
from backends.ports import Placement
from models.tensors import DataType
from tests.backends.builders import POISON, model, payload, tensor

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from backends.torch_engine.executor import create_executors  # noqa: E402 - needs torch
from tests.torch.builders import Double, float_model, floats, loaded, save_code, save_identity, save_script  # noqa: E402

pytestmark = pytest.mark.torch

X = np.array([[1, 2], [3, 4]], np.float32)
CODE = """
    import torch

    class Base(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

    class Minus(Base):
        def forward(self, left, right=None):
            return left - (0 if right is None else right)

    class Two(Base):
        def forward(self, x):
            return x + 1, [x * 2][0]

    class Named(Base):
        def forward(self, x):
            return {"twice": x * 2, "more": x + 1}

    class Itself(Base):
        def forward(self, x):
            return x

    class Rows(Base):
        def forward(self, x):
            return x[:1]

    class Greedy(Base):
        def forward(self, x):
            if float(x[0, 0]) > 0:
                torch.empty(1 << 60)
            return x

    class Wide(Base):
        def forward(self, x):
            return x.double()

    class Huge(Base):
        def forward(self, x):
            return torch.nn.functional.linear(x * 60_000, torch.ones(2, 2))

    class Layout(Base):
        def forward(self, x):
            return (torch.zeros(len(x), 1) + float(x.is_contiguous(memory_format=torch.channels_last)))

    class Picture(Base):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.line = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.line(self.conv(x).relu().mean((2, 3)))
"""


def coded(directory: Path, name: str, *, state=None) -> tuple[Path, dict[str, str]]:
    """A file and the parameters of one of the classes above."""
    save_code(directory, CODE)
    torch.save(state or {"weight": torch.ones(1)}, directory / "model.pt")
    return directory / "model.pt", {"model_class": f"model.py:{name}"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("INPUT__1", "INPUT__0"), 3), (("right", "left"), 3), (("a", "b"), -3)],
    ids=["positions", "argument-names", "declared-order"],
)
def test_inputs_find_their_arguments(tmp_path: Path, names: tuple[str, str], expected: int):
    file, parameters = coded(tmp_path, "Minus")
    spec = float_model(file, [floats(name) for name in names], **parameters)

    with loaded(spec) as executor:
        found = executor.run({names[0]: 0 * X[:1] + 4, names[1]: 0 * X[:1] + 7}, 1)

    np.testing.assert_array_equal(found["y"], [[expected, expected]])


def test_an_optional_input_may_be_missing(tmp_path: Path):
    file, parameters = coded(tmp_path, "Minus")
    spec = float_model(file, [floats("left"), floats("right")], **parameters)

    with loaded(spec) as executor:
        np.testing.assert_array_equal(executor.run({"left": X}, 2)["y"], X)


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("Two", ("plus", "twice"), ([[2, 3]], [[2, 4]])),
        ("Two", ("OUTPUT__1",), ([[2, 4]],)),
        ("Named", ("more", "twice"), ([[2, 3]], [[2, 4]])),
        ("Named", ("first", "second"), ([[2, 4]], [[2, 3]])),
    ],
    ids=["tuple", "position", "dict", "dict-in-order"],
)
def test_outputs_find_their_names(tmp_path: Path, name: str, outputs, expected):
    file, parameters = coded(tmp_path, name)

    with loaded(float_model(file, outputs=[floats(output) for output in outputs], **parameters)) as executor:
        found = executor.run({"x": X[:1]}, 1)

    assert list(found) == list(outputs)
    for array, values in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [
        ("Two", floats("y"), "the model returns 2 outputs, declared are y"),
        ("Wide", floats("y"), "output 'y' is of float64, declared is float32; change data_type"),
        ("Itself", floats("y", 3), r"output 'y' has shape \[2, 2\], declared is \[rows, 3\]"),
        ("Itself", floats("y", 1, 2), r"output 'y' has shape \[2, 2\], declared is \[rows, 1, 2\]"),
    ],
    ids=["number", "type", "shape", "dimensions"],
)
def test_outputs_that_are_not_as_declared_stop_the_load(tmp_path: Path, name: str, output, message: str):
    file, parameters = coded(tmp_path, name)

    with (
        loaded(float_model(file, outputs=[output], **parameters)) as executor,
        pytest.raises(LoadError, match=rf"does not run on 2 rows of the declared inputs: {message}"),
    ):
        executor.warm_up([1, 2])


@pytest.mark.parametrize("data_type", [kind for kind in DataType if kind is not DataType.BYTES], ids=lambda k: k.value)
def test_every_element_type_passes_unchanged(tmp_path: Path, data_type: DataType):
    file, parameters = coded(tmp_path, "Itself")
    spec = float_model(file, [tensor("x", data_type)], [tensor("y", data_type)], **parameters)
    values = np.array([[0, 1], [1, 0]]).astype(data_type.numpy)

    with loaded(spec) as executor:
        found = executor.run({"x": values}, 2)["y"]

    assert found.dtype == data_type.numpy
    np.testing.assert_array_equal(found.astype(np.float64), values.astype(np.float64))


def test_strings_are_refused_when_loading(tmp_path: Path):
    file, parameters = coded(tmp_path, "Itself")
    spec = float_model(file, [tensor("x", DataType.BYTES)], **parameters)

    with pytest.raises(LoadError, match="'x' is TYPE_STRING; PyTorch has no strings"), loaded(spec):
        pass


def test_inputs_are_read_where_they_are_and_outputs_own_their_memory(tmp_path: Path):
    file, parameters = coded(tmp_path, "Itself")
    inputs = X.copy()
    inputs.flags.writeable = False  # as the parts of a request body are; torch would warn, which fails the test

    with loaded(float_model(file, **parameters)) as executor:
        found = executor.run({"x": inputs}, 2)["y"]

    assert not np.shares_memory(found, inputs)
    assert found.flags.writeable


def test_batches_are_not_tracked_for_gradients(tmp_path: Path):
    save_code(tmp_path, "import torch\nclass Mode(torch.nn.Linear):\n    def forward(self, x):\n"
              "        return x + float(torch.is_inference_mode_enabled() and not self.training)")  # fmt: skip
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "model.pt")
    spec = float_model(
        tmp_path / "model.pt", model_class="model.py:Mode", model_arguments='{"in_features": 2, "out_features": 2}'
    )

    with loaded(spec) as executor:
        np.testing.assert_array_equal(executor.run({"x": X}, 2)["y"], X + 1)


def test_images_are_laid_out_with_the_channels_last_if_asked_for(tmp_path: Path):
    file, parameters = coded(tmp_path, "Layout")
    spec = float_model(file, [floats("x", 3, 4, 5)], [floats("y", 1)], channels_last="true", **parameters)

    with loaded(spec) as executor:
        found = executor.run({"x": np.ones((2, 3, 4, 5), np.float32)}, 2)["y"]

    np.testing.assert_array_equal(found, [[1], [1]])


def picture(directory: Path, **parameters: str):
    save_code(directory, CODE)
    torch.manual_seed(0)
    namespace: dict[str, object] = {}
    exec(compile((directory / "model.py").read_text(), "model.py", "exec"), namespace)  # noqa: S102 - the code above
    torch.save(namespace["Picture"]().state_dict(), directory / "model.pt")  # type: ignore[operator]
    return float_model(
        directory / "model.pt", [floats("x", 3, 8, 8)], [floats("y", 2)], model_class="model.py:Picture", **parameters
    )


@pytest.mark.parametrize("parameters", [{"precision": "bf16"}, {"precision": "bf16", "channels_last": "1"}])
def test_half_precision_is_close_and_not_equal(tmp_path: Path, parameters: dict[str, str]):
    image = np.random.default_rng(0).random((4, 3, 8, 8), np.float32)

    with loaded(picture(tmp_path)) as precise, loaded(picture(tmp_path, **parameters)) as half:
        half.warm_up([1, 4])
        found, expected = half.run({"x": image}, 4)["y"], precise.run({"x": image}, 4)["y"]

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert (found != expected).any()


def test_half_precision_that_gives_no_numbers_is_refused(tmp_path: Path):
    file, parameters = coded(tmp_path, "Huge")

    with (
        loaded(float_model(file, precision="fp16", **parameters)) as executor,
        pytest.raises(LoadError, match=r"fp16 differ from fp32 .*\(1 rows: NaN or infinite.*precision_check"),
    ):
        executor.warm_up([1])


def test_half_precision_that_is_too_far_off_is_refused_unless_the_check_is_off(tmp_path: Path):
    strict = picture(tmp_path, precision="bf16", precision_check="0.00001")
    lax = picture(tmp_path, precision="bf16", precision_check="off")

    with loaded(lax) as executor:
        executor.warm_up([1, 2])
    with (
        loaded(strict) as executor,
        pytest.raises(LoadError, match=r"by more than 0\.0% .*\(1 rows: \d+\.\d%, 2 rows: \d+\.\d%\)"),
    ):
        executor.warm_up([1, 2])


def test_a_size_that_was_not_warmed_is_counted(tmp_path: Path):
    with loaded(float_model(save_script(Double(), tmp_path / "model.pt"))) as executor:
        executor.warm_up([1, 2])
        executor.run({"x": X}, 2)
        executor.run({"x": np.concatenate([X, X])}, 4)

        assert executor.unwarmed_runs == 1


def test_variable_dims_are_not_warmed_and_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    spec = float_model(save_script(Double(), tmp_path / "model.pt"), [floats("x", -1)], [floats("y", -1)])

    with caplog.at_level(logging.INFO), loaded(spec) as executor:
        executor.warm_up([1])
        executor.run({"x": X}, 2)

    assert "no warm-up, inputs have variable dims: x" in caplog.text


def test_a_model_that_fails_says_why_without_directories_and_runs_the_next_batch(tmp_path: Path):
    parameters = save_identity(tmp_path)
    spec = model(backend="pytorch", file=tmp_path / "model.pt", **parameters)

    with loaded(spec) as executor:
        with pytest.raises(ExecutionError, match="IndexError: index -9999 is out of bounds") as caught:
            executor.run(payload(1, POISON), 2)
        np.testing.assert_array_equal(executor.run(payload(5), 1)["y"], [[5, 5]])

    assert not re.search(r"\s/\w", str(caught.value))


def test_an_error_in_torchscript_is_told_in_one_line(tmp_path: Path):
    class Failing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if float(x.sum()) > 0:
                raise ValueError("no such row")
            return x

    with (
        loaded(float_model(save_script(Failing(), tmp_path / "model.pt"))) as executor,
        pytest.raises(ExecutionError, match=r"^Error: no such row$|ValueError: no such row$"),
    ):
        executor.run({"x": X}, 2)


def test_memory_that_runs_out_is_told_apart(tmp_path: Path):
    file, parameters = coded(tmp_path, "Greedy")

    with loaded(float_model(file, **parameters)) as executor:
        with pytest.raises(OutOfMemoryError):
            executor.run({"x": X}, 2)
        np.testing.assert_array_equal(executor.run({"x": 0 * X}, 2)["y"], 0 * X)


def test_an_error_does_not_keep_the_batch_alive(tmp_path: Path):
    file, parameters = coded(tmp_path, "Greedy")

    with loaded(float_model(file, **parameters)) as executor, pytest.raises(OutOfMemoryError) as caught:
        executor.run({"x": X}, 2)

    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_instances_share_one_module_and_divide_the_cores(tmp_path: Path):
    spec = picture(tmp_path)
    lanes = create_executors(spec, Placement(instances=2, cores=4))
    threads: list[int] = []

    def work(executor) -> None:
        executor.load()
        executor.warm_up([1, 2])
        executor.run({"x": np.zeros((2, 3, 8, 8), np.float32)}, 2)
        threads.append(torch.get_num_threads())

    modules = count(torch.nn.Conv2d)
    workers = [threading.Thread(target=work, args=(executor,)) for (executor,) in lanes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert threads == [2, 2]
    assert count(torch.nn.Conv2d) == modules + 1


def count(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def test_closing_the_last_instance_frees_the_module(tmp_path: Path):
    modules = count(torch.nn.Conv2d)

    with loaded(picture(tmp_path)) as executor:
        executor.warm_up([1])

    assert count(torch.nn.Conv2d) == modules


def test_closing_twice_is_harmless_and_loading_again_works(tmp_path: Path):
    with loaded(float_model(save_script(Double(), tmp_path / "model.pt"))) as executor:
        executor.close()
        executor.close()
        with pytest.raises(ExecutionError, match="not loaded"):
            executor.run({"x": X}, 2)

        executor.load()

        np.testing.assert_array_equal(executor.run({"x": X}, 2)["y"], 2 * X)


def test_memory_that_does_not_suffice_for_a_size_is_told_with_what_to_do(tmp_path: Path):
    file, parameters = coded(tmp_path, "Greedy")

    with (
        loaded(float_model(file, **parameters)) as executor,
        pytest.raises(LoadError, match=r"does not run on 2 rows .*lower max_batch_size"),
    ):
        executor.warm_up([1, 2])


def test_memory_stays_flat_over_random_sizes(tmp_path: Path):
    spec = float_model(tmp_path, [floats("x", 3, 64, 64)], [floats("y", 1000)], torchvision_model="squeezenet1_1")
    pytest.importorskip("torchvision")
    sizes = np.random.default_rng(0).integers(1, 9, 30)

    with loaded(spec) as executor:
        executor.warm_up(range(1, 9))
        before = resident_bytes()
        for rows in sizes:
            executor.run({"x": np.zeros((rows, 3, 64, 64), np.float32)}, int(rows))

        assert executor.unwarmed_runs == 0
        assert resident_bytes() - before < 64 * 2**20


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_answers_the_same_and_other_sizes_run_uncompiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from torch._dynamo.utils import counters

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    file, parameters = coded(tmp_path, "Two")
    spec = float_model(file, [floats("x")], [floats("plus"), floats("twice")], compile="true", **parameters)
    compiled = counters["stats"]["unique_graphs"]

    with loaded(spec, Placement(cache_dir=tmp_path / "cache")) as executor:
        executor.warm_up([1, 2])
        answers = {rows: executor.run({"x": np.ones((rows, 2), np.float32)}, rows)["plus"] for rows in (1, 2, 3)}
        assert executor.unwarmed_runs == 1

    for rows, answer in answers.items():
        np.testing.assert_array_equal(answer, np.full((rows, 2), 2))
    assert counters["stats"]["unique_graphs"] == compiled + 2
    assert any((tmp_path / "cache" / "torchinductor").iterdir())


def test_torchscript_cannot_be_compiled(tmp_path: Path):
    spec = float_model(save_script(Double(), tmp_path / "model.pt"), compile="true")

    with pytest.raises(LoadError, match="parameter 'compile' does not apply to a TorchScript file"), loaded(spec):
        pass


def test_bfloat16_inputs_and_outputs_are_numpys(tmp_path: Path):
    spec = float_model(
        save_script(torch.nn.Linear(2, 2, bias=False).bfloat16(), tmp_path / "model.pt"),
        [tensor("x", DataType.BF16)],
        [tensor("y", DataType.BF16)],
    )

    with loaded(spec) as executor:
        executor.warm_up([1])
        found = executor.run({"x": np.ones((1, 2), ml_dtypes.bfloat16)}, 1)["y"]

    assert found.dtype == ml_dtypes.bfloat16


def test_a_gpu_that_is_not_there_is_told_when_loading(tmp_path: Path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ((lane, other),) = create_executors(picture(tmp_path), Placement(device="gpu0"))

    with pytest.raises(LoadError, match="finds no GPU"):
        lane.load()
    other.close()
