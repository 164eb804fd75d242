"""The fake executor: what it answers, how long it takes, when it fails."""

import numpy as np
import pytest

from backends.errors import ExecutionError, LoadError
from backends.fake import FakeExecutor, sleep_ns
from backends.ports import Placement
from backends.registry import create_executors
from batching.clock import MILLISECOND_NS, MonotonicClock
from models.tensors import DataType
from tests.backends.builders import model, payload, tensor


def test_outputs_are_the_inputs_of_the_same_declaration_and_zeros_elsewhere():
    spec = model(
        inputs=[tensor("a"), tensor("b"), tensor("c")],
        outputs=[
            tensor("same"),
            tensor("other_dims", dims=(3, -1)),
            tensor("other_type", DataType.BYTES),
            tensor("no_input", DataType.FP16, dims=()),
        ],
    )
    inputs = {name: np.array([[1, 2], [3, 4]]) for name in "abc"}

    outputs = FakeExecutor(spec).run(inputs, 2)

    assert outputs["same"] is inputs["a"]
    np.testing.assert_array_equal(outputs["other_dims"], np.zeros((2, 3, 1), np.int64))
    assert outputs["other_type"].tolist() == [[b"", b""], [b"", b""]]
    np.testing.assert_array_equal(outputs["no_input"], np.zeros(2, np.float16))


def test_an_input_that_was_left_out_is_answered_with_zeros():
    assert FakeExecutor(model()).run({}, 1)["y"].tolist() == [[0, 0]]


def test_a_model_without_batch_dimension_answers_the_declared_shape():
    spec = model(outputs=[tensor("y", dims=(5,))], max_batch_rows=0)

    assert FakeExecutor(spec).run({"x": np.array([1, 2])}, 1)["y"].shape == (5,)


def test_the_service_time_depends_on_the_rows_and_zero_does_not_sleep():
    slept: list[int] = []
    executor = FakeExecutor(model(), service_ns=lambda rows: (rows - 1) * 100, sleep=slept.append)

    for rows in (1, 2, 5):
        executor.run(payload(*range(rows)), rows)

    assert slept == [100, 400]


def test_the_configured_service_time_is_really_spent():
    ((executor,),) = create_executors(model(service_base_us="2000", service_row_us="500.5"), Placement())
    clock = MonotonicClock()

    started_ns = clock.now_ns()
    executor.run(payload(1, 2), 2)

    assert clock.now_ns() - started_ns >= 3 * MILLISECOND_NS


def test_sleeping_takes_at_least_the_time_asked_for():
    clock = MonotonicClock()

    started_ns = clock.now_ns()
    sleep_ns(MILLISECOND_NS)

    assert clock.now_ns() - started_ns >= MILLISECOND_NS


@pytest.mark.parametrize("data_type", [each for each in DataType if each is not DataType.BYTES])
def test_a_batch_with_the_configured_number_fails(data_type: DataType):
    spec = model(inputs=[tensor("x", data_type)], fail_on_value="1")
    ((executor,),) = create_executors(spec, Placement())

    executor.run({"x": np.array([[0, 0]]).astype(data_type.numpy)}, 1)

    with pytest.raises(ExecutionError, match=r"'x' contains 1\.0"):
        executor.run({"x": np.array([[0, 0], [0, 1]]).astype(data_type.numpy)}, 2)


def test_a_batch_with_the_configured_text_fails():
    ((executor,),) = create_executors(model(inputs=[tensor("x", DataType.BYTES)], fail_on_value="bad"), Placement())

    executor.run({"x": np.array([[b"bad one", b""]], np.object_)}, 1)

    with pytest.raises(ExecutionError, match="contains b'bad'"):
        executor.run({"x": np.array([[b"good", b"bad"]], np.object_)}, 1)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [("service_base_us", "soon"), ("service_row_us", "-1"), ("service_row_us", "inf"), ("fail_on_value", "nan")],
)
def test_a_bad_parameter_is_named_with_its_value(parameter: str, text: str):
    with pytest.raises(LoadError, match=f"model 'm': parameter '{parameter}' is '{text}', expected a number"):
        create_executors(model(**{parameter: text}), Placement())
