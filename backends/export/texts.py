"""The configuration files of exported models."""

import json
from collections.abc import Sequence

from models.preprocessing import Preprocessing

LABELS_FILE = "labels.txt"


def config_text(
    *,
    name: str,
    platform: str,
    max_batch_rows: int,
    tensors: tuple[str, str],
    shapes: tuple[Sequence[int], int],
    more: str,
) -> str:
    """config.pbtxt of a classifier with one image input.

    Args:
        name: Of the model.
        platform: Triton's word.
        max_batch_rows: Largest batch.
        tensors: Names of input and output.
        shapes: Of a row of the input, and the number of classes.
        more: Further blocks.
    """
    (image, scores), (row_shape, classes) = tensors, shapes
    return f"""\
name: "{name}"
platform: "{platform}"
max_batch_size: {max_batch_rows}

# One picture, without the batch dimension. shoal.toml says how a photograph becomes this tensor.
input [
  {{
    name: "{image}"
    data_type: TYPE_FP32
    dims: [ {", ".join(map(str, row_shape))} ]
  }}
]

# Scores before the softmax; line n of {LABELS_FILE} names class n, counted from 0.
output [
  {{
    name: "{scores}"
    data_type: TYPE_FP32
    dims: [ {classes} ]
    label_filename: "{LABELS_FILE}"
  }}
]
{more}"""


def parameter_text(name: str, value: str) -> str:
    """A block ``parameters``."""
    return f"""
parameters: {{
  key: "{name}"
  value: {{ string_value: "{value}" }}
}}
"""


def side_text(how: Preprocessing, *, retries: bool) -> str:
    """shoal.toml: the preprocessing and, if wanted, that answers which are no numbers are computed again."""
    lines = [
        "# What Triton's config.pbtxt cannot say. Other servers ignore this file.",
        "",
        "# How a photograph becomes one row of the input, as torchvision's transforms of these weights do it.",
        "[preprocessing]",
        *(f"{key} = {json.dumps(value)}" for key, value in how.model_dump(mode="json", exclude_unset=True).items()),
    ]
    if retries:
        lines += ["", "[execution]", 'non_finite = "retry_fp32"  # with model.fp32.onnx']
    return "\n".join(lines) + "\n"
