"""Laws of the batch sizes that a version runs, and that are run before the first request."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.gather import padded_rows
from backends.sizes import MAX_WARM_UP_ROWS, executed_sizes, warm_up_sizes
from tests.backends.builders import model, tensor

largest_rows = st.integers(0, 5_000)


@given(largest_rows, st.booleans())
def test_costly_sizes_ascend_from_one_to_the_largest_batch(largest: int, is_gpu: bool):
    sizes = executed_sizes(model(max_batch_rows=largest), is_costly=True, is_gpu=is_gpu)

    assert all(smaller < larger for smaller, larger in pairwise(sizes))
    assert (sizes[0], sizes[-1]) == (1, max(1, largest))


@given(st.integers(1, 5_000), st.data())
def test_on_a_cpu_no_batch_up_to_eight_rows_is_padded_and_others_by_a_quarter_at_most(
    largest: int, data: st.DataObject
):
    sizes = executed_sizes(model(max_batch_rows=largest), is_costly=True, is_gpu=False)
    rows = data.draw(st.integers(1, largest))

    executed = padded_rows(rows, sizes)

    assert executed == rows if rows <= 8 else executed <= 1.25 * rows


@given(st.integers(1, 5_000), st.data())
def test_on_a_gpu_a_batch_is_less_than_doubled(largest: int, data: st.DataObject):
    sizes = executed_sizes(model(max_batch_rows=largest), is_costly=True, is_gpu=True)
    rows = data.draw(st.integers(1, largest))

    assert padded_rows(rows, sizes) < 2 * rows or rows == 1


@given(largest_rows, st.booleans(), st.booleans())
def test_what_is_warmed_up_is_executed_and_on_a_cpu_small(largest: int, is_costly: bool, is_gpu: bool):
    spec = model(max_batch_rows=largest)
    executed = executed_sizes(spec, is_costly=is_costly, is_gpu=is_gpu)

    warmed = warm_up_sizes(spec, executed, is_gpu=is_gpu)

    assert set(warmed) <= set(executed or range(1, max(1, largest) + 1))
    assert warmed[0] == 1
    assert warmed == executed or warmed[-1] <= MAX_WARM_UP_ROWS


@pytest.mark.parametrize(
    ("is_gpu", "sizes"),
    [
        pytest.param(True, (1, 2, 4, 8, 16, 32, 48), id="powers of two and the largest on a GPU"),
        pytest.param(
            False, (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48), id="quarter steps on a CPU"
        ),
    ],
)
def test_sizes_of_a_model_with_at_most_forty_eight_rows(is_gpu: bool, sizes: tuple[int, ...]):
    assert executed_sizes(model(max_batch_rows=48), is_costly=True, is_gpu=is_gpu) == sizes


@pytest.mark.parametrize("is_gpu", [False, True])
@pytest.mark.parametrize("is_costly", [False, True])
def test_the_configurations_own_sizes_are_run_and_all_warmed_up(is_costly: bool, is_gpu: bool):
    spec = model(max_batch_rows=96, allowed_rows=(4, 96))

    executed = executed_sizes(spec, is_costly=is_costly, is_gpu=is_gpu)

    assert executed == (4, 96)
    assert warm_up_sizes(spec, executed, is_gpu=is_gpu) == (4, 96)


def test_any_size_is_run_where_a_new_one_costs_nothing():
    executed = executed_sizes(model(max_batch_rows=48), is_costly=False, is_gpu=True)

    assert executed == ()
    assert warm_up_sizes(model(max_batch_rows=48), executed, is_gpu=True) == (1, 2, 4, 8, 16, 32)


def test_rows_that_differ_in_shape_are_run_in_any_number():
    assert executed_sizes(model(inputs=[tensor("x", dims=(-1,))]), is_costly=True, is_gpu=True) == ()


def test_on_a_cpu_sizes_above_the_limit_run_without_warm_up():
    spec = model(max_batch_rows=1_024)
    executed = executed_sizes(spec, is_costly=True, is_gpu=False)

    assert warm_up_sizes(spec, executed, is_gpu=False)[-1] == MAX_WARM_UP_ROWS
    assert warm_up_sizes(spec, executed_sizes(spec, is_costly=True, is_gpu=True), is_gpu=True)[-1] == 1_024
