"""What crosses the engine's boundary would survive a byte round trip, so that a surface may live in another process."""

import pickle

import numpy as np
import pytest

from backends.errors import ExecutionError, WrongRowsError
from batching.core.errors import DeadlineExceededError, QueueFullError, TooManyRowsError
from models.errors import BrokenImageError, ConfigError, ModelNotFoundError
from models.inference import ClassifyRequest, ClassifyResponse, InferRequest, InferResponse, Prediction, Timing

TENSORS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "words": np.array([b"a", b""], object)}
TIMING = Timing(decode_ns=1, queue_ns=2, compute_ns=3, total_ns=6, batch_rows=2)


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    "value",
    [
        InferRequest(model="m", inputs=TENSORS, version=2, outputs=("y",), request_id="r", parameters={"p": 1}),
        InferResponse(model="m", version=2, outputs=TENSORS, timing=TIMING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tensors_and_all_that_comes_with_them_survive(value):
    twin = copied(value)

    for field, original in value._asdict().items():
        if original is TENSORS:
            assert all(np.array_equal(array, original[name]) for name, array in getattr(twin, field).items())
        else:
            assert getattr(twin, field) == original


def test_a_classification_survives_with_the_errors_in_it():
    cat = Prediction(index=1, label="cat", probability=0.5)
    request = ClassifyRequest(images=(b"jpeg", BrokenImageError("found nothing")), top_k=3)
    response = ClassifyResponse(model="m", version=1, results=((cat,), QueueFullError(limit=4, unit="rows")))

    predictions, error = copied(response).results
    assert str(copied(request).images[1]) == "found nothing"
    assert predictions == (cat,)
    assert (type(error), str(error), error.limit) == (QueueFullError, str(response.results[1]), 4)


@pytest.mark.parametrize(
    "error",
    [
        DeadlineExceededError(),
        TooManyRowsError(rows=9, limit_rows=4),
        ExecutionError("no"),
        WrongRowsError(output="y", expected_rows=2, found_rows=1),
        ModelNotFoundError("m"),
        ConfigError(source="m/config.pbtxt", line=3, field="input[0]", found="a", expected="b"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_with_its_fields(error):
    twin = copied(error)

    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
