"""Gathering and scattering are each other's inverse, and refuse what cannot share a batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backends.errors import ExecutionError, WrongRowsError
from backends.gather import dense, gather, padded_rows, rows_of, scatter
from models.inference import Tensors
from models.tensors import DataType


def random_array(seed: int, shape: tuple[int, ...], data_type: DataType) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(0, 2 if data_type is DataType.BOOL else 100, shape)
    if data_type is DataType.BYTES:
        return np.array([b"\xff" * number for number in numbers.ravel().tolist()], np.object_).reshape(shape)
    return numbers.astype(data_type.numpy)


@st.composite
def batches(draw: st.DrawFn) -> list[Tensors]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    tensors = draw(
        st.dictionaries(
            st.sampled_from(["a", "b", "c"]),
            st.tuples(st.sampled_from(DataType), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
            min_size=1,
        )
    )
    seed = draw(st.integers(0, 1_000))
    return [
        {name: random_array(seed + row, (size, *item), data_type) for name, (data_type, item) in tensors.items()}
        for row, size in enumerate(sizes)
    ]


@settings(max_examples=60)
@given(batch=batches(), padding=st.integers(0, 4))
def test_scatter_undoes_gather_for_every_partition_type_and_padding(batch: list[Tensors], padding: int):
    sizes = [rows_of(payload) for payload in batch]
    executed_rows = sum(sizes) + padding

    answers = scatter(gather(batch, sizes, executed_rows), sizes, executed_rows)

    assert len(answers) == len(batch)
    for answer, payload in zip(answers, batch, strict=True):
        assert answer.keys() == payload.keys()
        for name, array in payload.items():
            assert answer[name].dtype == array.dtype
            np.testing.assert_array_equal(answer[name], array)


@settings(max_examples=30)
@given(batch=batches(), padding=st.integers(1, 4))
def test_padding_repeats_the_last_row(batch: list[Tensors], padding: int):
    rows = sum(map(rows_of, batch))

    gathered = gather(batch, [rows_of(payload) for payload in batch], rows + padding)

    for name, array in gathered.items():
        assert len(array) == rows + padding
        for row in array[rows:]:
            np.testing.assert_array_equal(row, batch[-1][name][-1])


@settings(max_examples=30)
@given(batch=batches())
def test_gathered_tensors_are_contiguous_and_aligned(batch: list[Tensors]):
    gathered = gather(batch, [rows_of(payload) for payload in batch], sum(map(rows_of, batch)))

    assert all(array.flags.c_contiguous and array.flags.aligned for array in gathered.values())


def test_a_batch_of_one_runs_on_its_own_arrays():
    body = np.arange(6, dtype=np.float32).reshape(2, 3)
    body.flags.writeable = False

    assert gather([{"x": body}], [2], 2)["x"] is body


def test_answers_are_views_on_the_batch():
    outputs = {"y": np.zeros((3, 2))}

    answers = scatter(outputs, [1, 2], 3)

    assert all(np.shares_memory(answer["y"], outputs["y"]) for answer in answers)


def test_an_array_that_starts_at_an_odd_byte_is_copied_to_an_aligned_one():
    array = np.frombuffer(b"\0" + np.array([1, 2], np.float32).tobytes(), np.float32, offset=1)

    aligned = dense({"x": array})["x"]

    assert aligned.flags.aligned
    np.testing.assert_array_equal(aligned, [1, 2])


ONE = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        pytest.param({"x": np.zeros((1, 2))}, r"'x' cannot share a batch: .*float32 \(2,\), float64 \(2,\)", id="type"),
        pytest.param({"x": np.zeros((1, 1), np.float32)}, r"float32 \(1,\), float32 \(2,\)", id="would broadcast"),
        pytest.param({"x": np.zeros((1,), np.float32)}, r"float32 \(\)", id="rank"),
        pytest.param({"z": ONE}, r"a request of the batch has tensors \['z'\], the first has \['x'\]", id="names"),
        pytest.param({"x": ONE, "z": ONE}, r"has tensors \['x', 'z'\]", id="more names"),
    ],
)
def test_payloads_that_differ_cannot_share_a_batch(second: Tensors, text: str):
    with pytest.raises(ExecutionError, match=text):
        gather([{"x": ONE}, second], [rows_of({"x": ONE}), rows_of(second)], 2)


@pytest.mark.parametrize(
    ("payload", "executed_rows"),
    [({"x": ONE[:0]}, 0), ({"x": ONE[:0]}, 4), ({"x": np.zeros((3, 2))}, 2)],
    ids=["no rows", "no row to repeat", "more rows than executed"],
)
def test_a_batch_needs_rows_and_room_for_them(payload: Tensors, executed_rows: int):
    with pytest.raises(ExecutionError, match="at least 1 and at most"):
        gather([payload], [rows_of(payload)], executed_rows)


@pytest.mark.parametrize(
    "payload",
    [{"x": ONE, "z": np.zeros((2, 2))}, {"x": np.float32(1).reshape(())}, {}],
    ids=["two lengths", "scalar", "nothing"],
)
def test_rows_of_a_payload_without_one_batch_dimension_are_refused(payload: Tensors):
    with pytest.raises(ExecutionError, match="same first dimension"):
        rows_of(payload)


@pytest.mark.parametrize("shape", [(2, 3), (4, 3), ()])
def test_outputs_with_another_number_of_rows_are_refused(shape: tuple[int, ...]):
    with pytest.raises(WrongRowsError, match="output 'y' has") as caught:
        scatter({"y": np.zeros(shape)}, [1, 2], 3)

    assert (caught.value.expected_rows, caught.value.found_rows) == (3, shape[0] if shape else 0)


@pytest.mark.parametrize(
    ("rows", "allowed", "executed"), [(3, (), 3), (1, (2, 4), 2), (2, (2, 4), 2), (3, (2, 4), 4), (4, (2, 4), 4)]
)
def test_a_batch_is_padded_to_the_next_allowed_size(rows: int, allowed: tuple[int, ...], executed: int):
    assert padded_rows(rows, allowed) == executed


def test_a_batch_above_the_largest_allowed_size_is_refused():
    with pytest.raises(ExecutionError, match="5 rows, the largest allowed size is 4"):
        padded_rows(5, (2, 4))
