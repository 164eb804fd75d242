"""The most probable classes of a row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.classification import top_predictions

few_levels = st.lists(st.integers(0, 3).map(float), min_size=1, max_size=60)


def test_logits_become_probabilities_that_sum_to_one() -> None:
    predictions = top_predictions(np.array([1000.0, 1001.0, 999.0], np.float32), ("a", "b", "c"), 3, "logits")

    assert [prediction.label for prediction in predictions] == ["b", "a", "c"]
    assert sum(prediction.probability for prediction in predictions) == pytest.approx(1)
    assert predictions[0].probability == pytest.approx(0.66524, abs=1e-5)


def test_probabilities_are_taken_as_they_are_in_any_shape() -> None:
    predictions = top_predictions(np.array([[[0.25]], [[0.75]]], np.float32), (), 2, "probabilities")

    assert [(p.index, p.label, p.probability) for p in predictions] == [(1, "1", 0.75), (0, "0", 0.25)]


@given(scores=few_levels, top_k=st.integers(1, 70))
def test_equal_ones_come_in_the_order_of_their_classes(scores: list[float], top_k: int) -> None:
    predictions = top_predictions(np.array(scores), (), top_k, "probabilities")

    expected = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:top_k]
    assert [prediction.index for prediction in predictions] == expected


def test_scores_that_are_no_numbers_are_still_answered() -> None:
    predictions = top_predictions(np.array([np.nan, 1, 2]), (), 2, "probabilities")

    assert len(predictions) == 2
