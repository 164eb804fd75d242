from dataclasses import replace

import numpy as np
import pytest

from gateway.validation import validate
from models.errors import InvalidRequestError, UnknownTensorError
from models.spec import BatchingSpec, Oversize
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor

INT32 = DataType.INT32
SIMPLE = make_spec(
    "simple",
    [tensor("INPUT0", INT32, 16), tensor("INPUT1", INT32, 16)],
    [tensor("OUTPUT0", INT32, 16), tensor("OUTPUT1", INT32, 16)],
)
OPTIONAL = make_spec("opt", [tensor("A", INT32, 1), tensor("B", INT32, 1, optional=True)], [tensor("C", INT32, 1)])
CHOICE = make_spec("choice", [tensor("A", INT32, 1, optional=True)], [tensor("C", INT32, 1)])
TEXTS = make_spec("texts", [tensor("A", DataType.BYTES, 3)], [tensor("B", INT32, 1)])
NOTHING = make_spec("nothing", [tensor("A", INT32, -1)], [tensor("B", INT32, 1)])
FLAT = make_spec("flat", [tensor("A", INT32, 2)], [tensor("B", INT32, 2)], 0)


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


GOOD = {"INPUT0": ints(2, 16), "INPUT1": ints(2, 16)}

MISFITS = {
    "output": (SIMPLE, {}, ("NO",), "unexpected inference output 'NO' for model 'simple'"),
    "two outputs": (SIMPLE, {}, ("Z", "NO"), "unexpected inference output 'NO' for model 'simple'"),
    "no input to count rows by": (CHOICE, {}, (), "out of bounds index 0: request has 0 inputs"),
    "too few inputs": (
        SIMPLE,
        {"INPUT0": ints(1, 16)},
        (),
        "expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing required input(s) "
        "['INPUT1']. Please provide all required input(s).",
    ),
    "too many inputs": (
        SIMPLE,
        {**GOOD, "X": ints(2, 16)},
        (),
        "expected 2 inputs but got 3 inputs for model 'simple'. Got input(s) ['X','INPUT1','INPUT0'], but missing "
        "required input(s) ]. Please provide all required input(s).",
    ),
    "optional inputs": (
        OPTIONAL,
        {},
        (),
        "expected number of inputs between 1 and 2 but got 0 inputs for model 'opt'. Got input(s) [], but missing "
        "required input(s) ['A']",
    ),
    "required input missing with a good count": (OPTIONAL, {"B": ints(1, 1)}, (), "missing required input(s) ['A']"),
    "input name": (
        SIMPLE,
        {"INPUT0": ints(1, 16), "X": ints(1, 16)},
        (),
        "unexpected inference input 'X' for model 'simple'",
    ),
    "no batch dimension": (
        SIMPLE,
        {**GOOD, "INPUT0": ints()},
        (),
        "input 'INPUT0' has no shape but model requires batch dimension for 'simple'",
    ),
    "unequal rows": (
        SIMPLE,
        {"INPUT0": ints(2, 16), "INPUT1": ints(3, 16)},
        (),
        "input 'INPUT0' batch size does not match other inputs for 'simple'",
    ),
    "nine rows": (
        SIMPLE,
        {"INPUT0": ints(9, 16), "INPUT1": ints(9, 16)},
        (),
        "inference request batch-size must be <= 8 for 'simple'",
    ),
    "no rows": (
        SIMPLE,
        {"INPUT0": ints(0, 16), "INPUT1": ints(0, 16)},
        (),
        "input byte size mismatch for input 'INPUT1' for model 'simple'. Expected 64, got 0",
    ),
    "no rows of texts": (
        TEXTS,
        {"A": np.empty((0, 3), np.object_)},
        (),
        "expected 3 string elements for inference input 'A' for model 'texts', got 0",
    ),
    "no rows of nothing": (
        NOTHING,
        {"A": np.empty((0, 0), np.int32)},
        (),
        "inference request batch-size must be >= 1 for 'nothing'",
    ),
    "rows in one input only": (
        SIMPLE,
        {"INPUT0": ints(0, 16), "INPUT1": ints(5, 16)},
        (),
        "does not match other inputs",
    ),
    "data type": (
        SIMPLE,
        {**GOOD, "INPUT0": np.zeros((2, 16), np.float32)},
        (),
        "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'",
    ),
    "shape": (
        SIMPLE,
        {"INPUT0": ints(1, 8), "INPUT1": ints(1, 16)},
        (),
        "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,8]. NOTE: ",
    ),
    "shape without batch dimension": (
        FLAT,
        {"A": ints(1, 2)},
        (),
        "unexpected shape for input 'A' for model 'flat'. Expected [2], got [1,2].",
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_misfit_is_named_in_tritons_words(misfit: str) -> None:
    spec, inputs, outputs, text = MISFITS[misfit]

    with pytest.raises(InvalidRequestError) as caught:
        validate(spec, inputs, outputs)

    assert text in str(caught.value)


def test_the_first_check_that_fails_is_reported() -> None:
    everything_wrong = {"X": np.zeros((9, 3), np.float32), "Y": ints()}

    with pytest.raises(UnknownTensorError, match="unexpected inference input 'Y' for model 'simple'"):
        validate(SIMPLE, everything_wrong, ("OUTPUT0",))


def test_a_wrong_name_is_told_before_the_missing_input_when_there_are_optional_ones() -> None:
    with pytest.raises(UnknownTensorError, match="unexpected inference input 'Z' for model 'opt'"):
        validate(OPTIONAL, {"Z": ints(1, 1)}, ())


@pytest.mark.parametrize(
    ("spec", "inputs", "rows"),
    [(SIMPLE, GOOD, 2), (FLAT, {"A": ints(2)}, 1), (OPTIONAL, {"A": ints(3, 1)}, 3)],
    ids=["two rows", "no batch dimension", "optional input left out"],
)
def test_a_request_that_fits_counts_its_rows(spec, inputs, rows) -> None:
    assert validate(spec, inputs, ()) == rows


def test_a_model_that_splits_takes_more_rows_than_its_largest_batch() -> None:
    spec = replace(SIMPLE, batching=BatchingSpec(oversize=Oversize.SPLIT))

    rows = validate(spec, {"INPUT0": ints(20, 16), "INPUT1": ints(20, 16)}, ())

    assert rows == 20
