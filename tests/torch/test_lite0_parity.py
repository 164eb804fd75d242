"""The committed golden logits are what PyTorch and the original definition of the network answer."""

import json
from importlib import resources

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")
pytest.importorskip("efficientnet_lite_pytorch", reason="needs: pip install efficientnet-lite-pytorch==0.1.0")

pytestmark = pytest.mark.torch

ANSWERS = json.loads(resources.files("models.zoo").joinpath("golden.json").read_bytes())["answers"]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"seed {answer['seed']}")
def test_torch_gives_the_committed_golden_logits(answer):
    from tests.torch.make_golden import golden_logits

    found = golden_logits(answer["seed"])

    # Processors differ in the last digits of float32.
    np.testing.assert_allclose(found, answer["logits"], rtol=0, atol=5e-5)
