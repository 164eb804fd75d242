"""ONNX Runtime's own converters, imported without what they do to the import path.

`onnxruntime.transformers` adds its directory to it, in which others would find a `models` that is not ours.
"""

import sys
from pathlib import Path

from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

__all__ = ["OnnxModel", "convert_float_to_float16", "quant_pre_process", "quantization"]

_ADDED = Path(quantization.__file__).parents[1] / "transformers"
sys.path[:] = [entry for entry in sys.path if Path(entry) != _ADDED]
