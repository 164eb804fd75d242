"""What every executor does, the fake included."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionError
from backends.ports import Executor
from tests.backends.builders import POISON, model, payload
from tests.contract.kinds import crossed, executor_in, identity


@pytest.fixture(params=crossed("here", "worker"))
async def executor(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Executor]:
    backend, host = request.param
    async with executor_in(host, identity(backend, tmp_path, model())) as executor:
        executor.load()
        yield executor
        executor.close()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_every_row_is_answered_at_its_place(executor: Executor, rows: int):
    inputs = payload(*range(rows))

    outputs = executor.run(inputs, rows)

    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], inputs["x"])


def test_read_only_inputs_are_accepted_and_stay_as_they_are(executor: Executor):
    inputs = payload(3, 4)
    inputs["x"].flags.writeable = False

    executor.run(inputs, 2)

    np.testing.assert_array_equal(inputs["x"], payload(3, 4)["x"])


def test_a_failure_is_an_execution_error_and_the_next_batch_succeeds(executor: Executor):
    with pytest.raises(ExecutionError, match=r".+"):
        executor.run(payload(1, POISON), 2)

    np.testing.assert_array_equal(executor.run(payload(5), 1)["y"], [[5, 5]])


def test_warming_up_several_sizes_leaves_the_model_usable(executor: Executor):
    executor.warm_up([1, 2, 4])

    np.testing.assert_array_equal(executor.run(payload(5), 1)["y"], [[5, 5]])


def test_closing_twice_is_harmless_and_loading_again_works(executor: Executor):
    executor.close()
    executor.close()

    executor.load()

    np.testing.assert_array_equal(executor.run(payload(5), 1)["y"], [[5, 5]])
