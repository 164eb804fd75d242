"""What a plan that was read takes and gives, and what is wrong with it."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import LoadError
from backends.tensorrt_engine.engine import EngineLimits, LoadedEngine, RefusedPlanError, read_engine
from backends.tensorrt_engine.fake_api import FakeTensorRt
from backends.tensorrt_engine.fake_models import FakeModel, FakeTensor
from backends.tensorrt_engine.messages import Messages, clean, explain_refusal, with_logger
from models.spec import ModelSpec
from models.tensors import DataType
from tests.backends.builders import tensor
from tests.backends.tensorrt_builders import MACHINE, plan, profile, version

SPEC = version(Path("model.plan"))


def read(content: FakeModel, spec: ModelSpec = SPEC) -> LoadedEngine:
    return read_engine(with_logger(FakeTensorRt()), content.to_bytes(), spec, MACHINE)


def static(rows: int) -> FakeModel:
    return FakeModel(inputs=(FakeTensor(name="x", shape=(rows, 2)),), outputs=(FakeTensor(name="y", shape=(rows, 2)),))


def test_the_sizes_are_those_of_the_engine_and_not_of_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    loaded = read(plan(least=2, most=4))

    assert loaded.limits == EngineLimits(profile=0, least_rows=2, most_rows=4)
    assert "max_batch_size is 8, the engine takes batches of 2 to 4 rows" in caplog.text


def test_an_engine_that_keeps_what_is_promised_is_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read(plan(most=8))

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_static_engine_takes_its_own_size_only() -> None:
    assert read(static(4)).limits == EngineLimits(profile=0, least_rows=4, most_rows=4)


def test_of_several_profiles_that_for_the_largest_batches_is_used() -> None:
    several = FakeModel(profiles=(profile(1, 1, 1), profile(1, 8, 16), profile(1, 4, 8)))

    assert read(several).limits == EngineLimits(profile=1, least_rows=1, most_rows=16)


def test_inputs_of_one_engine_limit_each_other() -> None:
    two = FakeModel(inputs=(FakeTensor(name="x"), FakeTensor(name="z", shape=(4, 2))), profiles=(profile(1, 4, 16),))
    spec = replace(SPEC, inputs=(tensor("x", DataType.FP32), tensor("z", DataType.FP32)))

    assert read(two, spec).limits == EngineLimits(profile=0, least_rows=4, most_rows=4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (plan(version="10.9.0"), "it was built with TensorRT 10.9.0, this is TensorRT 11.4.0 on Fake 1000"),
        (plan(compute="8.6"), "it was built for GPUs of compute capability 8.6, this is .*compute capability 9.0"),
    ],
    ids=["version", "GPU"],
)
def test_a_plan_of_another_machine_is_refused_naming_both(content: FakeModel, expected: str) -> None:
    with pytest.raises(RefusedPlanError, match=expected):
        read(content)


def test_a_full_gpu_says_nothing_about_the_plan() -> None:
    library = with_logger(FakeTensorRt(failure="Error Code 1: Cuda Runtime (out of memory)"))

    with pytest.raises(LoadError, match=r"cannot read the engine onto the GPU: .*out of memory"):
        read_engine(library, plan().to_bytes(), SPEC, MACHINE)


def test_bytes_that_are_no_plan_are_refused() -> None:
    with pytest.raises(RefusedPlanError, match=r"TensorRT refuses it \(Error Code 1: .*magic tag does not match"):
        read_engine(with_logger(FakeTensorRt()), b"no plan", SPEC, MACHINE)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ([FakeTensor(name="a")], [FakeTensor(name="y")], "input 'x' is declared, the engine has a"),
        ([FakeTensor(name="x")], [FakeTensor(name="b")], "output 'y' is declared, the engine has b"),
        (
            [FakeTensor(name="x"), FakeTensor(name="mask", shape=(1, 2))],
            [FakeTensor(name="y")],
            "the engine needs inputs that are not declared: mask",
        ),
        (
            [FakeTensor(name="x", dtype="HALF")],
            [FakeTensor(name="y")],
            "input 'x' is TYPE_FP16 in the engine, declared TYPE_FP32",
        ),
        (
            [FakeTensor(name="x", shape=(1, 3))],
            [FakeTensor(name="y")],
            r"input 'x' has shape \[1, 3\] in the engine, declared \[2\] after the batch dimension",
        ),
        ([FakeTensor(name="x", shape=())], [FakeTensor(name="y")], r"input 'x' has shape \[\] in the engine"),
        ([FakeTensor(name="x", dtype="FP8")], [FakeTensor(name="y")], "'x' is FP8, expected one of FLOAT, HALF"),
        (
            [FakeTensor(name="x", location="HOST")],
            [FakeTensor(name="y")],
            "'x' is a shape, which is read on the CPU; expected data on the GPU",
        ),
    ],
)
def test_an_engine_that_is_not_what_was_declared_is_refused(
    inputs: list[FakeTensor], outputs: list[FakeTensor], expected: str
) -> None:
    with pytest.raises(LoadError, match=expected):
        read(FakeModel(inputs=tuple(inputs), outputs=tuple(outputs), profiles=(profile(1, 8, 8),)))


def test_an_engine_without_batch_dimension_is_held_against_whole_shapes() -> None:
    whole = FakeModel(inputs=(FakeTensor(name="x", shape=(2,)),), outputs=(FakeTensor(name="y", shape=(2,)),))

    assert read(whole, version(Path("model.plan"), max_batch_rows=0)).limits == EngineLimits()


def test_errors_of_a_thread_are_taken_once_and_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    messages = Messages()
    messages.record(1, "first")
    messages.record(0, "second")
    messages.record(2, "look out")

    taken = messages.take()

    assert (taken, messages.take()) == ("first; second", "TensorRT gives no reason")
    assert "TensorRT: look out" in caplog.text


def test_texts_lose_source_lines_and_directories(tmp_path: Path) -> None:
    text = f"[engine.cpp::read::12] Error\n in {tmp_path}/model.onnx"

    assert clean(text, tmp_path / "model.onnx") == "Error in model.onnx"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("expecting library version 10.9.0 got 11.4.0, please rebuild", "built with TensorRT 10.9.0, this"),
        ("expecting library version 11.4.0 got 10.9.0, please rebuild", "built with TensorRT 10.9.0, this"),
        ("expecting compute 9.0 got compute 8.6, please rebuild", "capability 8.6, this"),
        ("expecting compute 8.6 got compute 9.0, please rebuild", "capability 8.6, this"),
        (
            "Current Version: 240, Serialized Engine Version: 239)",
            "version 239 of TensorRT's plan format, expected",
        ),
    ],
)
def test_what_a_plan_was_built_for_is_told_whichever_way_tensorrt_words_it(text: str, expected: str) -> None:
    assert expected in explain_refusal(text, MACHINE)
