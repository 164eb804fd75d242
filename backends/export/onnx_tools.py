"""ONNX files in half precision and in 8 bits, by ONNX Runtime's own converters. No PyTorch."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from backends.errors import ExportError
from backends.export.converters import OnnxModel, convert_float_to_float16, quant_pre_process, quantization
from backends.failures import describe

_QUANTISED = frozenset({"QuantizeLinear", "DequantizeLinear", "QLinearConv", "ConvInteger"})


def write_half(source: Path, target: Path) -> None:
    """Write a network with weights and computation in fp16; inputs and outputs stay as they are. Raises ExportError."""
    with _converting("fp16"):
        model = OnnxModel(convert_float_to_float16(onnx.load(str(source)), keep_io_types=True))
        model.topological_sort()  # the converter appends its casts at the end, which is not valid ONNX
        onnx.save(model.model, str(target))


def is_quantised(file: Path) -> bool:
    """Whether the network computes in 8 bits already."""
    graph = onnx.load(str(file), load_external_data=False).graph
    return any(node.op_type in _QUANTISED for node in graph.node)


def write_int8(source: Path, target: Path, rows: NDArray[np.generic], *, is_symmetric: bool) -> None:
    """Write a network with 8-bit weights (one scale a channel) and 8-bit values whose ranges the rows show.

    Args:
        source: In single precision.
        target: What is written.
        rows: For its only input, shape (rows, *row shape); run one by one.
        is_symmetric: Signed values around zero, which TensorRT demands; else unsigned ones, which CPUs compute faster.

    Raises:
        ExportError: The tools cannot.
    """
    image = onnx.load(str(source), load_external_data=False).graph.input[0].name
    types = quantization.QuantType
    more = {"ActivationSymmetric": True, "QuantizeBias": False} if is_symmetric else {}
    with _converting("int8"), tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        prepared = Path(scratch) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)  # folds constants, joins operators
        quantization.quantize_static(
            str(prepared),
            str(target),
            _Calibration(image, rows),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=types.QInt8 if is_symmetric else types.QUInt8,
            weight_type=types.QInt8,
            per_channel=True,
            calibrate_method=quantization.CalibrationMethod.MinMax,
            extra_options=more,
        )


class _Calibration(quantization.CalibrationDataReader):  # type: ignore[misc] # the package has no types
    """Hands out one row after the other."""

    def __init__(self, name: str, rows: NDArray[np.generic]) -> None:
        self._feeds = iter([{name: rows[at : at + 1]} for at in range(len(rows))])

    def get_next(self) -> dict[str, NDArray[np.generic]] | None:
        return next(self._feeds, None)


@contextmanager
def _converting(what: str) -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the tools give advice on the root logger that they do not need themselves
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on weights outside of half precision: the comparison decides
            yield
    except OSError:
        raise
    except Exception as error:
        raise ExportError(f"the network cannot be converted to {what}: {describe(error)[:500]}") from error
    finally:
        root.setLevel(level)
