"""Scores to labels: a softmax, and the names of the most probable classes."""

import numpy as np


class Model:
    """Takes float32 scores of shape (rows, classes); gives labels and probabilities of shape (rows, k)."""

    def __init__(self, context):
        lines = (context.directory / "labels.txt").read_text(encoding="utf-8").splitlines()
        self.labels = np.array([line.encode() for line in lines], dtype=object)
        (label, _) = context.outputs
        (self.k,) = label.dims

    def execute(self, inputs):
        logits = inputs["logits"]
        best = np.argsort(-logits, axis=1, kind="stable")[:, : self.k]
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        return {"label": self.labels[best], "probability": np.take_along_axis(probabilities, best, axis=1)}
