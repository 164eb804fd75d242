"""From a row of scores to the most probable classes."""

from typing import Literal

import numpy as np

from models.inference import Array, Prediction


def top_predictions(
    scores: Array, labels: tuple[str, ...], top_k: int, kind: Literal["logits", "probabilities"]
) -> tuple[Prediction, ...]:
    """The `top_k` classes of one row, most probable first, equal ones by index.

    Args:
        scores: One row of the output, of any shape, also with its batch dimension; its elements are the classes.
        labels: Name of each class; a class without one is named by its index.
        top_k: At least 1; more than there are classes means all.
        kind: `logits` are turned into probabilities by a softmax, `probabilities` are taken as they are.
    """
    values = np.asarray(scores, dtype=np.float64).ravel()
    if kind == "logits":
        exponents = np.exp(values - values.max())
        values = exponents / exponents.sum()
    count = min(top_k, values.size)
    least = np.partition(values, values.size - count)[values.size - count]
    best = np.flatnonzero(~(values < least))  # all that share the last place, so that the lowest index gets it
    order = best[np.argsort(-values[best], kind="stable")][:count]
    return tuple(
        Prediction(
            index=int(index),
            label=labels[index] if index < len(labels) else str(index),
            probability=float(values[index]),
        )
        for index in order
    )
